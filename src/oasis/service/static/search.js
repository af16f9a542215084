// The view that searches: one box, a picture, how exact, filters; and the hits.

import { about, asks, isEmpty, watch } from "./about.js";
import * as address from "./address.js";
import * as api from "./api.js";
import { $, el, labelChip, plural, replace, showError } from "./dom.js";
import * as filters from "./filters.js";
import { keep, kept } from "./kept.js";
import { pictureField } from "./picture.js";
import { arrowKeys, card, runsOf, sameRun, stack, titleOf } from "./results.js";
import * as why from "./why.js";

const PAGE = 48;
const MOST = 1000;
const SUGGESTED = 16;
const SNIPPET = 160;
const LATEST = 24;

let picture = null;
let state = null;
let file = null;
let likeTitle = "";
let hits = [];
let opened = new Set();
let beyond = null;
let turn = 0;

export const shownHits = () => hits;

export const actions = {
  state: () => state ?? address.read(),
  like: (found) => {
    address.go({ view: "search", like: found.id, content: state?.content, label: state?.label, predicted: state?.predicted, where: state?.where });
    window.scrollTo({ top: 0 });
  },
  label: (name, predicted = false) => {
    const now = address.read();
    const base = now.view === "search" && isQuestion(now) ? now : { view: "search" };
    address.go({ ...base, label: name, predicted, item: undefined, n: 0 });
  },
};

