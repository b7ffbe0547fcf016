// The picture of three panels: what is private, what left the device, what was concluded. A square is an item, a
// number or a conclusion; the third panel has the person's items in the same places as the first.

import { add, bytes, draw, make, number } from "./dom.js";
import { framed } from "./figures.js";

const GAP = 46;
const HEAD = 58;
const MOST_CELLS = 1600;
const LEAST_FOR_DIGITS = 12;
const LEVELS = [0.12, 0.2, 0.28, 0.36, 0.45];

const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// The message that says most, of those that who attacks can read.
export function mainMessage(sent) {
  const size = (one) => (one.items?.length ?? 0) * 10 + Math.max(0, ...one.columns.map((column) => column.count));
  return [...sent].sort((a, b) => b.seen - a.seen || size(b) - size(a))[0] ?? null;
}

function cellSize(count, width, height) {
  for (let size = 30; size > 5; size -= 1) {
    if (Math.ceil(count / Math.floor(width / size)) * size <= height) return size;
  }
  return 5;
}

function level(share) {
  return LEVELS[Math.min(LEVELS.length - 1, Math.max(0, Math.floor(share * LEVELS.length)))];
}

const digits = (rating) => String(Number(rating.toFixed(1)));

// Cells of the person's own items, the best rated first.
function ownCells(person) {
  const order = person.items.map((_, place) => place);
  if (person.ratings) order.sort((a, b) => person.ratings[b] - person.ratings[a] || a - b);
  const [low, high] = person.scale ?? [0, 1];
  return order.map((place) => {
    const rating = person.ratings?.[place] ?? null;
    const title = person.titles[person.items[place]];
    const share = rating === null || high === low ? 0.7 : (rating - low) / (high - low);
    return { item: person.items[place], rating, share, text: rating === null ? "" : digits(rating), label: rating === null ? title : `${title}: ${digits(rating)}` };
  });
}

// Cells of what was sent: a listed item each, or a number each.
function sentCells(message, titles) {
  if (!message) return [];
  if (message.items) {
    const rows = message.columns.find((column) => column.rows)?.rows;
    const isWords = message.columns.find((column) => column.rows)?.kind === "words";
    const sizes = message.items.map((_, place) => (rows ? (isWords ? parseInt(rows[place][0].slice(0, 2), 16) / 255 : Math.hypot(...rows[place].map(Number))) : 0.5));
    const ranked = [...sizes].sort((a, b) => a - b);
    const share = (value) => (isWords || !rows ? value : ranked.indexOf(value) / Math.max(1, ranked.length - 1));
    return message.items.map((item, place) => ({ share: share(sizes[place]), label: `${titles[item]}${rows ? `: ${rows[place].join(", ")} …` : ""}`, isMasked: isWords }));
  }
  const column = [...message.columns].sort((a, b) => b.count - a.count)[0];
  return (column?.numbers ?? []).map((value) => {
    const share = column.kind === "words" ? parseInt(value.slice(0, 2), 16) / 255 : column.kind === "bytes" ? value / 255 : 0.5;
    return { share, label: String(value), isMasked: true };
  });
}

// How many squares it would take: the page has the first numbers of long messages only.
function sentCount(message) {
  return message?.items?.length ?? Math.max(0, ...(message?.columns ?? []).map((column) => column.count));
}

function sentWords(message) {
  if (!message) return "nothing in this round";
  const size = bytes(message.bytes);
  const column = [...message.columns].sort((a, b) => b.count - a.count)[0];
  if (message.items) {
    const numbers = column ? (column.kind === "words" ? ` × ${number(column.width)} masked numbers` : ` × ${number(column.width)} number${column.width === 1 ? "" : "s"}`) : "";
    return `${plural(message.items.length, "item")}${numbers}, ${size}`;
  }
  if (!column) return `${message.type}, ${size}`;
  const what = column.kind === "words" ? "masked number" : column.kind === "bytes" ? "byte of ciphertext or keys" : "number";
  return column.kind === "bytes" ? `${number(column.count)} bytes of ciphertext or keys` : `${plural(column.count, what)}, ${size}`;
}

