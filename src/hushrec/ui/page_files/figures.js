// What all pictures are made of: markers, scales, axes, and the <figure> around a drawing.

import { add, draw, empty, make, table } from "./dom.js";

export const DASHES = [null, "7 4", "2 3", "10 3 2 3", "14 5", "5 2 1 2 1 2", "1 4", "12 3 4 3"];
export const MOST_STYLES = 8;
export const style = (place) => `s${(place % MOST_STYLES) + 1}`;
const MARGIN = { top: 12, right: 16, bottom: 44, left: 62 };
const LEAST_WIDTH = 60;

// --- Markers ------------------------------------------------------------------------------------------------------

const SHAPES = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`, // disc
  (r) => `M${-r},${-r}H${r}V${r}H${-r}Z`, // square
  (r) => `M0,${-1.2 * r}L${1.15 * r},${0.9 * r}H${-1.15 * r}Z`, // triangle
  (r) => `M0,${-1.35 * r}L${1.35 * r},0L0,${1.35 * r}L${-1.35 * r},0Z`, // diamond
  (r) => `M0,${1.2 * r}L${1.15 * r},${-0.9 * r}H${-1.15 * r}Z`, // triangle, point down
  (r) => `M${-r},${-r}L${r},${r}M${-r},${r}L${r},${-r}`, // cross
  (r) => `M${-1.2 * r},0H${1.2 * r}M0,${-1.2 * r}V${1.2 * r}`, // plus
  (r) => `M${-1.3 * r},${-0.6 * r}H${1.3 * r}V${0.6 * r}H${-1.3 * r}Z`, // bar
];

export function marker(place, x, y, radius = 3.5, isHollow = false) {
  return draw("path", {
    class: `marker ${style(place)}${isHollow ? " hollow" : ""}`,
    d: SHAPES[place % MOST_STYLES](radius),
    transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
  });
}

// --- Scales -------------------------------------------------------------------------------------------------------

function niceStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? power * 10;
}

// A scale from values to pixels, with ticks at round numbers.
export function scale(values, from, to, { isLog = false, count = 6, whole = false, fromZero = false } = {}) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = isLog ? [1, 10] : [0, 1];
  if (fromZero) low = Math.min(low, 0);
  if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - (Math.abs(low) * 0.05 || 0.5), high + (Math.abs(high) * 0.05 || 0.5)];
  if (isLog) {
    const [a, b] = [Math.log10(low), Math.log10(high)];
    const place = (value) => from + ((Math.log10(value) - a) / (b - a)) * (to - from);
    let ticks = [];
    for (let power = Math.floor(a); power <= Math.ceil(b); power += 1) {
      for (const factor of b - a > 4 ? [1] : b - a > 1.2 ? [1, 3] : [1, 2, 3, 5, 7]) ticks.push(factor * 10 ** power);
    }
    ticks = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    return { place, ticks, low, high };
  }
  const step = whole ? Math.max(1, Math.ceil(niceStep(high - low, count))) : niceStep(high - low, count);
  const start = Math.ceil(low / step - 1e-9) * step;
  const ticks = [];
  for (let tick = start; tick <= high + step * 1e-6; tick += step) ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : Number(tick.toPrecision(12)));
  const decimals = Math.max(0, ...ticks.map((tick) => (String(tick).split(".")[1] ?? "").length));
  return { place: (value) => from + ((value - low) / (high - low)) * (to - from), ticks, low, high, decimals };
}

export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(1);
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${Number((value / (unit === "k" ? 1e3 : limit)).toPrecision(3))}${unit}`;
  }
  return size !== 0 && size < 0.001 ? value.toExponential(0) : String(Number(value.toPrecision(5)));
}

