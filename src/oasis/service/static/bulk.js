// Many items at once: pictures with captions beside them, texts, and lines of JSON, as `oasis
// ingest` takes them. They are sent in batches; what is refused is listed, and the rest goes on.

import { about, refresh, takes, takesItems, watch } from "./about.js";
import * as api from "./api.js";
import { $, el, number, plural, replace } from "./dom.js";
import { labelsIn } from "./edit.js";

const BATCH = 32;
const BATCH_BYTES = 24 << 20;
const LISTED = 200;
const PICTURE = /\.(png|jpe?g|gif|webp|bmp|tiff?)$/i;

let chosen = [];
let running = null;

export function start() {
  const zone = $("#bulk-drop");
  for (const name of ["#bulk-files", "#bulk-folder"]) {
    $(name).addEventListener("change", () => {
      choose([...$(name).files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
      $(name).value = "";
    });
  }
  for (const kind of ["dragenter", "dragover"]) {
    zone.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    choose(await dropped(event.dataTransfer));
  });
  $("#bulk-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("#bulk-stop").addEventListener("click", () => {
    if (running) running.stopped = true;
  });
  watch(() => {
    const open = !about.stats.readonly && takesItems();
    for (const each of $("#bulk-form").elements) each.disabled = !open && each.id !== "bulk-stop";
    if (open) count();
  });
  count();
}

async function dropped(data) {
  const entries = [...data.items].map((each) => each.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...data.files].map((file) => ({ file, path: file.name }));
  return (await Promise.all(entries.map(walk))).flat();
}

async function walk(entry) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ file, path: entry.fullPath.replace(/^\//, "") }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return found;
    for (const each of part) found.push(...(await walk(each)));
  }
}

function choose(files) {
  // files that begin with a dot are not meant
  chosen = files.filter(({ path }) => !path.split("/").some((part) => part.startsWith(".")));
  chosen.sort((a, b) => (a.path < b.path ? -1 : 1));
  $("#bulk-folders").closest(".check").hidden = !chosen.some(({ path }) => path.includes("/"));
  const captions = captionsOf(chosen);
  const bare = chosen.some(({ path }) => PICTURE.test(path) && !captions.has(stem(path)));
  $("#bulk-names").closest(".check").hidden = !bare || !takes("text");
  replace($("#bulk-errors"));
  $("#bulk-report").hidden = true;
  count();
}

function count() {
  $("#bulk-chosen").textContent = chosen.length ? `${plural(chosen.length, "file")} chosen.` : "";
  $("#bulk-form button[type=submit]").disabled = !chosen.length || Boolean(running);
}

// -- files into items ---------------------------------------------------------------------------

const stem = (path) => path.replace(/\.[^./]+$/, "");
const base = (path) => path.slice(path.lastIndexOf("/") + 1);

function labelsOf(path, common, byFolder) {
  // the folder that was chosen is not part of what lies in it
  const folders = byFolder ? path.split("/").slice(1, -1) : [];
  return [...new Set([...folders, ...common])];
}

const captionsOf = (files) =>
  new Map(files.filter(({ path }) => /\.txt$/i.test(path)).map((each) => [stem(each.path), each.file]));

// "red-doubleDecker_2 IMG_2031" becomes "red double Decker 2", as `oasis ingest --text-from-names` has it.
const IDENTIFIER =
  /(?<!\S)(?:[\da-f]{8}(?: [\da-f]{4}){3} [\da-f]{12}|(?:img|dsc[nf]?|mvi|pxl|vid)(?: \d+)+|[a-z]{1,4}\d{4,}|\d{5,}|0\d+|(?=[a-f]*\d)[\da-f]{8,})(?!\S)/gi;
const nameWords = (name) => {
  const words = name.replace(/[^\p{L}\p{N}]+/gu, " ").trim().replace(IDENTIFIER, " ");
  return words.replace(/(?<=[a-z])(?=[A-Z])/g, " ").replace(/ +/g, " ").trim();
};

async function itemsOf(files, common, { byFolder, byName }) {
  const items = [];
  const errors = [];
  const unkept = new Set();
  const captions = captionsOf(files);
  const pictured = new Set(files.filter(({ path }) => PICTURE.test(path)).map(({ path }) => stem(path)));
  for (const { file, path } of files) {
    const item = { id: path, labels: labelsOf(path, common, byFolder), payload: { title: base(stem(path)) } };
    if (PICTURE.test(path)) {
      const caption = captions.get(stem(path));
      const written = caption ? (await caption.text()).trim() : "";
      const text = takes("text") ? written || (byName ? nameWords(item.payload.title) : "") : "";
      items.push({ item: text ? { ...item, text } : item, picture: file, size: file.size });
    } else if (/\.txt$/i.test(path)) {
      if (pictured.has(stem(path))) continue; // a caption, taken with its picture
      const text = (await file.text()).trim();
      if (text) items.push({ item: { ...item, text }, picture: null, size: file.size });
      else errors.push([path, "the file is empty"]);
    } else if (/\.(jsonl|ndjson)$/i.test(path)) {
      await lines(file, path, common, { items, errors, unkept });
    } else {
      errors.push([path, "it is neither a picture, a .txt nor a .jsonl"]);
    }
  }
  return { items, errors, unkept };
}

