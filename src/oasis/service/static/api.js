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

async function send(path, options = {}) {
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
  const mayAsk = response.status === 401 || (response.status === 403 && found.type?.endsWith(":scope"));
  if (mayAsk && (await askToken(found.detail))) return send(path, options);
  throw new Problem(found, response.status);
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
  return JSON.parse(await response.text(), exact);
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
export const rounds = async () => (await json("/v1/rounds")).rounds;
export const search = async (request, pictures) =>
  (await post("/v1/search", request, pictures)).results[0];
export const ingest = (request, pictures) => post("/v1/ingest", request, pictures);

const kindOf = (id) => (typeof id === "string" ? "text" : "number");

// A picture as an object URL, or null where an item has none.
export async function thumbnail(id) {
  const query = new URLSearchParams({ id: String(id), kind: kindOf(id) });
  try {
    const response = await send(`/v1/thumbnail?${query}`);
    return URL.createObjectURL(await response.blob());
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
}
