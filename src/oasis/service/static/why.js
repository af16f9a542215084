// Why a hit was found, in a line under it: asked for when it comes near the screen, many at once.

import * as api from "./api.js";
import { el, replace } from "./dom.js";

const AT_ONCE = 24;
const AT_ONCE_WITH_PICTURE = 4; // the service looks at the picture for each
const LEAST = 0.05;

const PARTS = {
  class: (what) => (what ? `the class “${what}”` : "its kind"),
  words: (what) => `the word “${what}”`,
  meaning: () => "what it is about",
  same: () => "it is the same",
  content: (what) => ({ image: "likeness to the picture", text: "likeness to the text" })[what] || "its content",
};

let question = null; // { text, file, told }, or null where hits are not explained
let waiting = [];
let timer = 0;
const places = new WeakMap();

const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    waiting.push(target);
  }
  clearTimeout(timer);
  if (waiting.length) timer = setTimeout(ask, 60);
});

// Hits that are drawn from now on are those of this question.
export function about(next) {
  question = next && { ...next, told: new Map() };
  waiting = [];
}

export function whyOf(hit) {
  if (!question) return null;
  const line = el("p", { class: "why" });
  if (question.told.has(hit.id)) {
    draw(line, question.told.get(hit.id));
    return line;
  }
  places.set(line, { id: hit.id, question });
  near.observe(line);
  return line;
}

async function ask() {
  const some = waiting.splice(0, question?.file ? AT_ONCE_WITH_PICTURE : AT_ONCE);
  const mine = some.filter((line) => places.get(line).question === question && line.isConnected);
  if (mine.length) {
    const { text, file, told } = question;
    try {
      const found = await api.explain({ ids: mine.map((line) => places.get(line).id), ...(text ? { text } : {}) }, [file]);
      for (const each of found) told.set(each.id, each);
      mine.forEach((line, at) => draw(line, found[at]));
    } catch (problem) {
      for (const line of mine) replace(line, `Why: not told (${problem.title || problem})`);
    }
  }
  if (waiting.length) await ask();
}

function draw(line, { parts }) {
  const told = parts.map(([source, what, , share]) => ({ source, what, share }));
  const most = told.filter((each) => each.share >= LEAST).sort((a, b) => b.share - a.share).slice(0, 3);
  const words = most.map(({ source, what, share }) => `${Math.round(100 * share)} % ${PARTS[source]?.(what) ?? source}`);
  replace(line, words.length ? [el("span", { class: "sr" }, "Why: "), words.join(", ")] : []);
}