// Of each own item what is said of it; then what is said wrongly.
function saidCells(own, attack, titles) {
  const said = new Map((attack?.items ?? []).map((item, place) => [item, place]));
  const cells = own.map((cell) => {
    const place = said.get(cell.item);
    if (place === undefined) return { kind: "missed", text: "", label: `${cell.label}, not found` };
    const rating = attack.ratings[place];
    if (rating === null) return { kind: "item", text: "✓", label: `${titles[cell.item]}: found` };
    const isExact = attack.is_exact[place];
    return { kind: isExact ? "exact" : "near", text: digits(rating), share: cell.share, label: `${titles[cell.item]}: said ${digits(rating)}, ${isExact ? "right" : `wrong, it is ${cell.text}`}` };
  });
  const wrong = (attack?.items ?? []).filter((_, place) => !attack.is_right[place]).map((item) => ({ kind: "false", text: "", label: `${titles[item]}: said to be this person's, and is not` }));
  return { cells, wrong };
}

function saidWords(attack, numOwn) {
  if (!attack) return "nothing";
  const right = attack.exact !== null ? `${number(attack.exact)} of ${plural(numOwn, "rating")}` : `${number(attack.right)} of ${plural(numOwn, "item")}`;
  return attack.wrong ? `${right}, ${number(attack.wrong)} wrong` : right;
}

function panel(svg, x, y, width, heading, words) {
  add(svg, draw("text", { class: "panel", x, y: y + 16 }, heading), draw("text", { class: "count", x, y: y + 38 }, words));
}

function square(cell, size, x, y) {
  const inner = size - (size > 8 ? 2 : 1);
  const at = { x: x.toFixed(1), y: y.toFixed(1), width: inner, height: inner, rx: size > 10 ? 2 : 0 };
  const parts = [];
  const middle = [x + inner / 2, y + inner / 2];
  if (cell.kind === "missed") parts.push(draw("rect", { class: "missed", ...at }));
  else if (cell.kind === "false") {
    parts.push(draw("path", { class: "false", d: `M${x + 2},${y + 2}L${x + inner - 2},${y + inner - 2}M${x + inner - 2},${y + 2}L${x + 2},${y + inner - 2}` }));
  } else {
    const look = { exact: "hit", item: "hit", near: "hit" }[cell.kind] ?? (cell.isMasked ? "masked" : cell.isSent ? "sent" : "own");
    parts.push(draw("rect", { class: look, opacity: cell.kind === "near" ? 0.1 : level(cell.share ?? 0.5), ...at }));
    if (cell.kind) parts.push(draw("rect", { class: cell.kind === "near" ? "near-edge" : "hit-edge", ...at }));
  }
  if (cell.text && size >= LEAST_FOR_DIGITS) parts.push(draw("text", { class: "digit", x: middle[0].toFixed(1), y: (middle[1] + 3.5).toFixed(1) }, cell.text));
  return parts;
}

function grid(svg, cells, { x, y, width, size, spots }) {
  const columns = Math.max(1, Math.floor(width / size));
  cells.forEach((cell, place) => {
    const [cx, cy] = [x + (place % columns) * size, y + Math.floor(place / columns) * size];
    add(svg, square(cell, size, cx, cy));
    spots.push([cx, cy, size, cell.label]);
  });
  return y + Math.ceil(cells.length / columns) * size;
}

function wrapped(svg, words, x, y, width, className) {
  let line = "";
  let at = y;
  for (const word of words.split(" ")) {
    if ((line.length + word.length + 1) * 9.4 > width && line) {
      add(svg, draw("text", { class: className, x, y: at }, line));
      at += 20;
      line = "";
    }
    line = line ? `${line} ${word}` : word;
  }
  add(svg, draw("text", { class: className, x, y: at }, line));
  return at + 12;
}

