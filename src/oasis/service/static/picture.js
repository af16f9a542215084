// A place for one picture: choose it, drop it, or paste it.

import { el, replace, svg } from "./dom.js";

const camera = () =>
  svg(
    "svg",
    { viewBox: "0 0 24 24", width: 22, height: 22, "aria-hidden": "true", class: "glyph" },
    svg("path", { d: "M9 4.5 7.6 6.7H4.5A1.8 1.8 0 0 0 2.7 8.5v9a1.8 1.8 0 0 0 1.8 1.8h15a1.8 1.8 0 0 0 1.8-1.8v-9a1.8 1.8 0 0 0-1.8-1.8h-3.1L15 4.5z" }),
    svg("circle", { cx: 12, cy: 12.8, r: 3.6 }),
  );

// `zone` is where a picture may be dropped, `preview` where the chosen one is shown; without them
// the container is both.
export function pictureField(container, { name, label, zone = null, preview = null, onchange = () => {} }) {
  const input = el("input", { type: "file", id: name, accept: "image/*", class: "sr" });
  const shown = preview || el("div", { class: "preview" });
  const small = Boolean(zone);
  const place = small
    ? [input, el("label", { for: name, class: "pick", title: label }, camera(), el("span", { class: "sr" }, label))]
    : [
        el(
          "div",
          { class: "drop" },
          input,
          el("label", { for: name }, el("b", {}, label), el("span", {}, "choose, drop or paste one")),
          shown,
        ),
      ];
  replace(container, place);
  const target = zone || place[0];
  let file = null;
  let url = null;

  function set(next, tell = true) {
    if (url) URL.revokeObjectURL(url);
    file = next;
    url = next ? URL.createObjectURL(next) : null;
    input.value = "";
    replace(
      shown,
      next
        ? [
            el("img", { src: url, alt: `The picture chosen: ${next.name || "pasted"}` }),
            el("button", { type: "button", onclick: () => { set(null); input.focus(); } }, "Remove picture"),
          ]
        : [],
    );
    if (tell) onchange(file);
  }

  input.addEventListener("change", () => input.files[0] && set(input.files[0]));
  for (const kind of ["dragenter", "dragover"]) {
    target.addEventListener(kind, (event) => {
      event.preventDefault();
      target.classList.add("over");
    });
  }
  target.addEventListener("dragleave", () => target.classList.remove("over"));
  target.addEventListener("drop", (event) => {
    event.preventDefault();
    target.classList.remove("over");
    const dropped = [...event.dataTransfer.files].find((each) => each.type.startsWith("image/"));
    if (dropped) set(dropped);
  });
  document.addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files || [])][0];
    if (pasted?.type.startsWith("image/") && container.offsetParent) set(pasted);
  });

  return { get file() { return file; }, set };
}
