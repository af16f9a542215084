// Pictures of items: whole, loaded when they come near the screen, and fit for light and dark.

import * as api from "./api.js";
import { el, replace } from "./dom.js";

const SAMPLE = 24;

// What a picture is, so that drawings on nothing or on white do not become slabs in the dark:
// "ink" is dark grey on clear or white, "chalk" light grey on clear, "clear" has colours on clear.
function kindOf(image) {
  const canvas = el("canvas", { width: SAMPLE, height: SAMPLE });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0, SAMPLE, SAMPLE);
  const { data } = context.getImageData(0, 0, SAMPLE, SAMPLE);
  let [clear, white, coloured, light, weight] = [0, 0, 0, 0, 0];
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.subarray(at, at + 4);
    if (alpha < 128) clear += 1;
    if (alpha > 200 && Math.min(red, green, blue) > 232) white += 1;
    if (alpha > 24 && Math.max(red, green, blue) - Math.min(red, green, blue) > 28) coloured += 1;
    light += (alpha * (red + green + blue)) / 3;
    weight += alpha;
  }
  const share = (n) => n / (SAMPLE * SAMPLE);
  const grey = share(coloured) < 0.02;
  if (share(clear) > 0.02) {
    if (!grey) return "clear";
    return light / Math.max(1, weight) < 128 ? "ink" : "chalk";
  }
  return grey && share(white) > 0.5 ? "ink" : "";
}

function letters(title) {
  return el("span", { class: "letters", "aria-hidden": "true" }, [...title].slice(0, 2).join(""));
}

async function draw(frame, blob, title) {
  if (!blob) {
    replace(frame, letters(title));
    return;
  }
  const url = URL.createObjectURL(blob);
  const image = el("img", { src: url, alt: "" });
  try {
    await image.decode();
    const kind = kindOf(image);
    if (kind) image.classList.add(kind);
    // a small drawing is not blown up
    frame.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 128);
    replace(frame, image);
  } catch {
    replace(frame, letters(title));
  } finally {
    URL.revokeObjectURL(url);
  }
}

const asked = new WeakMap();
const near = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      const { id, title, load } = asked.get(target);
      load(id).then((blob) => draw(target, blob, title), () => replace(target, letters("?")));
    }
  },
  { rootMargin: "400px" },
);

export function pictureOf(id, title, { load = api.thumbnail, kind = "frame" } = {}) {
  const frame = el("span", { class: kind });
  asked.set(frame, { id, title, load });
  near.observe(frame);
  return frame;
}
