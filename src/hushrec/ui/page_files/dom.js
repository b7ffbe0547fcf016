// Small helpers for elements. What comes from data is always text: nothing here takes HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, ...children);
  return element;
}

// An element of HTML: make("button", {type: "button", onclick: f}, "Stop").
export function make(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// An element of SVG.
export function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Append elements and texts; null, undefined and false are left out, lists are taken apart.
export function add(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function empty(element) {
  element.replaceChildren();
  return element;
}

const FOCUSABLE = "a[href], button, input, select, summary, [tabindex]";
const labelOf = (element) => element.getAttribute("aria-label") ?? element.labels?.[0]?.textContent ?? element.textContent;

// Elements by what they are called; a picture by its place alone: what it tells changes.
function byName(elements) {
  const found = new Map();
  for (const element of elements) {
    const name = element instanceof SVGElement ? "picture" : `${element.localName} ${labelOf(element)}`;
    let turn = 0;
    while (found.has(`${name} ${turn}`)) turn += 1;
    found.set(`${name} ${turn}`, element);
  }
  return found;
}

// Fill a place anew: the focus stays on what is called the same, and what was open stays open.
export function renew(place, fill) {
  const summaries = () => byName(place.querySelectorAll("summary"));
  const focused = [...byName(place.querySelectorAll(FOCUSABLE))].find(([, element]) => element === document.activeElement)?.[0];
  const open = [...summaries()].map(([name, summary]) => [name, summary.parentElement.open]);
  fill();
  const now = summaries();
  for (const [name, isOpen] of open) if (now.has(name)) now.get(name).parentElement.open = isOpen;
  if (focused) byName(place.querySelectorAll(FOCUSABLE)).get(focused)?.focus({ preventScroll: true });
}

let last = 0;
// A new id, to tie labels to their fields.
export function newId(word) {
  last += 1;
  return `${word}-${last}`;
}

// A field with its label and a line of help.
export function labelled(label, field, help) {
  field.id ||= newId("field");
  const note = help ? make("p", { class: "help", id: `${field.id}-help` }, help) : null;
  if (note) field.setAttribute("aria-describedby", note.id);
  return make("div", { class: "field" }, make("label", { for: field.id }, label), field, note);
}

// A section with a heading, as a card.
export function card(title, ...children) {
  const heading = make("h2", { id: newId("heading") }, title);
  return make("section", { class: "card", "aria-labelledby": heading.id }, heading, ...children);
}

// Numbers as people read them.
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  if (size !== 0 && size < 0.0001) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, Math.ceil(Math.log10(size + 1))) });
}

// A value of a metric: as many decimals in every row.
export function measure(value) {
  return typeof value === "number" && Math.abs(value) < 10 ? value.toFixed(4) : number(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${value >= 100 || place === 0 ? Math.round(value) : value.toPrecision(3)} ${units[place]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 60) return `${value.toPrecision(value < 10 ? 2 : 3)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

// A date and time as it is here.
export function when(text) {
  if (!text) return "–";
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const two = (part) => String(part).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

// columns: [{name, kind: "number" | "text" | "name" | "long", format}], rows: [[]]
export function table({ caption = "", columns, rows }) {
  const cell = (tag, column, value) => {
    const isNumber = column.kind === "number";
    const shown = value instanceof Node ? value : column.format ? column.format(value) : isNumber ? number(value) : value ?? "–";
    return make(tag, { class: isNumber ? "number" : ["name", "long"].includes(column.kind) ? column.kind : null, scope: tag === "th" ? "row" : null }, shown);
  };
  const head = make("tr", null, columns.map((column) => make("th", { scope: "col", class: column.kind === "number" ? "number" : null }, column.name)));
  const body = rows.map((row) => make("tr", null, row.map((value, place) => cell(place === 0 ? "th" : "td", columns[place], value))));
  const whole = make("table", null, caption && make("caption", null, caption), make("thead", null, head), make("tbody", null, body));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || columns.map((column) => column.name).join(", ") }, whole);
}
