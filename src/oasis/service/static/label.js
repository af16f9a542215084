// The view that asks for labels: the item whose label would teach most, with the predicted classes as
// buttons, one key each. A label is stored and learned at once; the next item is shown meanwhile.

import { about, refresh } from "./about.js";
import * as api from "./api.js";
import { lines } from "./charts.js";
import { $, el, plural, replace, showError } from "./dom.js";
import { labelsIn } from "./edit.js";
import { pictureOf } from "./pictures.js";
import { fileOf, textOf, titleOf } from "./results.js";

const BATCH = 12;
const LOW = 3;
const WINDOW = 10;
const SHOWN = 7;

let queue = [];
let seen = new Set();
let given = []; // { item, labels, right }, in order
let saving = Promise.resolve();
let asking = null;
let active = false;

export function start() {
  document.addEventListener("keydown", (event) => {
    if (!active || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog")) return;
    const act = { 0: skip, u: undo, e: () => $("#label-other").focus() }[event.key] || choiceOf(event.key);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function choiceOf(key) {
  const name = queue[0]?.classes[Number(key) - 1];
  return name === undefined ? null : () => choose([name]);
}

export async function show() {
  active = !about.stats.readonly;
  if (about.stats.readonly) {
    replace($("#label-item"), el("p", { class: "panel" }, "This service only reads: labels cannot be given here."));
    return;
  }
  queue = [];
  seen = new Set();
  replace($("#label-item"), el("p", { class: "hint" }, "Looking for the items…"));
  await more();
  draw();
}

// Ask for more before there are none; what was asked for is not asked for twice.
function more() {
  asking ||= saving
    .then(() => api.next(BATCH + seen.size))
    .then((items) => {
      const waiting = new Set(queue.map((each) => each.id));
      queue.push(...items.filter((each) => !seen.has(each.id) && !waiting.has(each.id)));
    })
    .catch(showError)
    .finally(() => {
      asking = null;
    });
  return asking;
}

async function step() {
  const [item] = queue.splice(0, 1);
  seen.add(item.id);
  if (!queue.length) await more();
  else if (queue.length <= LOW) more();
  draw(true);
}

function skip() {
  if (!queue.length) return;
  $("#label-status").textContent = `Skipped ${titleOf({ ...queue[0], labels: [] })}.`;
  step();
}

function choose(labels) {
  const [item] = queue;
  if (!item || !labels.length) return;
  const right = item.classes.length ? labels.includes(item.classes[0]) : null;
  const one = { item, labels, right };
  given.push(one);
  $("#label-status").textContent = `${labels.join(", ")}: ${titleOf({ ...item, labels })}. Learning…`;
  saving = saving.then(() => store(one)).catch(showError);
  step();
  gain();
}

async function store({ item, labels }) {
  try {
    await api.update(item.id, { labels });
    $("#label-status").textContent = `${labels.join(", ")}: stored and learned. ${plural(given.length, "label")} given.`;
  } catch (problem) {
    given = given.filter((each) => each.item !== item);
    seen.delete(item.id);
    queue.unshift(item);
    draw();
    gain();
    throw problem;
  }
}

function undo() {
  const last = given.pop();
  if (!last) return;
  seen.delete(last.item.id);
  queue.unshift(last.item);
  saving = saving
    .then(() => api.update(last.item.id, { labels: null }))
    .then(() => {
      $("#label-status").textContent = "The last label is taken back.";
    })
    .catch(showError);
  draw(true);
  gain();
}

// Leave the view: counts and classes may have changed.
export async function leave() {
  active = false;
  if (!given.length) return;
  await saving;
  await refresh();
}

// -- drawing ------------------------------------------------------------------------------------

const key = (name) => el("kbd", { "aria-hidden": "true" }, name);

function draw(moved = false) {
  const place = $("#label-item");
  const had = place.contains(document.activeElement);
  const [item] = queue;
  if (!item) {
    replace(place, el("p", { class: "panel" }, about.stats.n_items ? "Every item that could be asked for has a label." : "This collection is empty."));
    return;
  }
  const found = { ...item, labels: [] };
  const title = titleOf(found);
  const text = textOf(found);
  const file = fileOf(found);
  const choices = item.classes.slice(0, SHOWN).map((name, at) =>
    el(
      "button",
      { type: "button", class: "choice", "aria-keyshortcuts": String(at + 1), onclick: () => choose([name]) },
      key(at + 1),
      el("span", { class: "name" }, name),
      el("small", {}, `${Math.round(100 * item.chances[at])} %`),
    ),
  );
  const other = el("input", { id: "label-other", autocomplete: "off", list: "known-labels" });
  const form = el(
    "form",
    { class: "line" },
    el("label", { for: "label-other" }, "Other", key("E")),
    other,
    el("button", { type: "submit" }, "Give"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    choose(labelsIn(other.value));
  });
  other.addEventListener("keydown", (event) => event.key === "Escape" && choices[0]?.focus());
  replace(
    place,
    el(
      "div",
      { class: "panel asked" },
      pictureOf(item.id, title, { kind: "frame large", load: api.preview }),
      el(
        "div",
        { class: "detail-facts" },
        el("div", {}, el("h2", {}, title), file ? el("p", { class: "file" }, file) : null),
        text ? el("p", { class: "snippet" }, text) : null,
        el("div", { class: "choices", role: "group", "aria-label": `Labels for ${title}` }, choices),
        form,
        el(
          "div",
          { class: "line wrap" },
          el("button", { type: "button", "aria-keyshortcuts": "0", onclick: skip }, "Skip ", key("0")),
          el("button", { type: "button", "aria-keyshortcuts": "u", disabled: !given.length, onclick: undo }, "Undo ", key("U")),
        ),
      ),
    ),
    el("ol", { class: "waiting", "aria-label": "What comes next" }, queue.slice(1, SHOWN).map((each) => el("li", {}, pictureOf(each.id, titleOf({ ...each, labels: [] }), { kind: "frame" })))),
  );
  if (had || moved) (choices[0] || other).focus({ preventScroll: true });
}

// How often the first guess was right, before it was told: measured while the items arrive.
function gain() {
  const judged = given.filter((each) => each.right !== null);
  const box = $("#label-gain");
  box.hidden = !judged.length;
  if (!judged.length) return;
  const right = judged.filter((each) => each.right).length;
  const values = judged.map((_, at) => {
    const last = judged.slice(Math.max(0, at + 1 - WINDOW), at + 1);
    return last.filter((each) => each.right).length / last.length;
  });
  const said = `The first guess was right for ${right} of ${plural(judged.length, "item")}.`;
  const numbers = judged.map((_, at) => at + 1);
  replace(
    box,
    el("figcaption", {}, said, el("span", { class: "key own" }, `right, of the last ${WINDOW}`)),
    judged.length > 1
      ? lines(said, numbers, [{ name: "first guess", kind: "own", values }], 1, (value) => value.toFixed(2), "item")
      : [],
    el("p", { class: "hint" }, "Judged before each label was learned. The items shown here are the hardest of the collection: of others more guesses are right."),
  );
}
