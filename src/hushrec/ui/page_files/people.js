// What the pages about a person, audits and models have in common.

import { add, empty, make } from "./dom.js";

// Their style sheet, once.
export function useStyle() {
  if (document.querySelector('link[href="/page/people.css"]')) return;
  document.head.append(make("link", { rel: "stylesheet", href: "/page/people.css" }));
}

// A rating in words and stars: stars only where the scale has few whole steps.
export function stars(rating, scale) {
  if (rating === null || rating === undefined) return make("span", { class: "value" }, "");
  const high = scale?.[1] ?? 0;
  const text = String(Number(rating.toFixed(2)));
  if (high < 3 || high > 5 || scale[0] < 0) return make("span", { class: "value" }, text);
  const full = Math.min(Math.max(Math.round(rating), 0), Math.ceil(high));
  return make("span", { class: "value" }, make("span", { class: "stars", "aria-hidden": "true" }, "★".repeat(full) + "☆".repeat(Math.ceil(high) - full)), ` ${text}`);
}

// A list that begins with the first rows and shows the rest when asked. line(row) gives an <li>.
export function longList(rows, line, { first = 200, label = "list", tag = "ul" } = {}) {
  const list = make(tag, null, rows.slice(0, first).map(line));
  const box = make("div", { class: "long", tabindex: "0", role: "region", "aria-label": label }, list);
  if (rows.length > first) {
    const more = make("button", { type: "button", class: "light small" }, `Show all ${rows.length.toLocaleString("en")}`);
    more.addEventListener("click", () => {
      add(list, rows.slice(first).map(line));
      more.remove();
      box.focus();
    });
    return make("div", null, box, make("p", null, more));
  }
  return box;
}

function option(value, text, chosen) {
  return make("option", { value, selected: value === chosen }, text);
}

// Fill a select, and keep what was chosen if it is still there.
export function fillSelect(select, entries, chosen) {
  empty(select).append(...entries.map(([value, text]) => option(value, text, chosen)));
  select.value = chosen;
  return select;
}

export function later(work, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