export function axes(svg, x, y, box, xLabel, yLabel, { xFormat = short } = {}) {
  // All ticks of an axis have as many decimals.
  const yFormat = (tick) => (y.decimals && y.decimals < 6 && Math.abs(tick) < 1e4 ? tick.toFixed(y.decimals) : short(tick));
  for (const tick of y.ticks) {
    const at = y.place(tick);
    add(svg, draw("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }),
      draw("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, yFormat(tick)));
  }
  let lastEnd = -Infinity;
  for (const tick of x.ticks) {
    const at = x.place(tick);
    const text = xFormat(tick);
    add(svg, draw("line", { class: "axis", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }));
    const half = text.length * 3.6;
    if (at - half < lastEnd + 8) continue;
    lastEnd = at + half;
    add(svg, draw("text", { x: at, y: box.bottom + 18, "text-anchor": "middle" }, text));
  }
  add(svg, draw("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    draw("text", { class: "quiet", x: (box.left + box.right) / 2, y: box.bottom + 37, "text-anchor": "middle" }, xLabel),
    draw("text", { class: "quiet", x: -(box.top + box.bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle" }, yLabel));
}

// --- Frames -------------------------------------------------------------------------------------------------------

// A figure whose drawing is made anew whenever its width changes. paint(width, readout, read) gives an <svg>; `read`
// is where its reader is, which a new drawing takes over, as it does the focus; a new figure can be given it as well.
export function framed(title, paint, data, { legend = null, hasReadout = true, read = null } = {}) {
  const drawing = make("div", { class: "drawing" });
  const readout = make("output", { class: "readout", "aria-live": "polite" });
  const figure = make("figure", null, make("figcaption", null, title), drawing, hasReadout && readout, legend);
  figure.data = data;
  read ??= { at: -1, line: -1 };
  figure.read = read;
  let width = 0;
  const repaint = () => {
    const now = Math.round(drawing.clientWidth);
    if (now < LEAST_WIDTH || now === width) return;
    width = now;
    const hasFocus = drawing.contains(document.activeElement);
    const svg = paint(width, readout, read);
    empty(drawing).append(svg);
    if (hasFocus) svg.focus({ preventScroll: true });
  };
  new ResizeObserver(repaint).observe(drawing);
  figure.redraw = () => {
    width = 0;
    repaint();
  };
  add(figure, numbersOf(data));
  return figure;
}

export function frame(width, height, title) {
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, tabindex: "0" });
  const box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
  return { svg, box };
}

function numbersOf(data) {
  const details = make("details", { class: "numbers" }, make("summary", null, "Numbers"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const rows = data.rows.slice(0, 1000);
    const columns = data.columns.map((name, place) => ({ name, kind: typeof rows[0]?.[place] === "number" ? "number" : "text" }));
    add(details, table({ caption: data.rows.length > rows.length ? `The first ${rows.length} of ${data.rows.length} rows; CSV has all.` : "", columns, rows }));
  });
  return details;
}

export function legendOf(entries, hasLine) {
  return make("ul", { class: "legend" }, entries.map(([name, place]) => {
    const sample = draw("svg", { viewBox: "0 0 34 12", "aria-hidden": "true" },
      hasLine && draw("line", { class: `series ${style(place)}`, x1: 1, x2: 33, y1: 6, y2: 6, "stroke-dasharray": DASHES[place % MOST_STYLES] }),
      marker(place, 17, 6, 3.5));
    return make("li", null, sample, name);
  }));
}

// Which style each group gets; more than eight groups share the last.
export function stylesOf(groups) {
  const found = [...new Set(groups.filter((group) => group !== undefined && group !== null))];
  found.sort((a, b) => String(a).localeCompare(String(b), "en", { numeric: true }));
  return new Map(found.map((group, place) => [group, Math.min(place, MOST_STYLES - 1)]));
}

export function pointerIn(svg, event) {
  const frame = svg.getBoundingClientRect();
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  return [((event.clientX - frame.left) / frame.width) * width, ((event.clientY - frame.top) / frame.height) * height];
}

// Many lines are drawn thin.
export const weight = (count) => (count > 60 ? " thin" : count > MOST_STYLES ? " some" : "");
export const heightFor = (width) => Math.round(Math.min(380, Math.max(230, width * 0.5)));
