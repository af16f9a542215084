// A place for one picture: choose it, drop it, or paste it.

import { el, replace } from "./dom.js";

export function pictureField(container, { name, label, onchange = () => {} }) {
  const input = el("input", { type: "file", id: name, accept: "image/*", class: "sr" });
  const preview = el("div", { class: "preview" });
  const zone = el(
    "div",
    { class: "drop" },
    input,
    el("label", { for: name }, el("b", {}, label), el("span", {}, "choose, drop or paste one")),
    preview,
  );
  replace(container, zone);
  let file = null;
  let url = null;

  function set(next, tell = true) {
    if (url) URL.revokeObjectURL(url);
    file = next;
    url = next ? URL.createObjectURL(next) : null;
    input.value = "";
    zone.classList.toggle("full", Boolean(next));
    replace(
      preview,
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
    zone.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.add("over");
    });
  }
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const dropped = [...event.dataTransfer.files].find((each) => each.type.startsWith("image/"));
    if (dropped) set(dropped);
  });
  document.addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files || [])][0];
    if (pasted?.type.startsWith("image/") && container.offsetParent) set(pasted);
  });

  return { get file() { return file; }, set };
}
