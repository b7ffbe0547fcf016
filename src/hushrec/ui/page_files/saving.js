// Pictures as files: SVG with its numbers in it, PNG, and the numbers as CSV.

import { add, draw, make } from "./dom.js";

const COPIED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "visibility", "paint-order"];

// The picture as a text that stands alone: what the style sheet says is written to each element, the data is within.
function svgText(figure, data) {
  const shown = figure.querySelector(".drawing svg");
  const copy = shown.cloneNode(true);
  const [, , width, height] = shown.getAttribute("viewBox").split(" ").map(Number);
  const [from, to] = [shown.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((element, place) => {
    const now = getComputedStyle(element);
    for (const name of COPIED) {
      const value = now.getPropertyValue(name);
      if (value) to[place].setAttribute(name, value);
    }
    to[place].removeAttribute("class");
  });
  const legend = [...figure.querySelectorAll(".legend li")];
  const below = legend.length * 18;
  legend.forEach((entry, place) => {
    const sample = entry.querySelector("svg");
    const group = draw("g", { transform: `translate(12,${height + 6 + place * 18})` });
    sample.querySelectorAll("*").forEach((part) => {
      const one = part.cloneNode(true);
      const now = getComputedStyle(part);
      for (const name of COPIED) if (now.getPropertyValue(name)) one.setAttribute(name, now.getPropertyValue(name));
      one.removeAttribute("class");
      group.append(one);
    });
    const ink = getComputedStyle(figure).color;
    add(group, draw("text", { x: 42, y: 10, fill: ink, "font-family": "sans-serif", "font-size": "12px" }, entry.textContent));
    add(copy, group);
  });
  copy.setAttribute("viewBox", `0 0 ${width} ${height + below}`);
  copy.setAttribute("width", width);
  copy.setAttribute("height", height + below);
  copy.removeAttribute("tabindex");
  copy.removeAttribute("style");
  const page = getComputedStyle(document.documentElement);
  const paper = getComputedStyle(figure.closest(".card") ?? document.body).backgroundColor || page.backgroundColor;
  copy.prepend(draw("title", null, figure.querySelector("figcaption")?.textContent ?? ""), draw("metadata", null, csvText(data)),
    draw("rect", { width: "100%", height: "100%", fill: paper }));
  return { text: new XMLSerializer().serializeToString(copy), width, height: height + below };
}

function csvText({ columns, rows }) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    const text = /^[=+\-@\t]/.test(String(value)) ? `'${value}` : String(value); // no formula in a spreadsheet
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");
}

function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function pngBlob({ text, width, height }) {
  const image = new Image();
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    await new Promise((done, failed) => {
      image.onload = done;
      image.onerror = () => failed(new Error("the picture could not be drawn; save it as SVG"));
      image.src = address;
    });
    const canvas = make("canvas", { width: width * 2, height: height * 2 });
    canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
    return await new Promise((done) => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}

// Add buttons that save a picture and its numbers, data or figure.data: {columns: [""], rows: [[]]}. Gives the figure back.
export function saveable(figure, name, data = null) {
  const button = (kind, save) => make("button", { type: "button", class: "light small", "aria-label": `Save ${name} as ${kind}`, onclick: save }, kind);
  const readable = () => data ?? figure.data;
  add(figure, make("div", { class: "save" }, "Save as",
    button("SVG", () => download(`${name}.svg`, new Blob([svgText(figure, readable()).text], { type: "image/svg+xml" }))),
    button("PNG", async () => download(`${name}.png`, await pngBlob(svgText(figure, readable())))),
    button("CSV", () => download(`${name}.csv`, new Blob([csvText(readable())], { type: "text/csv" })))));
  return figure;
}