async function lines(file, path, common, { items, errors, unkept }) {
  const rows = (await file.text()).split("\n");
  rows.forEach((row, at) => {
    if (!row.trim()) return;
    const place = `${path}, line ${at + 1}`;
    try {
      const { id, text, labels = [], payload = {}, ...others } = api.fromJson(row);
      if (typeof text !== "string" || !text) throw new Error("it has no text");
      const named = typeof labels === "string" ? labelsIn(labels) : labels;
      const item = { id: id ?? `${base(path)}:${at + 1}`, text, labels: [...new Set([...named, ...common])], payload };
      items.push({ item, picture: null, size: row.length, place });
      Object.keys(others).forEach((name) => unkept.add(name));
    } catch (error) {
      errors.push([place, error instanceof SyntaxError ? "it is no JSON" : error.message]);
    }
  });
}

function batches(items) {
  const found = [];
  let bytes = 0;
  for (const each of items) {
    const last = found.at(-1);
    if (last && last.length < BATCH && bytes + each.size <= BATCH_BYTES) {
      last.push(each);
      bytes += each.size;
    } else {
      found.push([each]);
      bytes = each.size;
    }
  }
  return found;
}

// -- sending ------------------------------------------------------------------------------------

async function run() {
  const mine = { stopped: false };
  running = mine;
  count();
  const bar = $("#bulk-progress");
  const status = $("#bulk-status");
  $("#bulk-report").hidden = false;
  $("#bulk-stop").hidden = false;
  bar.hidden = false;
  bar.removeAttribute("value");
  status.textContent = "Reading the files…";
  let [added, done] = [0, 0];
  const refused = [];
  const refuse = (place, reason) => {
    refused.push([place, reason]);
    listErrors(refused);
  };
  listErrors(refused);
  try {
    const how = { byFolder: $("#bulk-folders").checked, byName: $("#bulk-names").checked };
    const { items, errors, unkept } = await itemsOf(chosen, labelsIn($("#bulk-labels").value), how);
    errors.forEach(([place, reason]) => refuse(place, reason));
    bar.max = Math.max(1, items.length);
    bar.value = 0;
    for (const batch of batches(items)) {
      if (mine.stopped) break;
      status.textContent = `Adding… ${number(done)} of ${number(items.length)}`;
      try {
        const answer = await api.ingest({ items: batch.map((each) => each.item) }, batch.map((each) => each.picture));
        added += answer.ingested;
        for (const each of answer.rejected) refuse(batch[each.row].place || String(each.id), each.reason);
      } catch (problem) {
        // nothing of the batch was taken; what is wrong with one item must not cost the others
        if (problem.status !== 422 || batch.length === 1) {
          if (problem.status !== 422) throw problem;
          refuse(batch[0].place || String(batch[0].item.id), problem.detail);
        } else {
          added += await oneByOne(batch, refuse, mine);
        }
      }
      done += batch.length;
      bar.value = done;
    }
    status.textContent = `${told(added, refused.length, mine.stopped ? items.length - done : 0)}${notKept(unkept)}`;
    if (!mine.stopped) chosen = [];
  } catch (problem) {
    status.textContent = `${told(added, refused.length, 0)} Then it went wrong: ${problem.detail || problem}`;
  } finally {
    running = null;
    $("#bulk-stop").hidden = true;
    count();
    if (added) await refresh();
  }
}

async function oneByOne(batch, refuse, mine) {
  let added = 0;
  for (const { item, picture, place } of batch) {
    if (mine.stopped) break;
    try {
      const answer = await api.ingest({ items: [item] }, [picture]);
      added += answer.ingested;
      for (const each of answer.rejected) refuse(place || String(each.id), each.reason);
    } catch (problem) {
      if (problem.status !== 422) throw problem;
      refuse(place || String(item.id), problem.detail);
    }
  }
  return added;
}

function told(added, n, left) {
  const parts = [`${plural(added, "item")} added`];
  if (n) parts.push(`${number(n)} refused`);
  if (left) parts.push(`stopped, ${number(left)} left`);
  return `${parts.join(", ")}.`;
}

function notKept(names) {
  const shown = [...names].slice(0, 8).join(", ") + (names.size > 8 ? ", …" : "");
  return names.size ? ` Fields that are not kept: ${shown}; what is in “payload” is kept.` : "";
}

function listErrors(refused) {
  const shown = refused.slice(0, LISTED).map(([place, reason]) => el("li", {}, el("b", {}, place), ` ${reason}`));
  const more = refused.length > LISTED ? [el("li", {}, `and ${number(refused.length - LISTED)} more`)] : [];
  replace($("#bulk-errors"), shown, more);
}
