// Elements are made from values, never from text that is parsed: what comes from a collection is
// shown, and cannot run.

export const $ = (selector) => document.querySelector(selector);

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat());
}

export function showError(error) {
  const box = $("#alert");
  if (!error) {
    box.hidden = true;
    replace(box);
    return;
  }
  const places = (error.errors || []).map((each) => el("li", {}, `${each.pointer}: ${each.detail}`));
  replace(
    box,
    el("strong", {}, error.title || "Something went wrong"),
    el("p", {}, error.detail || String(error.message || error)),
    places.length > 1 ? el("ul", {}, places) : [],
  );
  box.hidden = false;
  box.scrollIntoView({ block: "nearest" });
}

export const number = (value) => value.toLocaleString("en");

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

export function labelChip(name, onclick, detail) {
  const shown = detail === undefined ? [name] : [name, el("small", {}, detail)];
  return el("button", { type: "button", class: "chip", onclick }, ...shown);
}
