// Hits as cards. Hits that a search cannot tell apart are one card that opens.

import * as address from "./address.js";
import { el, labelChip, number, svg } from "./dom.js";
import { pictureOf } from "./pictures.js";
import { whyOf } from "./why.js";

const TOGETHER = 3;
const LABELS = 4;
const HEADLINE = 120;
const TITLES = ["title", "name", "caption", "headline"];
const TEXTS = ["text", "caption", "description", "summary", "body"];

const textual = (value) => typeof value === "string" && value.trim() !== "";

const stem = (path) => path.slice(path.lastIndexOf("/") + 1).replace(/\.[^.]+$/, "");

// The first line of a text, as a headline.
function headline(text) {
  const [line] = text.trim().split("\n");
  return line.length <= HEADLINE ? line : `${line.slice(0, HEADLINE).replace(/\s+\S*$/, "")} …`;
}

// What an item is called: its title, else its caption; a file name is no title where there is a caption.
export function titleOf(found) {
  const named = TITLES.map((each) => found.payload?.[each]).find(textual);
  const isFile = named !== undefined && /\.\w{2,5}$/.test(String(found.id)) && stem(named) === stem(String(found.id));
  if (named !== undefined && !isFile) return named;
  const caption = TEXTS.map((each) => (each === "text" ? found.text : found.payload?.[each])).find(textual);
  return caption === undefined ? named ?? String(found.id) : headline(caption);
}

// The id, to be shown below a headline that says something else.
export const fileOf = (found) => (stem(titleOf(found)) === stem(String(found.id)) ? "" : String(found.id));

// What the item says beside its title: the text that is kept, or a field that is called like one,
// without a first line that repeats the title.
export function textOf(found) {
  const title = titleOf(found).trim();
  const beside = (text) => {
    const whole = text.trim();
    if (whole === title) return "";
    return whole.startsWith(`${title}\n`) ? whole.slice(title.length).trim() : text;
  };
  const texts = [found.text, ...TEXTS.map((each) => found.payload?.[each])];
  return texts.filter(textual).map(beside).find(textual) || "";
}

// A name that may break after the signs between its words, not within them.
export const breaking = (name) => name.split(/(?<=[/_.-])/).flatMap((part, at) => (at ? [el("wbr"), part] : [part]));

// Hits in order, in runs of equal scores; a run of few is left as it is.
export function runsOf(hits) {
  const runs = [];
  for (const hit of hits) {
    const last = runs.at(-1);
    if (last && last[0].score === hit.score) last.push(hit);
    else runs.push([hit]);
  }
  return runs.flatMap((run) => (run.length < TOGETHER ? run.map((hit) => [hit]) : [run]));
}

// How many of the hits that follow one have its score: -1 for all of them.
export const sameRun = (hit, others) => others.findIndex((each) => each.score !== hit.score);

export const runName = (n, more) => `${number(n)}${more ? "+" : ""} alike`;

function scoreOf(hit, nBits) {
  const told = `Score, from 0 to 1${hit.tied ? "; a neighbour has the same" : ""}. ${hit.distance} of ${nBits} bits differ`;
  return el(
    "div",
    { class: "foot", title: told },
    svg(
      "svg",
      { class: "nearness", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { width: 100, height: 4, class: "track" }),
      svg("rect", { width: (100 * hit.score).toFixed(1), height: 4, class: "value" }),
    ),
    el("p", { class: "numbers" }, el("span", {}, hit.tied ? "tied at" : "score"), el("span", {}, hit.score.toFixed(2))),
  );
}

export function labelChips(found, acts, most = Infinity) {
  const given = found.labels.map((name) => labelChip(name, () => acts.label(name)));
  const predicted = (found.predicted || []).map((each) => {
    const chip = labelChip(each, () => acts.label(each, true));
    chip.classList.add("predicted");
    chip.title = "Predicted: nobody has given it this label";
    return chip;
  });
  const all = [...given, ...predicted];
  const left = all.length - most;
  return left > 0 ? [...all.slice(0, most), el("span", { class: "rest" }, `+${left}`)] : all;
}

// acts: { state, open, like, label }
export function card(hit, nBits, acts, mark = "") {
  const title = titleOf(hit);
  const text = textOf(hit);
  const file = fileOf(hit);
  const target = { ...acts.state(), item: hit.id };
  return el(
    "li",
    { class: `card ${mark && "marked"} ${hit.weak ? "weak" : ""}` },
    pictureOf(hit.id, title),
    el(
      "div",
      { class: "body" },
      mark ? el("p", { class: "mark" }, mark) : null,
      el(
        "h3",
        { title: String(hit.id) },
        el("a", { class: "open", href: address.write(target), onclick: (event) => address.follow(event, target) }, ...breaking(title)),
      ),
      file ? el("p", { class: "file", title: file }, file) : null,
      text ? el("p", { class: "snippet" }, text) : null,
      hit.looks?.length ? el("p", { class: "snippet" }, `looks like: ${hit.looks.join(", ")}`) : null,
      el("div", { class: "chips small" }, labelChips(hit, acts, LABELS)),
      hit.score === undefined ? null : scoreOf(hit, nBits),
      hit.score === undefined ? null : whyOf(hit),
      el(
        "button",
        { type: "button", class: "like", "aria-label": `More like ${title}`, onclick: () => acts.like(hit) },
        "More like this",
      ),
    ),
  );
}

// One card for a run of hits; `open` replaces it by all of them.
export function stack(run, n, more, open) {
  const [first] = run;
  const title = titleOf(first);
  return el(
    "li",
    { class: `card stack ${first.weak ? "weak" : ""}` },
    el("div", { class: "minis", "aria-hidden": "true" }, run.slice(0, 4).map((hit) => pictureOf(hit.id, titleOf(hit), { kind: "mini" }))),
    el(
      "div",
      { class: "body" },
      el("h3", {}, el("button", { type: "button", class: "open", "aria-expanded": "false", onclick: open }, runName(n, more))),
      el("p", { class: "snippet" }, `${run.slice(0, 3).map(titleOf).join(", ")} …`),
      el("div", { class: "foot" }, el("p", { class: "numbers" }, el("span", { title: "Their codes are equally near: nothing tells them apart" }, "tied"), el("span", { title: "Score, from 0 to 1" }, first.score.toFixed(2)))),
      el("span", { class: "like", "aria-hidden": "true" }, "Show them"),
    ),
  );
}

// Arrow keys move between cards, as they lie on the screen.
export function arrowKeys(list) {
  list.addEventListener("keydown", (event) => {
    const here = event.target.closest(".card");
    if (!here || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const cards = [...list.querySelectorAll(".card")];
    const next = nextTo(here, cards, event.key);
    if (!next) return;
    event.preventDefault();
    next.querySelector(".open").focus();
    next.scrollIntoView({ block: "nearest" });
  });
}

function nextTo(here, cards, key) {
  const at = cards.indexOf(here);
  if (key === "ArrowRight") return cards[at + 1];
  if (key === "ArrowLeft") return cards[at - 1];
  const down = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!down) return undefined;
  const beyond = cards.filter((each) => (each.offsetTop - here.offsetTop) * down > 0);
  const cost = (each) =>
    1e4 * Math.abs(each.offsetTop - here.offsetTop) + Math.abs(each.offsetLeft - here.offsetLeft);
  return beyond.sort((a, b) => cost(a) - cost(b))[0];
}
