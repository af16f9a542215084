// The view of what is there twice: groups of items that repeat each other. One is kept, the others are
// deleted after a question.

import { about, refresh } from "./about.js";
import * as address from "./address.js";
import * as api from "./api.js";
import { $, el, number, plural, replace, showError } from "./dom.js";
import { askFirst } from "./edit.js";
import { pictureOf } from "./pictures.js";
import { changed } from "./search.js";

const SHOWN = 50;

let groups = [];

export async function show() {
  const status = $("#duplicates-status");
  status.textContent = "Comparing all items…";
  replace($("#duplicates"));
  try {
    groups = await api.duplicates();
    draw();
  } catch (problem) {
    status.textContent = "";
    showError(problem);
  }
}

function draw() {
  const extra = groups.reduce((sum, group) => sum + group.length - 1, 0);
  replace(
    $("#duplicates-status"),
    groups.length
      ? `${plural(groups.length, "group")}, ${plural(extra, "item")} beyond the first of each.${groups.length > SHOWN ? ` The first ${SHOWN} are shown.` : ""} `
      : "No item repeats another.",
  );
  const all = groups.flatMap((group) => group.slice(1));
  replace(
    $("#duplicates-all"),
    groups.length > 1 && !about.stats.readonly
      ? askFirst("Keep the first of each group", `Delete ${number(all.length)} items for ever`, () => remove(all, () => []))
      : [],
  );
  replace($("#duplicates"), groups.slice(0, SHOWN).map(groupOf));
}

function groupOf(group, at) {
  const kept = () => group[Number(fieldset.querySelector("input:checked").value)];
  const fieldset = el(
    "fieldset",
    { class: "panel twins" },
    el("legend", {}, `Group ${at + 1}: ${plural(group.length, "item")}`),
    el("div", { class: "grid" }, group.map((id, place) => twin(id, at, place))),
  );
  if (!about.stats.readonly) {
    const others = () => group.filter((id) => id !== kept());
    const n = group.length === 2 ? "other" : `${group.length - 1} others`;
    fieldset.append(
      askFirst(`Keep the chosen, delete the ${n}`, "Delete for ever", () =>
        remove(others(), () => groups.filter((each) => each !== group)),
      ),
    );
  }
  return fieldset;
}

function twin(id, at, place) {
  const name = `twin-${at}-${place}`;
  const target = { view: "duplicates", item: id };
  const radio = el("input", { type: "radio", name: `group-${at}`, id: name, value: String(place), checked: place === 0 });
  return el(
    "div",
    { class: "twin" },
    el("label", { for: name }, pictureOf(id, String(id), { kind: "frame" }), el("span", { class: "line" }, radio, " Keep")),
    el("a", { class: "file", href: address.write(target), onclick: (event) => address.follow(event, target) }, String(id)),
  );
}

async function remove(ids, rest) {
  await api.remove(ids);
  for (const id of ids) changed(id, null);
  groups = rest();
  draw();
  $("#duplicates-status").prepend(`${plural(ids.length, "item")} deleted. `);
  $("#title-duplicates").focus();
  await refresh();
}
