// The API of the service, and what goes wrong with it.

import { $ } from "./dom.js";

const KEY = "oasis-token";

export class Problem extends Error {
  constructor(found, status) {
    super(found.detail || `The service answered with status ${status}.`);
    Object.assign(this, { title: found.title, detail: this.message, errors: found.errors, status });
  }
}

// Ids may be whole numbers of 64 bits, more than a JavaScript number holds: those are kept as BigInt.
function exact(_, value, context) {
  const large = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return large && context && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
}

function written(_, value) {
  return typeof value === "bigint" && JSON.rawJSON ? JSON.rawJSON(String(value)) : value;
}

export const toJson = (value) => JSON.stringify(value, written);
export const fromJson = (text) => JSON.parse(text, exact);

const PATIENCE = 8;

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

async function send(path, options = {}, patience = PATIENCE) {
  const token = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch {
    throw new Problem(
      { title: "The service does not answer", detail: "Is it still running? Then try again." },
      0,
    );
  }
  if (response.ok) return response;
  const text = await response.text();
  let found = {};
  try {
    found = JSON.parse(text);
  } catch {
    found = { detail: text.slice(0, 300) };
  }
  // changes are made one after the other: a queue that is full has room again soon
  const wait = Number(response.headers.get("Retry-After"));
  if (response.status === 429 && wait > 0 && patience > 0) {
    await pause(Math.min(wait, 5));
    return send(path, options, patience - 1);
  }
  const mayAsk = response.status === 401 || (response.status === 403 && found.type?.endsWith(":scope"));
  // refused with a token that has been replaced since: the new one is tried before anybody is asked
  const replaced = token !== sessionStorage.getItem(KEY);
  if (mayAsk && (replaced || (await askToken(reasonToAsk(response.status, token, found.detail))))) {
    return send(path, options);
  }
  throw new Problem(found, response.status);
}

// The detail of a 401 tells programs which header to send.
function reasonToAsk(status, token, detail) {
  if (status !== 401) return detail;
  const found = token ? "The service does not know the token that was given. " : "";
  return `${found}Whoever runs this service can tell it. It is kept until this tab is closed.`;
}

let asking = null;

// One dialog at a time, however many requests are waiting for it.
function askToken(reason) {
  asking ||= new Promise((resolve) => {
    const dialog = $("#token-dialog");
    $("#token-reason").textContent = reason || "";
    $("#token").value = "";
    dialog.returnValue = "";
    dialog.addEventListener(
      "close",
      () => {
        const given = dialog.returnValue === "use" ? $("#token").value : "";
        if (given) sessionStorage.setItem(KEY, given);
        asking = null;
        resolve(Boolean(given));
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}

async function json(path, options) {
  const response = await send(path, options);
  return fromJson(await response.text());
}

function post(path, request, pictures = []) {
  if (!pictures.some(Boolean)) {
    const headers = { "Content-Type": "application/json" };
    return json(path, { method: "POST", headers, body: toJson(request) });
  }
  const body = new FormData();
  body.append("request", toJson(request));
  pictures.forEach((picture, row) => picture && body.append(`image.${row}`, picture));
  return json(path, { method: "POST", body });
}

export const stats = () => json("/v1/stats");
export const classes = async () => (await json("/v1/classes")).classes;
export const fields = async () => (await json("/v1/fields")).fields;
export const rounds = async () => (await json("/v1/rounds")).rounds;
export const search = async (request, pictures) =>
  (await post("/v1/search", request, pictures)).results[0];
export const suggest = async (text) => (await post("/v1/suggest", { text })).text;
export const ingest = (request, pictures) => post("/v1/ingest", request, pictures);
export const remove = (ids) => post("/v1/delete", { ids });

const addressed = (id) =>
  new URLSearchParams({ id: String(id), kind: typeof id === "string" ? "text" : "number" });

export const next = async (k) => (await json(`/v1/next?k=${Math.min(k, 1000)}`)).items;
export const plane = () => json("/v1/plane");
export const duplicates = async () => (await json("/v1/duplicates")).groups;
export const explain = async (request, pictures) => (await post("/v1/explain", request, pictures)).explanations;

export const latest = async (k) => (await json(`/v1/latest?k=${k}`)).items;

export const item = (id) => json(`/v1/item?${addressed(id)}`);

// Change the labels or the payload of an item; what is left out is kept.
export const update = (id, facts) =>
  json(`/v1/item?${addressed(id)}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: toJson(facts),
  });

// A picture as a blob, or null where an item has none.
async function picture(route, id) {
  const response = await send(`/v1/${route}?${addressed(id)}&none=empty`);
  return response.status === 204 ? null : response.blob();
}

export const thumbnail = (id) => picture("thumbnail", id);
export const preview = (id) => picture("preview", id);
