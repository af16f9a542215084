// The view that searches, and the cards of hits.

import * as api from "./api.js";
import { $, el, labelChip, plural, replace, showError, svg } from "./dom.js";
import { pictureField } from "./picture.js";

const PAGE = 24;
const SUGGESTED = 14;
const HINTS = {
  text: "Words are matched through what was learned from texts.",
  meaning: "A label, or any word: items are found whose labels mean nearly the same.",
};

let facts = null;
let picture = null;
let asked = null;
let shown = [];
let turn = 0;

export function start(stats, classes) {
  facts = stats;
  const fields = Object.values(stats.extractor || {}).map((entry) => entry.field);
  const hasText = fields.includes("text");
  const hasImage = fields.includes("image");
  picture = pictureField($("#search-picture"), {
    name: "search-file",
    label: "A picture to search with",
    onchange: (file) => file && run(fromForm()),
  });
  $("#search-picture").hidden = !hasImage;
  const [text, meaning] = document.querySelectorAll("[name=how]");
  text.disabled = !hasText;
  (hasText ? text : meaning).checked = true;
  for (const each of [text, meaning]) each.addEventListener("change", hint);
  hint();
  showClasses(classes);
  $("#search-status").textContent = classes.length
    ? "Or begin with one of the most frequent labels:"
    : "Nothing has been learned yet: add an item with a label first.";
  $("#search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run(fromForm());
  });
  $("#label-filter").addEventListener("change", () => asked && run({ ...asked, label: label() }));
  $("#show-more").addEventListener("click", more);
}

export function showClasses(classes) {
  const chosen = label();
  const names = classes.map((each) => each.name).sort((a, b) => a.localeCompare(b));
  replace(
    $("#label-filter"),
    el("option", { value: "" }, "any"),
    names.map((name) => el("option", { value: name }, name)),
  );
  $("#label-filter").value = names.includes(chosen) ? chosen : "";
  const frequent = [...classes].sort((a, b) => b.n - a.n).slice(0, SUGGESTED);
  replace(
    $("#suggestions"),
    frequent.map((each) => labelChip(each.name, () => searchLabel(each.name), `${each.n}`)),
  );
}

function hint() {
  $("#how-hint").textContent = HINTS[how()];
}

const how = () => document.querySelector("[name=how]:checked").value;
const label = () => $("#label-filter").value;

function fromForm() {
  return { words: $("#query").value.trim(), how: how(), file: picture.file, label: label() };
}

function searchLabel(name) {
  $("#query").value = name;
  document.querySelector("[name=how][value=meaning]").checked = true;
  hint();
  picture.set(null, false);
  run(fromForm());
}

function request(question, offset) {
  const found = { k: PAGE, offset };
  if (question.label) found.where = { $labels: { has: question.label } };
  if (question.like !== undefined) return [{ ...found, like: question.like }, []];
  if (question.how === "meaning" && question.words && !question.file) {
    return [{ ...found, words: [question.words] }, []];
  }
  const item = question.words ? { text: question.words } : {};
  return [{ ...found, items: [item] }, [question.file]];
}

function describe(question) {
  const filter = question.label ? ` with the label “${question.label}”` : "";
  if (question.like !== undefined) return `more like “${question.title}”${filter}`;
  const parts = [
    question.words && `“${question.words}”`,
    question.file && "your picture",
  ].filter(Boolean);
  return parts.join(" and ") + filter;
}

async function run(question) {
  showError(null);
  if (question.like === undefined && !question.words && !question.file) {
    $("#search-status").textContent = "Type some words or choose a picture first.";
    $("#query").focus();
    return;
  }
  asked = question;
  shown = [];
  await load();
}

async function load() {
  const mine = ++turn;
  const before = shown.length;
  $("#results").setAttribute("aria-busy", "true");
  $("#search-status").textContent = "Searching…";
  try {
    const began = performance.now();
    const hits = await api.search(...request(asked, before));
    if (mine !== turn) return;
    const spent = Math.max(1, Math.round(performance.now() - began));
    shown = shown.concat(hits);
    const cards = hits.map((hit) => card(hit, facts.n_bits, actions));
    if (before) $("#results").append(...cards);
    else replace($("#results"), cards);
    $("#suggestions").hidden = true;
    $("#show-more").hidden = hits.length < PAGE;
    const flat = shown.length && shown.every((hit) => hit.score === 0);
    $("#search-status").textContent = shown.length
      ? `The ${plural(shown.length, "best hit", "best hits")} for ${describe(asked)}, in ${spent} ms` +
        (flat ? ". All scores are 0: nothing like this has been learned yet." : "")
      : `Nothing found for ${describe(asked)}`;
    if (before) cards[0]?.querySelector("button")?.focus();
  } catch (problem) {
    if (mine !== turn) return;
    $("#search-status").textContent = "";
    if (!before) replace($("#results"));
    $("#show-more").hidden = true;
    showError(problem);
  } finally {
    if (mine === turn) $("#results").removeAttribute("aria-busy");
  }
}

const more = () => load();

export const actions = {
  like(hit) {
    location.hash = "#search";
    $("#query").value = "";
    picture.set(null, false);
    run({ like: hit.id, title: titleOf(hit), label: label() });
    $("#title-search").scrollIntoView({ block: "start" });
  },
  label(name) {
    location.hash = "#search";
    $("#label-filter").value = name;
    if (asked) run({ ...asked, label: name });
    else searchLabel(name);
  },
};

export function titleOf(hit) {
  const { title, name } = hit.payload;
  return String(typeof title === "string" && title ? title : typeof name === "string" && name ? name : hit.id);
}

export function card(hit, nBits, acts, mark = "") {
  const title = titleOf(hit);
  const frame = el("div", { class: "frame" });
  api
    .thumbnail(hit.id)
    .then((url) => {
      if (url) {
        const image = el("img", { src: url, alt: "" });
        image.addEventListener("load", () => URL.revokeObjectURL(url), { once: true });
        replace(frame, image);
      } else {
        replace(frame, el("span", { class: "letters", "aria-hidden": "true" }, [...title].slice(0, 2).join("")));
      }
    })
    .catch(() => replace(frame, el("span", { class: "letters", "aria-hidden": "true" }, "?")));
  const near = 1 - hit.distance / nBits;
  return el(
    "li",
    { class: `card ${mark && "marked"}` },
    frame,
    el(
      "div",
      { class: "body" },
      mark ? el("p", { class: "mark" }, mark) : null,
      el("h3", { title: String(hit.id) }, title),
      svg(
        "svg",
        { class: "nearness", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { width: 100, height: 4, class: "track" }),
        svg("rect", { width: (100 * near).toFixed(1), height: 4, class: "value" }),
      ),
      el(
        "p",
        { class: "numbers" },
        el("span", { title: "Hamming distance: bits that differ" }, `${hit.distance} of ${nBits} bits`),
        el("span", { title: "Score: the cosine of query and code" }, hit.score.toFixed(2)),
      ),
      el("div", { class: "chips small" }, hit.labels.map((name) => labelChip(name, () => acts.label(name)))),
      el(
        "button",
        { type: "button", class: "like", "aria-label": `More like ${title}`, onclick: () => acts.like(hit) },
        "More like this",
      ),
    ),
  );
}
