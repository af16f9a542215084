// Changing what is stored. For who may write; who may not is told so.

import * as api from "./api.js";
import { el, replace } from "./dom.js";

export const labelsIn = (text) => [...new Set(text.split(",").map((each) => each.trim()).filter(Boolean))];

// Two steps, as it cannot be undone.
export function deleteButton(found, gone) {
  const place = el("span", { class: "line wrap" });
  const button = el("button", { type: "button", class: "danger" }, "Delete");
  const rest = () => {
    replace(place, button);
    button.focus();
  };
  button.addEventListener("click", () => {
    const sure = el("button", { type: "button", class: "danger sure" }, "Delete for ever");
    sure.addEventListener("click", async () => {
      sure.disabled = true;
      try {
        await api.remove([found.id]);
        await gone(found.id);
      } catch (problem) {
        replace(place, el("span", { class: "hint", role: "alert" }, problem.detail || String(problem)));
      }
    });
    replace(place, sure, el("button", { type: "button", onclick: rest }, "Keep it"));
    sure.focus();
  });
  replace(place, button);
  return place;
}

