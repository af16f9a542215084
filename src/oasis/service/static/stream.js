// The view of the stream: what came in which round, and how well it was known before.

import * as api from "./api.js";
import { area, bars, lines, topOf, topOfCounts } from "./charts.js";
import { $, el, labelChip, number, replace, showError } from "./dom.js";

const ROWS = 200;
const DRAWN = 400;
const ENOUGH = 100;

const share = (value) => (value === null ? "–" : value.toFixed(3));
const seconds = (value) => String(Number(value.toPrecision(2)));

// Means weighted by labelled items, so that a round of one item does not draw 1.00: each is of the
// rounds before it, too, back to ENOUGH items.
function weighted(rounds, name) {
  return rounds.map((each, at) => {
    if (each[name] === null) return null;
    let [sum, n] = [0, 0];
    for (let back = at; back >= 0 && n < ENOUGH; back -= 1) {
      if (rounds[back][name] === null) continue;
      sum += rounds[back][name] * rounds[back].n_labelled;
      n += rounds[back].n_labelled;
    }
    return sum / n;
  });
}

function mean(rounds, name) {
  const n = rounds.reduce((sum, each) => sum + each.n_labelled, 0);
  return rounds.reduce((sum, each) => sum + each[name] * each.n_labelled, 0) / n;
}

export async function show(acts) {
  try {
    const [rounds, classes] = await Promise.all([api.rounds(), api.classes()]);
    draw(rounds);
    table(rounds);
    replace(
      $("#classes"),
      classes.filter((each) => each.n || each.n_predicted).map((each) => labelChip(each.name, () => acts.label(each.name), `${number(each.n)}${each.round ? ` · round ${each.round}` : ""}`)),
    );
  } catch (problem) {
    showError(problem);
  }
}

function draw(all) {
  if (!all.length) {
    replace($("#charts"), el("p", { class: "hint" }, "Nothing has been learned yet: add an item with a label."));
    return;
  }
  let known = 0;
  const counts = all.map((each) => (known += each.new_classes.length));
  const first = Math.max(0, all.length - DRAWN);
  const rounds = all.slice(first);
  const numbers = rounds.map((each) => each.number);
  const [classes, durations, items] = [counts.slice(first), rounds.map((each) => each.seconds), rounds.map((each) => each.n)];
  const judged = rounds.filter((each) => each.precision !== null);
  const summary = judged.length
    ? `on average ${mean(judged, "precision").toFixed(2)}, chance ${mean(judged, "chance").toFixed(2)}`
    : "no round could be judged yet";
  const series = [
    { name: "chance", kind: "chance", values: weighted(rounds, "chance") },
    { name: "precision", kind: "own", values: weighted(rounds, "precision") },
  ];
  replace(
    $("#charts"),
    figure(
      `Precision among the first ten hits, before learning, over the last ${ENOUGH} labelled items`,
      lines(`Precision among ten hits by round: ${summary}`, numbers, series, 1, (value) => value.toFixed(2)),
      el("span", { class: "key own" }, "precision@10"),
      el("span", { class: "key chance" }, "chance"),
    ),
    figure(
      "Classes so far",
      area(`Classes so far: ${number(known)}`, numbers, classes, topOfCounts(classes), number),
    ),
    figure(
      "Seconds a round took",
      bars("Seconds by round", numbers, durations, topOf(durations), seconds),
    ),
    figure(
      "Items in a round",
      bars("Items by round", numbers, items, topOfCounts(items), number),
    ),
  );
}

function figure(caption, drawing, ...keys) {
  return el("figure", { class: "panel" }, el("figcaption", {}, caption, ...keys), drawing);
}

function table(rounds) {
  const cell = (text, kind = "") => el("td", { class: kind }, text);
  const rows = rounds.slice(-ROWS).reverse().map((each) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, String(each.number)),
      cell(new Date(1000 * each.time).toLocaleString()),
      cell(number(each.n), "n"),
      cell(share(each.precision), "n"),
      cell(share(each.chance), "n"),
      cell(each.seconds.toFixed(2), "n"),
      cell(each.new_classes.join(", ")),
    ),
  );
  replace($("#rounds tbody"), rows);
}
