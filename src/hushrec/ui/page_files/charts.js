// Pictures as SVG, without any library. Every picture is a <figure> with a caption, a legend, a line that reads values
// out (by mouse, or by arrow keys when the picture has the focus), its numbers as a table, and `figure.data`, which
// `saveable` of `saving.js` writes into files. Series differ by dash and marker as well as by colour.
//
// lineChart({title, xLabel, yLabel, series: [{name, x: [], y: [], group}], logY, yRange, onPick(name), read})
// scatter({title, xLabel, yLabel, points: [{x, y, label, group, size}], sizeLabel, logX, logY, onPick(point)})
// bars({title, label, rows: [{name, value, group, text}], format})
// parallel({title, axes: [{name, kind: "number" | "text"}], rows: [{name, values: [], group}], onPick(name)})
//
// More than eight series are drawn thin; then `group` says which of them look alike, and the nearest one is picked out.

import { add, draw, number } from "./dom.js";
import {
  DASHES, MOST_STYLES, axes, frame, framed, heightFor, legendOf, marker, pointerIn, scale, short, style, stylesOf, weight,
} from "./figures.js";

const MANY_POINTS = 300; // more of them are drawn so that one sees those below

// --- Lines --------------------------------------------------------------------------------------------------------

export function lineChart({ title, xLabel = "round", yLabel, series, logY = false, yRange = [], onPick = null, read = null }) {
  const isMany = series.length > MOST_STYLES;
  const styles = isMany ? stylesOf(series.map((one) => one.group)) : new Map();
  const places = series.map((one, place) => (isMany ? styles.get(one.group) ?? MOST_STYLES - 1 : place));
  const xs = series.map((one) => one.x ?? one.y.map((_, place) => place + 1));
  const entries = isMany ? [...styles] : series.map((one, place) => [one.name, place]);
  const data = {
    columns: ["series", xLabel, yLabel],
    rows: series.flatMap((one, place) => one.y.map((value, at) => [one.name, xs[place][at], value])),
  };

  const paint = (width, readout, read) => {
    const height = heightFor(width);
    const { svg, box } = frame(width, height, `${title}: ${series.length} lines of ${yLabel} by ${xLabel}; arrow keys read the values`);
    const x = scale(xs.flat(), box.left + 4, box.right - 4, { count: width / 90, whole: true });
    const y = scale([...yRange, ...series.flatMap((one) => one.y)], box.bottom - 4, box.top + 4, { isLog: logY, count: 5 });
    axes(svg, x, y, box, xLabel, yLabel);
    const lines = series.map((one, place) => {
      const points = one.y.map((value, at) => [x.place(xs[place][at]), Number.isFinite(value) && (!logY || value > 0) ? y.place(value) : null]);
      let d = "";
      let isDown = false;
      for (const [px, py] of points) {
        if (py === null) isDown = false;
        else {
          d += `${isDown ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`;
          isDown = true;
        }
      }
      const path = draw("path", { class: `series ${style(places[place])}${weight(series.length)}`, d, "stroke-dasharray": DASHES[places[place] % MOST_STYLES], "data-name": one.name });
      add(svg, path);
      if (!isMany || one.y.length === 1) {
        const every = Math.max(1, Math.ceil(points.length / 8));
        points.forEach(([px, py], at) => {
          if (py !== null && (at % every === 0 || at === points.length - 1)) add(svg, marker(places[place], px, py));
        });
      }
      return { path, points, one, place };
    });
    readValues(svg, lines, { box, isMany, readout, read, xLabel, xs, onPick });
    return svg;
  };
  return framed(title, paint, data, { legend: entries.length > 1 || isMany ? legendOf(entries, true) : null, read });
}

