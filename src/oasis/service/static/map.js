// The collection in the plane: a point an item, in the colour of its class. Hover or the arrow keys show
// the picture, a click or Enter opens it.

import * as address from "./address.js";
import * as api from "./api.js";
import { $, el, number, plural, replace, showError } from "./dom.js";
import { pictureOf } from "./pictures.js";

const COLOURS = 12;
const PAD = 18;
const REACH = 14;

let points = [];
let colours = new Map(); // class -> its place in the palette
let only = null; // the class that is shown alone
let at = null; // the point that is pointed at
let timer = 0;

export function start() {
  const canvas = $("#map");
  canvas.addEventListener("pointermove", (event) => point(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("pointerleave", () => point(null));
  canvas.addEventListener("click", (event) => open(nearest(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] || [0, 0];
    if (event.key === "Enter") open(at);
    else if (event.key === "Escape") point(null);
    else if (dx || dy) point(neighbour(dx, dy));
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => point(null));
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

export async function show() {
  try {
    const found = await api.plane();
    points = found.points.map(([id, x, y, label, predicted]) => ({ id, x, y, label, predicted }));
    const counts = new Map();
    for (const { label } of points) if (label !== null) counts.set(label, (counts.get(label) || 0) + 1);
    const classes = [...counts].sort((a, b) => b[1] - a[1]);
    colours = new Map(classes.slice(0, COLOURS).map(([name], place) => [name, place]));
    only = null;
    at = null;
    const sampled = found.n_items > points.length ? `${number(points.length)} of ${plural(found.n_items, "item")}, drawn at random` : plural(points.length, "item");
    $("#map-status").textContent = points.length ? `${sampled}, ${plural(classes.length, "class", "classes")}.` : "There is nothing to draw yet.";
    $("#map").setAttribute("aria-label", `Map of ${sampled}: what is alike lies together. Arrow keys move from item to item, Enter opens one.`);
    legend(classes);
    draw();
  } catch (problem) {
    showError(problem);
  }
}

function legend(classes) {
  const chip = ([name, n]) => {
    const place = colours.get(name);
    const button = el(
      "button",
      { type: "button", class: "chip", "aria-pressed": "false", onclick: () => alone(name) },
      el("span", { class: `spot colour-${place ?? "other"}`, "aria-hidden": "true" }),
      name,
      el("small", {}, number(n)),
    );
    button.dataset.name = name;
    return button;
  };
  const others = classes.length - colours.size;
  replace($("#map-legend"), classes.slice(0, COLOURS).map(chip), others > 0 ? el("span", { class: "rest" }, `and ${plural(others, "class", "classes")} in grey`) : []);
}

function alone(name) {
  only = only === name ? null : name;
  for (const each of $("#map-legend").querySelectorAll("button")) {
    each.setAttribute("aria-pressed", String(each.dataset.name === only));
    each.classList.toggle("active", each.dataset.name === only);
  }
  point(null);
}

const shown = () => (only === null ? points : points.filter((each) => each.label === only));

// -- where points lie ---------------------------------------------------------------------------

function placed({ x, y }) {
  const { clientWidth: width, clientHeight: height } = $("#map");
  return [PAD + x * (width - 2 * PAD), height - PAD - y * (height - 2 * PAD)];
}

function nearest(left, top) {
  let [best, least] = [null, REACH * REACH];
  for (const each of shown()) {
    const [x, y] = placed(each);
    const distance = (x - left) ** 2 + (y - top) ** 2;
    if (distance < least) [best, least] = [each, distance];
  }
  return best;
}

// The nearest item in a direction: what lies aside counts twice.
function neighbour(dx, dy) {
  if (!at) return shown()[0] || null;
  const [left, top] = placed(at);
  let [best, least] = [at, Infinity];
  for (const each of shown()) {
    const [x, y] = placed(each);
    const ahead = (x - left) * dx + (y - top) * dy;
    const aside = Math.abs((x - left) * dy) + Math.abs((y - top) * dx);
    if (each !== at && ahead > 0.5 && aside <= 2 * ahead && ahead + 2 * aside < least) [best, least] = [each, ahead + 2 * aside];
  }
  return best;
}

// -- drawing ------------------------------------------------------------------------------------

function draw() {
  const canvas = $("#map");
  const scale = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const palette = [...Array(COLOURS).keys()].map((place) => style.getPropertyValue(`--colour-${place}`));
  const [grey, ink] = [style.getPropertyValue("--edge"), style.getPropertyValue("--ink")];
  const radius = Math.max(2, Math.min(5, 90 / Math.sqrt(points.length)));
  const dot = (each, size) => {
    const [x, y] = placed(each);
    context.beginPath();
    context.arc(x, y, size, 0, 2 * Math.PI);
  };
  for (const each of points) {
    const hidden = only !== null && each.label !== only;
    context.globalAlpha = hidden ? 0.12 : each.label === null ? 0.45 : 0.85;
    context.strokeStyle = context.fillStyle = palette[colours.get(each.label)] ?? grey;
    dot(each, radius);
    // predicted classes are rings
    if (each.predicted) context.stroke();
    else context.fill();
  }
  context.globalAlpha = 1;
  if (!at) return;
  context.lineWidth = 2;
  context.strokeStyle = ink;
  dot(at, radius + 4);
  context.stroke();
}

function point(next) {
  if (next === at && next) return;
  at = next;
  draw();
  $("#map").style.cursor = next ? "pointer" : "";
  const card = $("#map-card");
  card.hidden = !next;
  clearTimeout(timer);
  if (!next) return;
  const name = next.label === null ? "no label" : `${next.label}${next.predicted ? "?" : ""}`;
  const [x, y] = placed(next);
  const { clientWidth: width, clientHeight: height } = $("#map");
  replace(card, el("p", {}, el("b", {}, name)), el("p", { class: "file" }, String(next.id)));
  card.style.left = `${Math.min(x + 14, width - 190)}px`;
  card.style.top = `${y > height / 2 ? y - 200 : y + 14}px`;
  // not for what is only passed
  timer = setTimeout(() => card.prepend(pictureOf(next.id, name, { kind: "frame" })), 80);
  $("#map-said").textContent = `${next.id}, ${name}`;
}

function open(one) {
  if (one) address.go({ view: "map", item: one.id });
}
