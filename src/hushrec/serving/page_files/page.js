
"use strict";

const LENGTH = 10;
const part = (id) => document.getElementById(id);
const state = { token: "", card: null, rated: new Map(), asked: 0 };

// --- Asking ---

async function ask(path, body) {
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const options = { headers, method: body ? "POST" : "GET", credentials: "omit", cache: "no-store" };
  if (body) options.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer.");
  }
  const found = await answer.json();
  if (!answer.ok) {
    const error = new Error(found.detail);
    error.status = answer.status;
    throw error;
  }
  return found;
}

// Runs a step; what goes wrong is told, and only the last of several answers is shown.
async function step(work) {
  const number = ++state.asked;
  try {
    const show = await work();
    if (number === state.asked) {
      part("problem").textContent = "";
      if (show) show();
    }
  } catch (error) {
    if (number !== state.asked) return;
    part("problem").textContent = error.message;
    part("status").textContent = "";
    if (error.status === 401) lock();
  }
}

function later(work, milliseconds) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}

// --- Making ---

function made(kind, text, name) {
  const element = document.createElement(kind);
  if (text) element.textContent = text;
  if (name) element.className = name;
  return element;
}

const nameOf = (entry) => entry.title || String(entry.item);
const rounded = (number) => (Math.abs(number) >= 100 ? number.toFixed(0) : number.toPrecision(3));

function button(text, label, kind, act) {
  const element = made("button", text, kind);
  element.type = "button";
  element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

// --- Door and room ---

function lock() {
  state.token = "";
  part("door").hidden = false;
  part("room").hidden = true;
  part("token").focus();
}

function open() {
  step(async () => {
    const card = await ask("v1/model");
    return () => {
      state.card = card;
      part("door").hidden = true;
      part("room").hidden = false;
      part("token").value = "";
      part("model").textContent = `${card.system}, trained on ${card.data}: ${card.num_items} items`;
      part("rated-title").textContent = hasRatings() ? "Your ratings" : "What you like";
      part("kinds").hidden = !card.takes_newcomers;
      choose(card.takes_newcomers ? "newcomer" : "user");
    };
  });
}

const hasRatings = () => state.card.lowest_rating !== null;

function choose(kind) {
  for (const option of document.getElementsByName("kind")) option.checked = option.value === kind;
  part("newcomer").hidden = kind !== "newcomer";
  part("user").hidden = kind !== "user";
  part("list").replaceChildren();
  part("status").textContent = "";
  if (kind === "newcomer") {
    search();
  } else {
    part("user-id").focus();
  }
}

// --- Someone new ---

function search() {
  const query = new URLSearchParams({ q: part("search").value.trim().slice(0, 100), limit: "20" });
  step(async () => {
    const { items } = await ask(`v1/items?${query}`);
    return () => {
      showFound(items);
      if (state.rated.size) listForNewcomer();
    };
  });
}

function showFound(items) {
  const rows = items
    .filter((entry) => !state.rated.has(entry.item))
    .map((entry) => {
      const row = made("li");
      const act = () => {
        state.rated.set(entry.item, { entry, rating: state.card.highest_rating ?? 1 });
        row.remove();
        showRated();
        listForNewcomer();
        part("search").focus();
      };
      row.append(made("span", nameOf(entry), "name"), button("Add", `Add ${nameOf(entry)}`, "light", act));
      return row;
    });
  if (!items.length) rows.push(made("li", "Nothing found.", "quiet"));
  part("found").replaceChildren(...rows);
}

const listSoon = later(() => listForNewcomer(), 250);

function slider(one) {
  const { lowest_rating: low, highest_rating: high } = state.card;
  const element = made("input");
  const shown = made("output", String(one.rating));
  Object.assign(element, { type: "range", min: low, max: high, step: high - low <= 1 ? 1 : 0.5, value: one.rating });
  element.setAttribute("aria-label", `Rating of ${nameOf(one.entry)}`);
  element.addEventListener("input", () => {
    one.rating = Number(element.value);
    shown.textContent = element.value;
    listSoon();
  });
  return [element, shown];
}

function showRated() {
  const rows = [...state.rated.values()].map((one) => {
    const row = made("li");
    const controls = made("span", "", "controls");
    if (hasRatings()) controls.append(...slider(one));
    const act = () => {
      state.rated.delete(one.entry.item);
      showRated();
      listForNewcomer();
      part("search").focus();
    };
    controls.append(button("Remove", `Remove ${nameOf(one.entry)}`, "light", act));
    row.append(made("span", nameOf(one.entry), "name"), controls);
    return row;
  });
  part("rated").replaceChildren(...rows);
  part("rated-none").hidden = rows.length > 0;
}

function listForNewcomer() {
  if (!state.rated.size) {
    part("list").replaceChildren();
    part("status").textContent = "";
    return;
  }
  const rated = [...state.rated.values()];
  const body = { items: rated.map((one) => one.entry.item), k: LENGTH, why: state.card.explains };
  if (hasRatings()) body.ratings = rated.map((one) => one.rating);
  step(async () => {
    const { recommendations } = await ask("v1/recommendations", body);
    return () => showList(recommendations, hasRatings() ? `From your ratings (${rated.length}).` : `From what you like (${rated.length}).`);
  });
}

// --- A user ---

function listForUser(id) {
  const query = new URLSearchParams({ k: String(LENGTH), why: String(state.card.explains) });
  step(async () => {
    const { recommendations } = await ask(`v1/users/${encodeURIComponent(id)}/recommendations?${query}`);
    return () => showList(recommendations, `For user ${id}.`);
  });
}

// --- The list ---

function listSimilar(entry) {
  step(async () => {
    const path = `v1/items/${encodeURIComponent(entry.item)}/similar?k=${LENGTH}`;
    const { recommendations } = await ask(path);
    return () => showList(recommendations, `Like ${nameOf(entry)}.`);
  });
}

function showList(entries, told) {
  const rows = entries.map((entry) => {
    const row = made("li");
    const name = made("span", nameOf(entry), "name");
    if (entry.because) name.append(made("span", `because of ${nameOf(entry.because)}`, "quiet"));
    row.append(name, made("span", rounded(entry.score), "score"));
    if (state.card.explains) {
      row.append(button("Similar", `Items like ${nameOf(entry)}`, "light", () => listSimilar(entry)));
    }
    return row;
  });
  part("list").replaceChildren(...rows);
  part("status").textContent = rows.length ? told : "No item can be listed.";
}

// --- Beginning ---

part("door").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = part("token").value.trim();
  open();
});
part("user").addEventListener("submit", (event) => {
  event.preventDefault();
  listForUser(part("user-id").value.trim());
});
part("search").addEventListener("input", later(search, 200));
for (const option of document.getElementsByName("kind")) {
  option.addEventListener("change", () => choose(option.value));
}
if (document.body.dataset.needsToken === "yes") lock();
else open();
