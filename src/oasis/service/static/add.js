// The view that adds an item, and searches with it at once.

import * as api from "./api.js";
import { $, el, number, replace, showError } from "./dom.js";
import { pictureField } from "./picture.js";
import { card } from "./search.js";

const LOOK = 12;
const DEEP = 500;

let facts = null;
let picture = null;

export function start(stats, classes, acts, onadded) {
  facts = stats;
  const fields = Object.values(stats.extractor || {}).map((entry) => entry.field);
  const raw = stats.extractor === null ? ["text", "image"] : fields;
  picture = pictureField($("#add-picture"), { name: "add-file", label: "Picture" });
  const fresh = stats.extractor === null && stats.n_rounds === 0;
  $("#add-picture").hidden = !raw.includes("image");
  const reason = stats.readonly
    ? "This service only reads."
    : !fresh && stats.extractor === null
      ? "This collection was filled with ready features, so items cannot be added here: use the API."
      : "";
  if (reason) {
    $("#add-status").textContent = reason;
    for (const each of $("#add-form").elements) each.disabled = true;
  }
  newId();
  showKnown(classes);
  $("#add-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = $("#add-form button[type=submit]");
    button.disabled = true;
    try {
      await add(acts, onadded);
    } finally {
      button.disabled = false;
    }
  });
}

export function showKnown(classes) {
  replace($("#known-labels"), classes.map((each) => el("option", { value: each.name })));
}

function newId() {
  $("#add-id").value = `item-${crypto.getRandomValues(new Uint32Array(2)).join("").slice(0, 12)}`;
}

async function add(acts, onadded) {
  showError(null);
  const status = $("#add-status");
  const [title, text, id] = ["title", "text", "id"].map((name) => $(`#add-${name}`).value.trim());
  const labels = $("#add-labels").value.split(",").map((each) => each.trim()).filter(Boolean);
  if (!text && !picture.file) {
    showError({ title: "Nothing to learn from", detail: "Give the item a text, a picture, or both." });
    return;
  }
  status.textContent = "Learning…";
  replace($("#add-results"));
  const item = { id, labels: [...new Set(labels)], payload: title ? { title } : {} };
  if (text) item.text = text;
  try {
    const answer = await api.ingest({ items: [item] }, [picture.file]);
    if (answer.rejected.length) {
      status.textContent = "";
      showError({ title: "The item was not taken", detail: answer.rejected[0].reason });
      return;
    }
    status.textContent = `Added. The collection has ${number(answer.n_items)} items now.`;
    await find(id, text, picture.file, acts);
    $("#add-form").reset();
    picture.set(null);
    newId();
    await onadded();
  } catch (problem) {
    status.textContent = "";
    showError(problem);
  }
}

// Equal codes come oldest first, so a new item may stand behind many that are as near.
async function find(id, text, file, acts) {
  const found = await api.search({ items: [text ? { text } : {}], k: DEEP }, [file]);
  const place = found.findIndex((hit) => hit.id === id);
  const hits = found.slice(0, LOOK);
  if (place >= LOOK) hits.unshift(found[place]);
  $("#add-status").textContent +=
    place < 0
      ? ` A search with it does not find it among the first ${number(DEEP)}.`
      : ` A search with it finds it at place ${number(place + 1)}.`;
  replace(
    $("#add-results"),
    hits.map((hit) => card(hit, facts.n_bits, acts, hit.id === id ? "just added" : "")),
  );
}
