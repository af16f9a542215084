// The view that adds one item, and searches with it at once; bulk.js adds many.

import { about, refresh, takes, takesItems, watch } from "./about.js";
import * as api from "./api.js";
import * as bulk from "./bulk.js";
import { $, el, number, plural, replace, showError } from "./dom.js";
import { labelsIn } from "./edit.js";
import { pictureField } from "./picture.js";
import { card } from "./results.js";
import * as search from "./search.js";

const LOOK = 12;
const DEEP = 500;

let picture = null;

export function start() {
  picture = pictureField($("#add-picture"), { name: "add-file", label: "Picture" });
  newId();
  bulk.start();
  $("#add-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = $("#add-form button[type=submit]");
    button.disabled = true;
    try {
      await add();
    } finally {
      button.disabled = false;
    }
  });
  watch(({ stats, classes }) => {
    $("#add-picture").hidden = !takes("image");
    $("#add-text").closest(".field").hidden = !takes("text");
    const reason = stats.readonly
      ? "This service only reads."
      : !takesItems()
        ? "This collection was filled with ready features, so items cannot be added here: use the API."
        : "";
    $("#add-closed").textContent = reason;
    $("#add-closed").hidden = !reason;
    for (const each of $("#add-form").elements) each.disabled = Boolean(reason);
    replace($("#known-labels"), classes.map((each) => el("option", { value: each.name })));
  });
}

function newId() {
  $("#add-id").value = `item-${crypto.getRandomValues(new Uint32Array(2)).join("").slice(0, 12)}`;
}

async function add() {
  showError(null);
  const status = $("#add-status");
  const [title, text, id] = ["title", "text", "id"].map((name) => $(`#add-${name}`).value.trim());
  if (!text && !picture.file) {
    showError({ title: "Nothing to learn from", detail: "Give the item a text, a picture, or both." });
    return;
  }
  status.textContent = "Learning…";
  replace($("#add-results"));
  const item = { id, labels: labelsIn($("#add-labels").value), payload: title ? { title } : {} };
  if (text) item.text = text;
  try {
    const answer = await api.ingest({ items: [item] }, [picture.file]);
    if (answer.rejected.length) {
      status.textContent = "";
      showError({ title: "The item was not taken", detail: answer.rejected[0].reason });
      return;
    }
    status.textContent = `Added. The collection has ${plural(answer.n_items, "item")} now.`;
    await refresh();
    await find(id, text, picture.file);
    $("#add-form").reset();
    picture.set(null);
    newId();
  } catch (problem) {
    status.textContent = "";
    showError(problem);
  }
}

// Equal codes come oldest first, so a new item may stand behind many that are as near.
async function find(id, text, file) {
  const found = await api.search({ items: [text ? { text } : {}], k: DEEP }, [file]);
  const place = found.findIndex((hit) => hit.id === id);
  const hits = found.slice(0, LOOK);
  if (place >= LOOK) hits.unshift(found[place]);
  $("#add-status").textContent +=
    place < 0
      ? ` A search with it does not find it among the first ${number(DEEP)}.`
      : ` A search with it finds it at place ${number(place + 1)}.`;
  const acts = { ...search.actions, state: () => ({ view: "add" }) };
  replace(
    $("#add-results"),
    hits.map((hit) => card(hit, about.stats.n_bits, acts, hit.id === id ? "just added" : "")),
  );
}
