// Lines, bars and steps by round, as drawings that scale; colours come from the style sheet.

import { svg } from "./dom.js";

const WIDTH = 520;
const HEIGHT = 240;
const BOX = { left: 46, right: 14, top: 14, bottom: 34 };

const across = WIDTH - BOX.left - BOX.right;
const down = HEIGHT - BOX.top - BOX.bottom;

function nice(top, factors) {
  if (!(top > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(top));
  return factors.map((factor) => factor * power).find((each) => each >= top - 1e-12);
}

// The top of an axis; of counts, all four rules above 0 are at whole numbers.
export const topOf = (values) => nice(Math.max(...values, 0), [1, 2, 2.5, 5, 10]);
export const topOfCounts = (values) => 4 * nice(Math.ceil(Math.max(...values, 1) / 4), [1, 2, 3, 4, 5, 6, 8, 10]);

function frame(label, top, numbers, format) {
  const y = (value) => BOX.top + down * (1 - value / top);
  const step = numbers.length > 1 ? across / numbers.length : across;
  const x = (place) => BOX.left + step * (place + 0.5);
  const drawing = svg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (let part = 0; part <= 4; part += 1) {
    const value = (top * part) / 4;
    drawing.append(
      svg("line", { class: "rule", x1: BOX.left, x2: WIDTH - BOX.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: BOX.left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)),
    );
  }
  const every = Math.ceil(numbers.length / 12);
  numbers.forEach((number, place) => {
    if (place % every) return;
    const at = { class: "tick", x: x(place), y: HEIGHT - BOX.bottom + 20, "text-anchor": "middle" };
    drawing.append(svg("text", at, String(number)));
  });
  return { drawing, x, y, step };
}

const named = (text) => svg("title", {}, text);

// series: [{ name, kind, values }], a value of null is a gap.
export function lines(label, numbers, series, top, format, unit = "round") {
  const { drawing, x, y } = frame(label, top, numbers, format);
  for (const { name, kind, values } of series) {
    const points = values
      .map((value, place) => ({ value, place }))
      .filter(({ value }) => value !== null);
    const path = points.map(({ value, place }) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
    drawing.append(svg("polyline", { class: `line ${kind}`, points: path.join(" ") }));
    if (points.length > 80) continue;
    for (const { value, place } of points) {
      drawing.append(
        svg("circle", { class: `dot ${kind}`, cx: x(place), cy: y(value), r: 3.5 },
          named(`${unit} ${numbers[place]}, ${name}: ${value.toFixed(3)}`)),
      );
    }
  }
  return drawing;
}

export function bars(label, numbers, values, top, format) {
  const { drawing, x, y, step } = frame(label, top, numbers, format);
  values.forEach((value, place) => {
    const width = Math.max(1, step * 0.62);
    drawing.append(
      svg("rect", { class: "column", x: x(place) - width / 2, y: y(value), width, height: Math.max(0, y(0) - y(value)), rx: Math.min(3, width / 3) },
        named(`round ${numbers[place]}: ${format(value)}`)),
    );
  });
  return drawing;
}

export function area(label, numbers, values, top, format) {
  const { drawing, x, y, step } = frame(label, top, numbers, format);
  const start = `M${x(0) - step / 2},${y(0)}`;
  const steps = values.map((value, place) => `V${y(value).toFixed(1)}H${(x(place) + step / 2).toFixed(1)}`);
  drawing.append(svg("path", { class: "filled", d: `${start}${steps.join("")}V${y(0)}Z` }));
  values.forEach((value, place) => {
    drawing.append(
      svg("rect", { class: "sense", x: x(place) - step / 2, y: BOX.top, width: step, height: down },
        named(`after round ${numbers[place]}: ${format(value)}`)),
    );
  });
  return drawing;
}
