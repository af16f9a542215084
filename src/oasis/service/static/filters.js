// Filters, built from the labels and the payload fields that are there.

import { about, watch } from "./about.js";
import { $, el, replace } from "./dom.js";

const FEW = 12;

let controls = new Map();
let where = {};
let tell = () => {};

export function start(onchange) {
  tell = () => onchange(chosen());
  $("#label-filter").addEventListener("change", tell);
  $("#label-predicted").addEventListener("change", tell);
  watch(build);
}

export const chosen = () => ({
  label: $("#label-filter").value.trim(),
  predicted: $("#label-predicted").checked,
  where,
});

export function set(state) {
  where = state.where || {};
  $("#label-filter").value = state.label || "";
  $("#label-predicted").checked = Boolean(state.predicted);
  for (const [name, control] of controls) control.show(where[name]);
  active();
}

function change(name, condition) {
  const { [name]: _, ...others } = where;
  where = condition === undefined ? others : { ...others, [name]: condition };
  tell();
}

function build({ stats, classes, fields }) {
  const names = classes.map((each) => each.name).sort((a, b) => a.localeCompare(b));
  replace($("#label-names"), names.map((name) => el("option", { value: name })));
  controls = new Map();
  if (stats.keep_text && stats.n_items) controls.set("$text", ofPhrase());
  for (const field of fields) {
    if (MAKERS[field.kind]) controls.set(field.name, MAKERS[field.kind](field));
  }
  replace($("#field-filters"), [...controls.values()].map((control) => control.element));
  for (const [name, control] of controls) control.show(where[name]);
  $("#label-predicted").closest("label").hidden = !classes.some((each) => each.n_predicted);
  $("#filters").hidden = !names.length && !controls.size;
  active();
}

// What is filtered by, as chips that take it away again.
function active() {
  const conditions = [];
  const label = $("#label-filter").value;
  const also = $("#label-predicted").checked ? ", given or predicted" : "";
  if (label) conditions.push([`label: ${label}${also}`, () => { $("#label-filter").value = ""; tell(); }]);
  for (const [name, condition] of Object.entries(where)) {
    conditions.push([inWords(name, condition), () => change(name, undefined)]);
  }
  replace(
    $("#active-filters"),
    conditions.map(([text, drop]) =>
      el("button", { type: "button", class: "chip active", "aria-label": `Remove the filter ${text}`, onclick: drop }, text, el("span", { "aria-hidden": "true" }, " ×")),
    ),
  );
  $("#active-filters").hidden = !conditions.length;
  $("#filters-count").textContent = conditions.length ? ` (${conditions.length})` : "";
}

function inWords(name, condition) {
  if (condition === null || typeof condition !== "object") return `${name}: ${condition}`;
  if (["$any", "$all", "$not"].includes(name)) return `${name.slice(1)} ${JSON.stringify(condition)}`;
  if (condition.contains !== undefined) return `${name.replace("$text", "text")} contains “${condition.contains}”`;
  const signs = { gte: "≥", gt: ">", lte: "≤", lt: "<" };
  const parts = Object.entries(condition).map(([operator, value]) =>
    signs[operator] ? `${signs[operator]} ${value}` : `${operator} ${JSON.stringify(value)}`,
  );
  return `${name} ${parts.join(" and ")}`;
}

// -- one control a field ------------------------------------------------------------------------

let count = 0;

function field(name, ...inputs) {
  const id = `filter-${(count += 1)}`;
  inputs[0].id = id;
  return el("div", { class: "field" }, el("label", { for: id }, name), el("div", { class: "pair" }, inputs));
}

const read = (input) => (input.value.trim() === "" ? null : Number(input.value));

function ofNumbers({ name, min, max }) {
  const [from, to] = [["from", min], ["to", max]].map(([end, edge]) =>
    el("input", { type: "number", step: "any", placeholder: String(edge), "aria-label": `${name}, ${end}` }),
  );
  const told = () => {
    const condition = {};
    if (read(from) !== null) condition.gte = read(from);
    if (read(to) !== null) condition.lte = read(to);
    change(name, Object.keys(condition).length ? condition : undefined);
  };
  for (const input of [from, to]) input.addEventListener("change", told);
  return {
    element: field(name, from, to),
    show: (condition) => {
      from.value = condition?.gte ?? condition?.gt ?? (typeof condition === "number" ? condition : "");
      to.value = condition?.lte ?? condition?.lt ?? (typeof condition === "number" ? condition : "");
    },
  };
}

function ofChoices({ name, values }) {
  const select = el(
    "select",
    {},
    el("option", { value: "" }, "any"),
    values.map((value, place) => el("option", { value: String(place) }, String(value))),
  );
  select.addEventListener("change", () => change(name, select.value === "" ? undefined : values[Number(select.value)]));
  return {
    element: field(name, select),
    show: (condition) => {
      const place = values.indexOf(condition);
      select.value = place < 0 ? "" : String(place);
    },
  };
}

function ofTexts({ name, values, complete }) {
  if (complete && values.length <= FEW) return ofChoices({ name, values });
  const list = el("datalist", { id: `values-${(count += 1)}` }, values.map((value) => el("option", { value })));
  const input = el("input", { autocomplete: "off", list: list.id, placeholder: "exactly" });
  input.addEventListener("change", () => change(name, input.value === "" ? undefined : input.value));
  return {
    element: field(name, input, list),
    show: (condition) => {
      input.value = typeof condition === "string" ? condition : "";
    },
  };
}

// Words that follow each other in the text that is kept.
function ofPhrase() {
  const input = el("input", { autocomplete: "off", placeholder: "these words in a row" });
  input.addEventListener("change", () => {
    const phrase = input.value.trim();
    change("$text", phrase ? { contains: phrase } : undefined);
  });
  return {
    element: field("text", input),
    show: (condition) => {
      input.value = typeof condition?.contains === "string" ? condition.contains : "";
    },
  };
}

const MAKERS = { number: ofNumbers, text: ofTexts, boolean: (each) => ofChoices({ ...each, values: [true, false] }) };