function paint({ person, detail, attack, who }, width, readout, read) {
  const isStacked = width < 760;
  const panelWidth = isStacked ? width - 4 : (width - 2 * GAP) / 3;
  const own = ownCells(person);
  const message = mainMessage(detail.sent);
  const sent = sentCells(message, detail.titles).map((cell) => ({ ...cell, isSent: true }));
  const said = saidCells(own, attack, { ...person.titles, ...detail.titles });
  const shown = { own: own.slice(0, MOST_CELLS), sent: sent.slice(0, MOST_CELLS), said: said.cells.slice(0, MOST_CELLS), wrong: said.wrong.slice(0, MOST_CELLS) };
  const high = isStacked ? 260 : 360;
  const size = cellSize(Math.max(shown.own.length + shown.wrong.length, 1), panelWidth, high);
  const sentSize = cellSize(Math.max(shown.sent.length, 1), panelWidth, high);
  const svg = draw("svg", { role: "img", tabindex: "0" });
  const spots = [];
  const at = (place) => (isStacked ? 2 : place * (panelWidth + GAP));
  let bottom = 0;
  let y = 0;
  const begin = (place, heading, words) => {
    if (isStacked && place) y = bottom + 26;
    panel(svg, at(place), y, panelWidth, heading, words);
    return y + HEAD;
  };
  const end = (low) => { bottom = Math.max(isStacked ? 0 : bottom, low); };
  // Below squares, where there are not as many as there is to draw.
  const cut = (place, low, drawn, all, of = "") => (drawn < all ? wrapped(svg, `${number(drawn)} of ${number(all)}${of} are drawn`, at(place), low + 20, panelWidth, "count") : low);
  const what = person.ratings ? "rating" : "item";
  const low0 = grid(svg, shown.own, { x: at(0), y: begin(0, "Private", plural(own.length, what)), width: panelWidth, size, spots });
  end(cut(0, low0, shown.own.length, own.length));
  const top = begin(1, "Left the device", sentWords(message));
  const low1 = grid(svg, shown.sent, { x: at(1), y: top, width: panelWidth, size: sentSize, spots });
  end(cut(1, low1, shown.sent.length, sentCount(message)));
  const said0 = begin(2, `${who} concludes`, saidWords(attack, own.length));
  if (attack) {
    let low = grid(svg, shown.said, { x: at(2), y: said0, width: panelWidth, size, spots });
    low = cut(2, low, shown.said.length, said.cells.length);
    if (shown.wrong.length) low = grid(svg, shown.wrong, { x: at(2), y: low + 8, width: panelWidth, size, spots });
    low = cut(2, low, shown.wrong.length, said.wrong.length, " wrong ones");
    end(low);
  } else {
    const low = Math.max(isStacked ? said0 + 90 : bottom, said0 + 90);
    add(svg, draw("rect", { class: "frame", x: at(2) + 1, y: said0, width: panelWidth - 2, height: low - said0, rx: 8 }));
    const sum = detail.people_in_sum;
    wrapped(svg, sum ? `a sum over ${number(sum)} people, nothing under this person's name` : "nothing, by the attacks tried", at(2) + panelWidth / 2, (said0 + low) / 2 - 4, panelWidth - 30, "nothing");
    end(low);
  }
  if (!isStacked) {
    for (const place of [1, 2]) {
      const tip = at(place) - 12;
      add(svg, draw("path", { class: "arrow", d: `M${tip - 22},${HEAD + 24}H${tip}M${tip - 7},${HEAD + 17}L${tip},${HEAD + 24}L${tip - 7},${HEAD + 31}` }));
    }
  }
  const height = Math.ceil(bottom + 6);
  svg.setAttribute("viewBox", `0 0 ${Math.round(width)} ${height}`);
  svg.setAttribute("aria-label", `Private: ${plural(own.length, what)}. Left the device: ${sentWords(message)}. ${who} concludes: ${saidWords(attack, own.length)}. Arrow keys read the squares.`);
  readSquares(svg, spots, readout, read);
  return svg;
}