function readValues(svg, lines, { box, isMany, readout, read, xLabel, xs, onPick }) {
  const cross = draw("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  add(svg, cross);
  let picked = null;
  const longest = lines.reduce((best, line) => (line.points.length > best.points.length ? line : best), lines[0]);
  const tell = (place, line = null) => {
    if (!longest || place < 0 || place >= longest.points.length) return;
    read.at = place;
    const px = (line ?? longest).points[Math.min(place, (line ?? longest).points.length - 1)][0];
    cross.setAttribute("x1", px);
    cross.setAttribute("x2", px);
    cross.setAttribute("visibility", "visible");
    if (picked) picked.path.classList.remove("picked");
    picked = line;
    read.line = line?.place ?? -1;
    if (line) {
      line.path.classList.add("picked");
      svg.insertBefore(line.path, cross);
    }
    const shown = line ? [line] : lines.slice(0, MOST_STYLES);
    const xValue = xs[(line ?? longest).place][place];
    const words = shown.map(({ one, points }) => `${one.name} ${points.length > place ? number(one.y[place]) : "–"}`);
    readout.textContent = `${xLabel} ${number(xValue)}: ${words.join(", ")}`;
  };
  const nearest = (px, py) => {
    let best = null;
    let least = Infinity;
    for (const line of lines) {
      const place = closest(line.points, px);
      if (place < 0 || line.points[place][1] === null) continue;
      const far = Math.hypot(line.points[place][0] - px, line.points[place][1] - py);
      if (far < least) [best, least] = [{ line, place }, far];
    }
    return best;
  };
  svg.addEventListener("pointermove", (event) => {
    const [px, py] = pointerIn(svg, event);
    if (isMany) {
      const found = nearest(px, py);
      if (found) tell(found.place, found.line);
    } else if (longest) tell(closest(longest.points, px));
  });
  svg.addEventListener("pointerleave", () => {
    cross.setAttribute("visibility", "hidden");
    if (picked) picked.path.classList.remove("picked");
    picked = null;
    read.at = -1;
    readout.textContent = "";
  });
  svg.addEventListener("click", () => {
    if (picked && onPick) onPick(picked.one);
  });
  svg.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter" && picked && onPick) onPick(picked.one);
    if (!turn || !longest) return;
    event.preventDefault();
    const place = Math.min(Math.max(read.at + turn[0], 0), longest.points.length - 1);
    if (!isMany) {
      tell(place);
      return;
    }
    const next = Math.min(Math.max((picked?.place ?? -1) + turn[1], 0), lines.length - 1);
    tell(Math.min(place, lines[next].points.length - 1), lines[next]);
  });
  tell(read.at, lines[read.line] ?? null);
}

function closest(points, px) {
  let [low, high] = [0, points.length - 1];
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < px) low = middle;
    else high = middle;
  }
  return Math.abs(points[low][0] - px) <= Math.abs(points[high][0] - px) ? low : high;
}

// --- Points -------------------------------------------------------------------------------------------------------

export function scatter({ title, xLabel, yLabel, points, sizeLabel = null, logX = false, logY = false, xFormat = short, onPick = null }) {
  const styles = stylesOf(points.map((point) => point.group));
  const sizes = points.map((point) => point.size).filter(Number.isFinite);
  const largest = Math.max(...sizes, 0) || 1;
  const data = {
    columns: ["name", "group", xLabel, yLabel, ...(sizeLabel ? [sizeLabel] : [])],
    rows: points.map((one) => [one.label, one.group ?? "", one.x, one.y, ...(sizeLabel ? [one.size ?? ""] : [])]),
  };
  const radius = (point) => {
    if (!sizeLabel) return points.length > 200 ? 3 : 4.5;
    return Number.isFinite(point.size) ? 3 + 9 * Math.sqrt(Math.max(point.size, 0) / largest) : 4;
  };
  const paint = (width, readout, read) => {
    const height = heightFor(width);
    const { svg, box } = frame(width, height, `${title}: ${points.length} points, ${yLabel} by ${xLabel}; arrow keys go through them`);
    const x = scale(points.map((one) => one.x), box.left + 12, box.right - 12, { isLog: logX, count: width / 100 });
    const y = scale(points.map((one) => one.y), box.bottom - 12, box.top + 12, { isLog: logY, count: 5 });
    axes(svg, x, y, box, xLabel, yLabel, { xFormat });
    if (points.length > MANY_POINTS) svg.classList.add("crowd");
    const drawable = points.filter((one) => Number.isFinite(one.x) && Number.isFinite(one.y) && (!logX || one.x > 0) && (!logY || one.y > 0));
    const spots = drawable.map((one) => [x.place(one.x), y.place(one.y), one]).sort((a, b) => a[0] - b[0]);
    for (const [px, py, one] of [...spots].sort((a, b) => radius(b[2]) - radius(a[2]))) {
      // Without a size there is nothing known of it: hollow.
      add(svg, marker(styles.get(one.group) ?? 0, px, py, radius(one), Boolean(sizeLabel) && !Number.isFinite(one.size)));
    }
    const ring = draw("circle", { class: "ring", r: 0, visibility: "hidden" });
    add(svg, ring);
    const tell = (place) => {
      if (place < 0 || place >= spots.length) return;
      read.at = place;
      const [px, py, one] = spots[place];
      for (const [name, value] of [["cx", px], ["cy", py], ["r", radius(one) + 4], ["visibility", "visible"]]) ring.setAttribute(name, value);
      const size = sizeLabel ? `, ${sizeLabel} ${Number.isFinite(one.size) ? number(one.size) : "not known"}` : "";
      const group = one.group !== undefined && one.group !== null && one.group !== one.label ? ` (${one.group})` : "";
      readout.textContent = `${one.label}${group}: ${xLabel} ${xFormat === short ? number(one.x) : xFormat(one.x)}, ${yLabel} ${number(one.y)}${size}`;
    };
    svg.addEventListener("pointermove", (event) => {
      const [px, py] = pointerIn(svg, event);
      let best = -1;
      let least = 40;
      spots.forEach(([sx, sy], place) => {
        const far = Math.hypot(sx - px, sy - py);
        if (far < least) [best, least] = [place, far];
      });
      tell(best);
    });
    svg.addEventListener("click", () => read.at >= 0 && onPick && onPick(spots[read.at][2]));
    svg.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (event.key === "Enter" && read.at >= 0 && onPick) onPick(spots[read.at][2]);
      if (!turn || !spots.length) return;
      event.preventDefault();
      tell(Math.min(Math.max(read.at + turn, 0), spots.length - 1));
    });
    tell(read.at);
    return svg;
  };
  return framed(title, paint, data, { legend: styles.size > 1 ? legendOf([...styles], false) : null });
}

