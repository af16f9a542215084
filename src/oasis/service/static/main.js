// Starting the page, and moving between its views.

import { about, refresh, watch } from "./about.js";
import * as add from "./add.js";
import * as address from "./address.js";
import * as detail from "./detail.js";
import * as duplicates from "./duplicates.js";
import { $, plural, showError } from "./dom.js";
import * as label from "./label.js";
import * as map from "./map.js";
import * as search from "./search.js";
import * as stream from "./stream.js";

function showFacts({ stats }) {
  $("#facts").textContent = [
    plural(stats.n_items, "item"),
    plural(stats.n_classes, "class", "classes"),
    plural(stats.n_rounds, "round"),
    `${stats.n_bits} bits`,
  ].join(" · ");
}

let view = null;

const SHOWN = {
  label: () => label.show(),
  map: () => map.show(),
  duplicates: () => duplicates.show(),
  stream: () => stream.show(search.actions),
};

function show(state) {
  const was = view;
  const moved = was !== state.view;
  view = state.view;
  for (const each of address.VIEWS) {
    $(`#view-${each}`).hidden = each !== view;
    const link = $(`nav a[data-view="${each}"]`);
    if (each === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (moved) showError(null);
  const title = view === "search" && state.q ? state.q : $(`#title-${view}`).textContent;
  document.title = `${title} – oasis`;
  if (moved && was === "label") label.leave();
  if (moved && view in SHOWN) SHOWN[view]();
  if (view === "search") search.show(state);
  detail.show(state);
  const typing = matchMedia("(hover: hover)").matches;
  if (view === "search" && moved && typing && state.item === undefined) $("#query").focus({ preventScroll: true });
}

async function start() {
  try {
    await refresh();
  } catch (problem) {
    showError(problem);
    return;
  }
  watch(showFacts);
  search.start();
  detail.start();
  add.start();
  label.start();
  map.start();
  for (const link of document.querySelectorAll("[data-view]")) {
    link.addEventListener("click", (event) => {
      // the search comes back as it was left
      const back = link.dataset.view === "search" && view !== "search" ? search.actions.state() : {};
      address.follow(event, { ...back, view: link.dataset.view, item: undefined });
    });
  }
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (view !== "search") address.go({ ...search.actions.state(), view: "search", item: undefined });
    $("#query").focus();
    $("#query").select();
  });
  address.onchange(show);
  show(address.read());
  document.body.dataset.ready = about.stats ? "yes" : "";
}

start();