function readSquares(svg, spots, readout, read) {
  const ring = draw("rect", { class: "ring", visibility: "hidden", rx: 2 });
  add(svg, ring);
  const tell = (place) => {
    if (place < 0 || place >= spots.length) return;
    read.at = place;
    const [x, y, size, label] = spots[place];
    for (const [name, value] of [["x", x - 2], ["y", y - 2], ["width", size + 2], ["height", size + 2], ["visibility", "visible"]]) ring.setAttribute(name, value);
    readout.textContent = label;
  };
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const [px, py] = [((event.clientX - frame.left) / frame.width) * width, ((event.clientY - frame.top) / frame.height) * height];
    tell(spots.findIndex(([x, y, size]) => px >= x && px < x + size && py >= y && py < y + size));
  });
  svg.addEventListener("pointerleave", () => {
    ring.setAttribute("visibility", "hidden");
    read.at = -1;
    readout.textContent = "";
  });
  svg.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!turn) return;
    event.preventDefault();
    tell(Math.min(Math.max(read.at + turn, 0), spots.length - 1));
  });
  tell(read.at);
}

function legend(attack, isMasked) {
  const sample = (...parts) => draw("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, parts);
  const box = { x: 1, y: 1, width: 14, height: 14, rx: 2 };
  const entries = [[sample(draw("rect", { class: "own", opacity: 0.36, ...box })), "private"], [sample(draw("rect", { class: isMasked ? "masked" : "sent", opacity: 0.36, ...box })), isMasked ? "sent, masked or encrypted: it looks random" : "sent; fuller colour is a larger row"]];
  if (attack) {
    entries.push([sample(draw("rect", { class: "hit", opacity: 0.36, ...box }), draw("rect", { class: "hit-edge", ...box })), attack.exact === null ? "found, and right" : "read, and right"]);
    if (attack.exact !== null && attack.exact < attack.right) entries.push([sample(draw("rect", { class: "near-edge", ...box })), "found, with a wrong rating"]);
    if (attack.missed) entries.push([sample(draw("rect", { class: "missed", ...box })), "not found"]);
    if (attack.wrong) entries.push([sample(draw("path", { class: "false", d: "M3,3L13,13M13,3L3,13" })), "said, and wrong"]);
  }
  return make("ul", { class: "legend" }, entries.map(([one, text]) => make("li", null, one, text)));
}

function dataOf(person, detail, attack) {
  const own = new Map(person.items.map((item, place) => [item, person.ratings?.[place] ?? ""]));
  const said = new Map((attack?.items ?? []).map((item, place) => [item, attack.ratings[place] ?? ""]));
  const listed = new Set(detail.sent.filter((one) => one.seen).flatMap((one) => one.items ?? []));
  const titles = { ...person.titles, ...detail.titles };
  const every = [...new Set([...own.keys(), ...listed, ...said.keys()])].sort((a, b) => a - b);
  return {
    columns: ["item", "title", "private rating", "listed in what was sent", "concluded", "concluded rating", "right"],
    rows: every.map((item) => [item, titles[item], own.get(item) ?? "", listed.has(item) ? "yes" : "no", said.has(item) ? "yes" : "no", said.get(item) ?? "", said.has(item) ? (own.has(item) ? "yes" : "no") : ""]),
  };
}

// The figure; view is {person, detail, attack, who, title, read}.
export function pictureOf(view) {
  const isMasked = sentCells(mainMessage(view.detail.sent), view.detail.titles).some((cell) => cell.isMasked);
  const figure = framed(view.title, (...room) => paint(view, ...room), dataOf(view.person, view.detail, view.attack), { legend: legend(view.attack, isMasked), read: view.read });
  figure.classList.add("seen");
  return figure;
}