// --- Bars ---------------------------------------------------------------------------------------------------------

export function bars({ title, label, rows, format = number }) {
  const styles = stylesOf(rows.map((row) => row.group));
  const data = { columns: ["name", ...(styles.size ? ["group"] : []), label], rows: rows.map((row) => [row.name, ...(styles.size ? [row.group ?? ""] : []), row.value]) };
  const paint = (width) => {
    const line = width < 480 ? 44 : 30;
    const height = rows.length * line + 12;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${rows.map((row) => `${row.name} ${format(row.value)}`).join(", ")}` });
    const isStacked = width < 480;
    const left = isStacked ? 2 : Math.min(width * 0.42, 12 + 7 * Math.max(...rows.map((row) => row.name.length), 1));
    const right = width - 86;
    const x = scale([...rows.map((row) => row.value), 0], left, right, { fromZero: true });
    rows.forEach((row, place) => {
      const top = place * line + 6;
      const end = Number.isFinite(row.value) ? x.place(row.value) : left;
      const at = isStacked ? top + 16 : top;
      const bar = draw("rect", { class: `bar-fill ${style(styles.get(row.group) ?? 0)}`, x: Math.min(x.place(0), end), y: at, width: Math.max(1, Math.abs(end - x.place(0))), height: isStacked ? 16 : 18, rx: 3 });
      add(svg, draw("text", { x: isStacked ? 2 : left - 8, y: isStacked ? top + 11 : top + 14, "text-anchor": isStacked ? "start" : "end" }, row.name),
        bar, draw("text", { x: Math.max(end, x.place(0)) + 6, y: at + 13 }, row.text ?? format(row.value)));
    });
    return svg;
  };
  return framed(title, paint, data, { legend: styles.size > 1 ? legendOf([...styles], false) : null, hasReadout: false });
}

// --- Parallel coordinates -----------------------------------------------------------------------------------------

export function parallel({ title, axes: wanted, rows, onPick = null }) {
  const styles = stylesOf(rows.map((row) => row.group));
  const data = { columns: ["name", ...(styles.size ? ["group"] : []), ...wanted.map((axis) => axis.name)], rows: rows.map((row) => [row.name, ...(styles.size ? [row.group ?? ""] : []), ...row.values]) };
  const paint = (width, readout, read) => {
    const room = Math.max(width, wanted.length * 84);
    const height = 340;
    const svg = draw("svg", { viewBox: `0 0 ${room} ${height}`, role: "img", tabindex: "0", "aria-label": `${title}: ${rows.length} lines over ${wanted.length} axes; arrow keys go through the lines` });
    const box = { top: 44, bottom: height - 16, left: 56, right: room - 64 };
    const places = wanted.map((_, place) => box.left + (wanted.length > 1 ? (place / (wanted.length - 1)) * (box.right - box.left) : 0));
    const scales = wanted.map((axis, place) => axisScale(axis, rows.map((row) => row.values[place]), box));
    svg.style.width = `${room}px`;
    const lines = rows.map((row, number) => {
      const points = row.values.map((value, place) => [places[place], scales[place].place(value)]);
      const d = points.filter(([, y]) => y !== null).map(([px, py], at) => `${at ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`).join("");
      const look = styles.get(row.group) ?? 0;
      const path = draw("path", { class: `series ${style(look)}${weight(rows.length)}`, d, "stroke-dasharray": DASHES[look] });
      add(svg, path);
      return { path, points, row, number };
    });
    wanted.forEach((axis, place) => {
      add(svg, draw("line", { class: "axis", x1: places[place], x2: places[place], y1: box.top, y2: box.bottom }));
      const name = axis.name.length > 14 ? `${axis.name.slice(0, 13)}…` : axis.name;
      add(svg, draw("text", { x: places[place], y: place % 2 && wanted.length > 6 ? 14 : 30, "text-anchor": "middle", "font-weight": "600" }, draw("title", null, axis.name), name));
      for (const [text, at] of scales[place].labels) add(svg, draw("text", { class: "quiet halo", x: places[place] + 6, y: at + 4 }, text));
    });
    let picked = null;
    const tell = (line) => {
      if (picked) picked.path.classList.remove("picked");
      picked = line;
      read.line = line?.number ?? -1;
      if (!line) {
        readout.textContent = "";
        return;
      }
      line.path.classList.add("picked");
      readout.textContent = `${line.row.name}: ${wanted.map((axis, place) => `${axis.name} ${number(line.row.values[place])}`).join(", ")}`;
    };
    svg.addEventListener("pointermove", (event) => {
      const [px, py] = pointerIn(svg, event);
      let best = null;
      let least = 30;
      for (const line of lines) {
        const far = distanceTo(line.points, px, py);
        if (far < least) [best, least] = [line, far];
      }
      tell(best);
    });
    svg.addEventListener("pointerleave", () => tell(null));
    svg.addEventListener("click", () => picked && onPick && onPick(picked.row));
    svg.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (event.key === "Enter" && picked && onPick) onPick(picked.row);
      if (!turn || !lines.length) return;
      event.preventDefault();
      tell(lines[Math.min(Math.max((picked?.number ?? -1) + turn, 0), lines.length - 1)]);
    });
    if (read.line >= 0) tell(lines[read.line]);
    return svg;
  };
  const figure = framed(title, paint, data, { legend: styles.size > 1 ? legendOf([...styles], true) : null });
  figure.querySelector(".drawing").classList.add("wide");
  return figure;
}

function axisScale(axis, values, box) {
  if (axis.kind === "number") {
    const numbers = values.filter(Number.isFinite);
    const isLog = numbers.length > 0 && Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) > 100;
    const found = scale(numbers, box.bottom - 6, box.top + 6, { isLog });
    const ends = numbers.length && Math.min(...numbers) < Math.max(...numbers) ? [found.low, found.high] : numbers.slice(0, 1);
    return { place: (value) => (Number.isFinite(value) ? found.place(value) : null), labels: ends.map((end) => [short(end), found.place(end)]) };
  }
  const wordOf = (value) => String(value ?? "none");
  const words = [...new Set(values.map(wordOf))].sort();
  const place = (value) => box.bottom - 6 - ((words.indexOf(wordOf(value)) + 0.5) / words.length) * (box.bottom - box.top - 12);
  const shown = words.length > 12 ? [] : words;
  return { place, labels: shown.map((word) => [word.length > 12 ? `${word.slice(0, 11)}…` : word, place(word)]) };
}

function distanceTo(points, px, py) {
  let least = Infinity;
  for (let at = 1; at < points.length; at += 1) {
    const [[x1, y1], [x2, y2]] = [points[at - 1], points[at]];
    if (px < x1 - 4 || px > x2 + 4 || y1 === null || y2 === null) continue;
    const share = Math.min(Math.max((px - x1) / (x2 - x1 || 1), 0), 1);
    least = Math.min(least, Math.abs(y1 + share * (y2 - y1) - py));
  }
  return least;
}
