// Changing what is stored. For who may write; who may not is told so.

import * as api from "./api.js";
import { el, replace } from "./dom.js";

export const labelsIn = (text) => [...new Set(text.split(",").map((each) => each.trim()).filter(Boolean))];

// The labels as they are shown, and a button that puts an editor in their place. What is predicted is
// offered there, and is given by saving.
export function labelEditor(found, shown, changed) {
  const place = el("div", { class: "editor" });
  const button = el("button", { type: "button", class: "quiet" }, "Edit labels");
  const rest = () => {
    replace(place, shown, button);
    button.focus();
  };
  button.addEventListener("click", () => replace(place, labelForm(found, changed, rest)));
  replace(place, shown, button);
  return place;
}

function labelForm(found, changed, rest) {
  const names = new Set(found.labels.length ? found.labels : found.predicted);
  const input = el("input", { id: "edit-labels", autocomplete: "off", list: "known-labels", "aria-describedby": "edit-labels-hint" });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Labels it is to have" });
  const draw = () => {
    const drop = (name) => () => {
      names.delete(name);
      draw();
      input.focus();
    };
    const chip = (name) =>
      el("button", { type: "button", class: "chip active", "aria-label": `Remove the label ${name}`, onclick: drop(name) }, name, el("span", { "aria-hidden": "true" }, " ×"));
    replace(chips, names.size ? [...names].map(chip) : el("span", { class: "hint" }, "none"));
  };
  const refused = el("p", { class: "hint", role: "alert" });
  const save = el("button", { type: "submit", class: "primary" }, "Save");
  const form = el(
    "form",
    { class: "form" },
    chips,
    el(
      "div",
      { class: "field" },
      el("label", { for: "edit-labels" }, "Add labels"),
      input,
      el("p", { class: "hint", id: "edit-labels-hint" }, "Separated by commas. Searches by label and filters follow at once; the code stays as it is."),
    ),
    el("div", { class: "line wrap" }, save, el("button", { type: "button", onclick: rest }, "Cancel")),
    refused,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    save.disabled = true;
    try {
      await changed(await api.update(found.id, { labels: [...new Set([...names, ...labelsIn(input.value)])] }));
    } catch (problem) {
      refused.textContent = problem.detail || String(problem);
      save.disabled = false;
    }
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // closes the editor, not the item
    event.stopPropagation();
    rest();
  });
  draw();
  queueMicrotask(() => input.focus());
  return form;
}

// A button whose action cannot be undone: a second one asks first.
export function askFirst(name, sureName, act) {
  const place = el("span", { class: "line wrap" });
  const button = el("button", { type: "button", class: "danger" }, name);
  const rest = () => {
    replace(place, button);
    button.focus();
  };
  button.addEventListener("click", () => {
    const sure = el("button", { type: "button", class: "danger sure" }, sureName);
    sure.addEventListener("click", async () => {
      sure.disabled = true;
      try {
        await act();
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

export const deleteButton = (found, gone) =>
  askFirst("Delete", "Delete for ever", async () => {
    await api.remove([found.id]);
    await gone(found.id);
  });
