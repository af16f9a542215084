// Starting the page, and moving between its views.

import * as add from "./add.js";
import * as api from "./api.js";
import { $, plural, showError } from "./dom.js";
import * as search from "./search.js";
import * as stream from "./stream.js";

const VIEWS = ["search", "stream", "add"];

function showFacts(stats) {
  $("#facts").textContent = [
    plural(stats.n_items, "item"),
    plural(stats.n_classes, "class", "classes"),
    plural(stats.n_rounds, "round"),
    `${stats.n_bits} bits`,
  ].join(" · ");
}

function show() {
  const wanted = location.hash.slice(1);
  const view = VIEWS.includes(wanted) ? wanted : "search";
  for (const each of VIEWS) {
    $(`#view-${each}`).hidden = each !== view;
    const link = $(`nav a[href="#${each}"]`);
    if (each === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showError(null);
  document.title = `${$(`#title-${view}`).textContent} – oasis`;
  if (view === "stream") stream.show(search.actions);
  if (view === "search") $("#query").focus({ preventScroll: true });
}

async function refresh() {
  const [stats, classes] = await Promise.all([api.stats(), api.classes()]);
  showFacts(stats);
  search.showClasses(classes);
  add.showKnown(classes);
}

async function start() {
  try {
    const stats = await api.stats();
    const classes = await api.classes();
    showFacts(stats);
    search.start(stats, classes);
    add.start(stats, classes, search.actions, refresh);
  } catch (problem) {
    showError(problem);
    return;
  }
  window.addEventListener("hashchange", show);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    location.hash = "#search";
    $("#query").focus();
  });
  show();
  document.body.dataset.ready = "yes";
}

start();