export function start() {
  picture = pictureField($("#search-picture"), {
    name: "search-file",
    label: "Search with a picture",
    zone: $("#search-form"),
    preview: $("#search-preview"),
    onchange: async (chosen) => submit(chosen ? await keep(chosen) : ""),
  });
  $("#search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  const slider = $("#content");
  slider.addEventListener("input", showSlider);
  slider.addEventListener("change", () => {
    slider.dataset.set = "yes";
    showSlider();
    resubmit({ content: Number(slider.value) });
  });
  $("#content-reset").addEventListener("click", () => {
    setSlider(null);
    resubmit({ content: null });
    slider.focus();
  });
  $("#show-more").addEventListener("click", () => load(PAGE));
  filters.start((changed) => resubmit(changed));
  arrowKeys($("#results"));
  watch(describeCollection);
}

function describeCollection({ stats, classes }) {
  $("#search-picture").hidden = !asks("image");
  $("#exactness").hidden = !stats.n_content_bits;
  $("#results").classList.toggle("texts", asks("text") && !asks("image"));
  $("#query").placeholder = asks("text") || isEmpty() ? "Search for anything" : "A label, or a word near to one";
  const frequent = classes.filter((each) => each.n).sort((a, b) => b.n - a.n).slice(0, SUGGESTED);
  replace(
    $("#suggestions"),
    frequent.map((each) => labelChip(each.name, () => address.go({ view: "search", label: each.name }), `${each.n}`)),
  );
  if (state && !isQuestion(state)) welcome();
}

function welcome() {
  replace($("#results"));
  $("#show-more").hidden = true;
  $("#weak").hidden = true;
  $("#meant").hidden = true;
  const some = $("#suggestions").childElementCount > 0;
  $("#suggestions").hidden = !some;
  if (!isEmpty()) {
    $("#search-status").textContent = some ? "Or look through the most frequent labels:" : "";
    showLatest();
    return;
  }
  const add = { view: "add" };
  replace(
    $("#search-status"),
    "This collection is empty. ",
    el("a", { href: address.write(add), onclick: (event) => address.follow(event, add) }, "Add the first items"),
    ", and search for them here.",
  );
}

async function showLatest() {
  const mine = ++turn;
  try {
    const items = await api.latest(LATEST);
    if (mine !== turn) return;
    hits = items;
    why.about(null);
    replace($("#results"), el("li", { class: "heading" }, el("h2", {}, "The latest")), items.map((each) => card(each, about.stats.n_bits, actions)));
  } catch (problem) {
    if (mine === turn) showError(problem);
  }
}

// -- the form and the address -----------------------------------------------------------------

const isQuestion = (question) => Boolean(question.q || question.picture || question.label || question.like !== undefined);

function showSlider() {
  const slider = $("#content");
  const isSet = slider.dataset.set === "yes";
  const value = Number(slider.value);
  const words = value === 0 ? "the kind alone" : value === 1 ? "exactly this alone" : `${Math.round(100 * value)} % exactly this`;
  slider.setAttribute("aria-valuetext", isSet ? words : "balanced");
  $("#content-value").textContent = isSet ? words : "balanced";
  $("#content-reset").hidden = !isSet;
}

function setSlider(value) {
  const slider = $("#content");
  slider.value = value ?? 0.5;
  slider.dataset.set = value === null ? "" : "yes";
  showSlider();
}

function fromForm() {
  const slider = $("#content");
  const isSet = slider.dataset.set === "yes" && about.stats.n_content_bits;
  return {
    view: "search",
    q: $("#query").value.trim(),
    content: isSet ? Number(slider.value) : null,
    picture: state?.picture || "",
    ...filters.chosen(),
  };
}

function submit(key) {
  const question = fromForm();
  if (key !== undefined) question.picture = key;
  if (!isQuestion(question)) {
    $("#query").focus();
    if (!isEmpty()) {
      address.go({ view: "search" });
      $("#search-status").textContent = "Type some words, choose a picture, or take a label:";
    }
    return;
  }
  address.go(question);
}

// The same question with another filter or weight; before there is one, nothing is asked yet.
function resubmit(changed) {
  const now = address.read();
  const next = { ...now, ...changed, item: undefined, n: 0 };
  if (isQuestion(next)) address.go(next);
  else if (isQuestion(now)) address.go({ view: "search" });
}

// -- asking -----------------------------------------------------------------------------------

function request(question, offset, k) {
  const where = { ...question.where };
  if (question.label) where.$labels = { has: question.label, predicted: question.predicted };
  const asked = { k, offset, snippet: SNIPPET };
  if (Object.keys(where).length) asked.where = where;
  const weight = about.stats.n_content_bits && question.content !== null ? { content: question.content } : {};
  if (question.like !== undefined) return [{ ...asked, ...weight, like: question.like }, []];
  if (!question.q && !question.picture) return [{ ...asked, words: [question.label] }, []];
  if (!asks("text") && !file) return [{ ...asked, words: [question.q] }, []];
  return [{ ...asked, ...weight, items: [question.q ? { text: question.q } : {}] }, [file]];
}

function describe(question) {
  const also = question.predicted ? ", given or predicted" : "";
  const filter = question.label ? ` with the label “${question.label}”${also}` : "";
  const others = Object.keys(question.where || {}).length ? ", filtered" : "";
  if (question.like !== undefined) return `more like “${likeTitle}”${filter}${others}`;
  const parts = [question.q && `“${question.q}”`, question.picture && "your picture"].filter(Boolean);
  if (!parts.length) return `the label “${question.label}”${also}, most typical first${others}`;
  return parts.join(" and ") + filter + others;
}

const asking = (question) => address.write({ ...question, item: undefined, n: 0 });

// Show what the address asks for; what is shown already is left alone.
export async function show(next) {
  const same = state && asking(state) === asking(next) && hits.length;
  state = next;
  $("#query").value = next.q;
  setSlider(next.content);
  filters.set(next);
  if (same) return;
  showError(null);
  if (!isQuestion(next)) {
    turn += 1;
    hits = [];
    file = null;
    picture.set(null, false);
    $("#results").removeAttribute("aria-busy");
    welcome();
    return;
  }
  file = next.picture ? await kept(next.picture) : null;
  if (state !== next) return;
  picture.set(file, false);
  if (next.picture && !file) {
    replace($("#results"));
    showError({
      title: "The picture of this search is not here",
      detail: "A link does not carry it: pictures stay in the browser that searched. Choose it again.",
    });
    return;
  }
  hits = [];
  opened = new Set();
  if (next.like !== undefined) likeTitle = await titleOfStored(next.like);
  if (state === next) await load(next.n || PAGE);
}

async function titleOfStored(id) {
  try {
    return titleOf(await api.item(id));
  } catch {
    return String(id); // the search itself tells what is wrong
  }
}

async function load(k) {
  const mine = ++turn;
  const question = state;
  const before = hits.length;
  const wanted = Math.min(k, MOST);
  $("#results").setAttribute("aria-busy", "true");
  $("#search-status").textContent = "Searching…";
  try {
    const began = performance.now();
    const [asked, pictures] = request(question, before, wanted);
    const found = await api.search(asked, pictures);
    const spent = Math.max(1, Math.round(performance.now() - began));
    if (mine !== turn) return;
    if (!before) why.about(asked.items ? { text: question.q, file } : null);
    hits = hits.concat(found);
    beyond = found.length < wanted ? { n: 0, more: false } : await countBeyond(question);
    if (mine !== turn) return;
    draw(found.length === wanted);
    showMeant(question);
    if (before) address.note({ ...address.read(), n: Math.min(MOST, hits.length) });
    $("#search-status").textContent = hits.length
      ? `The ${plural(hits.length, "best hit", "best hits")} for ${describe(question)}, in ${spent} ms`
      : `Nothing found for ${describe(question)}`;
    if (before) focusHit(before);
  } catch (problem) {
    if (mine !== turn) return;
    $("#search-status").textContent = "";
    if (!before) replace($("#results"));
    $("#show-more").hidden = true;
    $("#weak").hidden = true;
    showError(problem);
  } finally {
    if (mine === turn) $("#results").removeAttribute("aria-busy");
  }
}

// What was searched instead of words with typing errors, as a link to a search for that.
async function showMeant(question) {
  $("#meant").hidden = true;
  if (!question.q || !asks("text")) return;
  const mine = turn;
  const text = await api.suggest(question.q).catch(() => null); // the hits are there without it
  if (mine !== turn || !text) return;
  const next = { ...question, q: text, item: undefined, n: 0 };
  const link = el("a", { href: address.write(next), onclick: (event) => address.follow(event, next) }, text);
  replace($("#meant"), "Searched for “", link, "”, as nothing here has all of these words.");
  $("#meant").hidden = false;
}

// How many hits that were not loaded are tied with the last one that was.
async function countBeyond(question) {
  if (hits.at(-2)?.score !== hits.at(-1).score) return { n: 0, more: false };
  const [asked, pictures] = request(question, hits.length, MOST);
  const others = await api.search({ ...asked, fields: ["score"], snippet: 0 }, pictures);
  const n = sameRun(hits.at(-1), others);
  return n < 0 ? { n: others.length, more: others.length === MOST } : { n, more: false };
}

// The card that shows the hit of that rank, or the one that it is stacked in.
export function focusHit(rank) {
  const cards = [...$("#results").querySelectorAll(".card")].filter((each) => Number(each.dataset.at) <= rank);
  cards.at(-1)?.querySelector(".open").focus();
}

function draw(mayHaveMore) {
  const nBits = about.stats.n_bits;
  const runs = runsOf(hits);
  const firstWeak = hits.findIndex((hit) => hit.weak);
  const allFlat = hits.length > 0 && hits.every((hit) => hit.score === 0);
  const nothing = allFlat || firstWeak === 0;
  $("#weak").hidden = !nothing;
  const cards = [];
  let rank = 0;
  const put = (element, n) => {
    element.dataset.at = rank;
    rank += n;
    cards.push(element);
  };
  for (const run of runs) {
    const [first] = run;
    if (firstWeak > 0 && first === hits[firstWeak]) {
      cards.push(el("li", { class: "notice" }, "Nothing more like this here. What is nearest all the same:"));
    }
    const extra = run === runs.at(-1) ? beyond : { n: 0, more: false };
    if (run.length === 1 || opened.has(first.id)) {
      for (const hit of run) put(card(hit, nBits, actions), 1);
      continue;
    }
    put(stack(run, run.length + extra.n, extra.more, () => openRun(first, extra)), run.length);
  }
  replace($("#results"), cards);
  $("#suggestions").hidden = hits.length > 0;
  $("#show-more").hidden = !mayHaveMore || hits.length >= MOST;
}

async function openRun(first, extra) {
  opened.add(first.id);
  if (extra.n) await load(Math.min(extra.n, PAGE));
  else draw(!$("#show-more").hidden);
  focusHit(hits.indexOf(first));
}

// An item was deleted or changed: its card goes, or is drawn anew.
export function changed(id, fresh) {
  hits = fresh
    ? hits.map((hit) => (hit.id === id ? { ...hit, ...fresh } : hit))
    : hits.filter((hit) => hit.id !== id);
  if (state && isQuestion(state)) draw(!$("#show-more").hidden);
}
