// What is asked stands in the address of the page, so that back, reload and a shared link find it.
//
//   ?q=rain+cloud&content=0.8&label=sky&where={"year":{"gte":2020}}&n=96
//   &predicted=yes         the label may be predicted, too
//   ?like=a.jpg            more like a stored item; ?like-number=7 where the id is a number
//   &item=a.jpg            the item that is open; &item-number=7 likewise
//   &picture=KEY           a picture to search with, which this browser keeps (see kept.js)
//   ?view=label, ?view=map, ?view=duplicates, ?view=stream, ?view=add

export const VIEWS = ["search", "label", "map", "duplicates", "stream", "add"];

const ID_NAMES = ["like", "item"];

function readId(query, name) {
  const number = query.get(`${name}-number`);
  if (number !== null && /^-?\d{1,19}$/.test(number)) {
    const value = Number(number);
    return Number.isSafeInteger(value) ? value : BigInt(number);
  }
  return query.get(name) || undefined;
}

function readWhere(text) {
  try {
    const found = JSON.parse(text || "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {};
  }
}

function readShare(text) {
  const value = Number(text);
  return text && value >= 0 && value <= 1 ? value : null;
}

export function read(search = location.search) {
  const query = new URLSearchParams(search);
  const state = {
    view: VIEWS.includes(query.get("view")) ? query.get("view") : "search",
    q: (query.get("q") || "").trim(),
    content: readShare(query.get("content")),
    label: query.get("label") || "",
    predicted: query.get("predicted") === "yes",
    where: readWhere(query.get("where")),
    picture: query.get("picture") || "",
    n: Math.min(1000, Math.max(0, Math.trunc(Number(query.get("n")) || 0))),
  };
  for (const name of ID_NAMES) state[name] = readId(query, name);
  return state;
}

export function write(state) {
  const query = new URLSearchParams();
  if (state.view && state.view !== "search") query.set("view", state.view);
  if (state.q) query.set("q", state.q);
  if (state.content !== null && state.content !== undefined) query.set("content", state.content);
  if (state.label) query.set("label", state.label);
  if (state.label && state.predicted) query.set("predicted", "yes");
  if (state.where && Object.keys(state.where).length) query.set("where", JSON.stringify(state.where));
  if (state.picture) query.set("picture", state.picture);
  if (state.n) query.set("n", state.n);
  for (const name of ID_NAMES) {
    const id = state[name];
    if (id !== undefined) query.set(typeof id === "string" ? name : `${name}-number`, String(id));
  }
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}

let listener = () => {};

export function onchange(call) {
  listener = call;
  window.addEventListener("popstate", () => call(read()));
}

// Go to a state as by a link; the same address again is shown again, without a second entry.
export function go(state, { replace = false } = {}) {
  const url = write(state);
  const same = url === (location.search || location.pathname);
  if (replace || same) history.replaceState({ within: history.state?.within }, "", url);
  else history.pushState({ within: true }, "", url);
  listener(read());
}

// Change the address without showing anything anew.
export function note(state) {
  history.replaceState(history.state, "", write(state));
}

// Whether the entry before is one of this page, so that back stays on it.
export const cameFromHere = () => Boolean(history.state?.within);

// A link that is followed without loading the page again.
export function follow(event, state) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(state);
}
