// One item, opened: its picture, all that is known of it, and what can be done with it.

import { about, refresh } from "./about.js";
import * as address from "./address.js";
import * as api from "./api.js";
import { $, el, replace, svg } from "./dom.js";
import { deleteButton, labelEditor } from "./edit.js";
import { pictureOf } from "./pictures.js";
import { breaking, fileOf, labelChips, textOf, titleOf } from "./results.js";
import * as search from "./search.js";

let open = null;

export function start() {
  const dialog = $("#detail");
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    leave();
  });
  // outside of the sheet is the dialog itself
  dialog.addEventListener("click", (event) => event.target === dialog && leave());
  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
}

// Back to where it was opened from; a page that began with it goes on to its search.
function leave() {
  if (address.cameFromHere()) history.back();
  else address.go({ ...address.read(), item: undefined }, { replace: true });
}

function step(by) {
  const hits = search.shownHits();
  const at = hits.findIndex((hit) => hit.id === open);
  const next = at < 0 ? undefined : hits[at + by];
  if (next) address.go({ ...address.read(), item: next.id }, { replace: true });
}

export async function show(state) {
  const dialog = $("#detail");
  if (state.item === undefined) {
    const was = open;
    open = null;
    if (dialog.open) {
      dialog.close();
      const hits = search.shownHits();
      const rank = hits.findIndex((hit) => hit.id === was);
      if (rank >= 0) search.focusHit(rank);
    }
    return;
  }
  if (open === state.item && dialog.open) return;
  open = state.item;
  const id = state.item;
  replace($("#detail-body"), el("p", { class: "hint" }, "Loading…"));
  if (!dialog.open) dialog.showModal();
  try {
    const found = await api.item(id);
    if (open === id) draw(found);
  } catch (problem) {
    if (open !== id) return;
    replace(
      $("#detail-body"),
      head("Not found", id),
      el("div", { class: "alert", role: "alert" }, el("strong", {}, problem.title || "Something went wrong"), el("p", {}, problem.detail)),
    );
  }
}

function head(title, id, file = "") {
  const hits = search.shownHits();
  const at = hits.findIndex((hit) => hit.id === id);
  const arrow = (by, name, sign) =>
    el("button", { type: "button", class: "round", "aria-label": name, title: name, disabled: !hits[at + by], onclick: () => step(by) }, sign);
  return el(
    "div",
    { class: "detail-head" },
    el("div", {}, el("h2", { id: "detail-title" }, ...breaking(title)), file ? el("p", { class: "file" }, file) : null),
    el(
      "div",
      { class: "tools" },
      at >= 0 ? [arrow(-1, "The hit before", "‹"), arrow(1, "The next hit", "›")] : [],
      el("button", { type: "button", class: "round", "aria-label": "Close", title: "Close", onclick: leave }, "×"),
    ),
  );
}

function draw(found) {
  const title = titleOf(found);
  const text = textOf(found);
  const mayWrite = !about.stats.readonly;
  const chips = labelChips(found, search.actions);
  const labels = el("div", { class: "chips" }, chips.length ? chips : el("span", { class: "hint" }, "none"));
  replace(
    $("#detail-body"),
    head(title, found.id, fileOf(found)),
    el(
      "div",
      { class: "detail-columns" },
      pictureOf(found.id, title, { kind: "frame large", load: api.preview }),
      el(
        "div",
        { class: "detail-facts" },
        text ? el("p", { class: "whole" }, text) : null,
        found.looks?.length ? el("p", { class: "hint" }, `Looks like: ${found.looks.join(", ")}`) : null,
        el(
          "section",
          { id: "detail-labels" },
          el("h3", {}, found.predicted.length ? "Predicted labels" : "Labels"),
          mayWrite ? labelEditor(found, labels, relabelled) : labels,
        ),
        fieldsOf(found, title, text),
        el(
          "div",
          { class: "line wrap" },
          el("button", { type: "button", class: "primary", onclick: () => search.actions.like(found) }, "More like this"),
          copyButton(),
          mayWrite ? deleteButton(found, gone) : null,
        ),
      ),
    ),
    el("p", { class: "hint code-line" }, `Id ${found.id} · round ${found.round} · code of ${about.stats.n_bits} bits`, bits(found.code)),
  );
  $("#detail-body").scrollTop = 0;
}

async function relabelled(fresh) {
  search.changed(fresh.id, { labels: fresh.labels, predicted: fresh.predicted });
  if (open === fresh.id) {
    draw(fresh);
    $("#detail-labels .quiet").focus();
  }
  await refresh();
}

async function gone(id) {
  open = null;
  $("#detail").close();
  address.go({ ...address.read(), item: undefined }, { replace: true });
  search.changed(id, null);
  $("#search-status").textContent = "Deleted.";
  await refresh();
}

function copyButton() {
  const button = el("button", { type: "button" }, "Copy link");
  button.addEventListener("click", async () => {
    const link = new URL(address.write({ view: "search", item: open }), location.href).href;
    try {
      await navigator.clipboard.writeText(link);
      button.textContent = "Copied";
    } catch {
      button.replaceWith(el("input", { value: link, readonly: true, "aria-label": "Link to this item" }));
    }
  });
  return button;
}

function fieldsOf(found, title, text) {
  const rows = Object.entries(found.payload).filter(([, value]) => value !== title && value !== text);
  if (!rows.length) return null;
  return el(
    "section",
    {},
    el("h3", {}, "Fields"),
    el("dl", { class: "fields" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, shown(value))]).flat()),
  );
}

function shown(value) {
  if (typeof value === "string" && /^https?:\/\//.test(value)) {
    return el("a", { href: value, rel: "noopener noreferrer", target: "_blank" }, value);
  }
  if (Array.isArray(value) && value.every((each) => ["string", "number"].includes(typeof each))) return value.join(", ");
  return value !== null && typeof value === "object" ? el("code", {}, api.toJson(value)) : String(value);
}

// The code as it is stored: a square a bit.
function bits(code) {
  const bytes = Uint8Array.from(atob(code), (each) => each.charCodeAt(0));
  const width = Math.min(64, 8 * bytes.length);
  const rows = Math.ceil((8 * bytes.length) / width);
  let path = "";
  bytes.forEach((byte, at) => {
    for (let bit = 0; bit < 8; bit += 1) {
      const place = 8 * at + bit;
      if (byte & (1 << bit)) path += `M${place % width},${Math.floor(place / width)}h.8v.8h-.8z`;
    }
  });
  return svg("svg", { class: "bits", viewBox: `0 0 ${width} ${rows}`, role: "img", "aria-label": "The bits of the code" }, svg("path", { d: path }));
}
