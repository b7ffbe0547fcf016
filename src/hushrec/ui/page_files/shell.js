// The frame around all pages: which one is shown, the navigation, colours, the token.

import { onTokenWanted } from "./api.js";
import { add, empty, labelled, make } from "./dom.js";

// What stands in the navigation, in this order; the module page_NAME.js renders it.
const PAGES = [
  ["runs", "Runs"],
  ["privacy", "One person's privacy"],
  ["audit", "The audit"],
  ["model", "The model"],
  ["federation", "A federation"],
];
const UNLISTED = { run: "runs", compare: "runs", start: "runs" }; // pages below one of the navigation

const main = document.getElementById("main");
const problem = document.getElementById("problem");
let leave = null;
let turn = 0; // counts renderings, so that a slow one does not write over a later one

function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/");
  let id = rest.length ? rest.join("/") : null;
  try {
    id = id && decodeURIComponent(id);
  } catch {
    // Typed by hand, with a % that says nothing: as it is.
  }
  return { name: name || "runs", id, query: new URLSearchParams(query ?? "") };
}

async function show() {
  const wanted = parse(location.hash);
  const known = PAGES.some(([name]) => name === wanted.name) || Object.hasOwn(UNLISTED, wanted.name);
  const name = known ? wanted.name : "runs";
  turn += 1;
  const mine = turn;
  if (leave) leave();
  leave = null;
  problem.hidden = true;
  markCurrent(UNLISTED[name] ?? name);
  const place = make("div", { class: "page" });
  empty(main).append(place);
  main.setAttribute("aria-busy", "true");
  try {
    const module = await import(`./page_${name}.js`);
    const left = await module.render(place, { id: wanted.id, query: wanted.query });
    if (mine === turn) leave = left ?? null;
    else if (left) left();
    const heading = place.querySelector("h1");
    if (mine === turn && heading) document.title = `${heading.textContent} · hushrec`;
  } catch (error) {
    if (mine === turn) tellProblem(error);
  }
  if (mine === turn) main.removeAttribute("aria-busy");
}

function tellProblem(error) {
  problem.textContent = error.message;
  problem.hidden = false;
}

function markCurrent(name) {
  for (const link of document.querySelectorAll("#pages a")) {
    if (link.dataset.name === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // On narrow screens the navigation is wider than the window.
  document.querySelector("#pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function fillNavigation() {
  const list = document.getElementById("pages");
  for (const [name, title] of PAGES) {
    add(list, make("li", null, make("a", { href: `#/${name}`, data: { name } }, title)));
  }
}

function keepTheme() {
  const choice = document.getElementById("theme");
  const kept = localStorage.getItem("hushrec-theme") ?? "";
  const use = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  choice.value = kept;
  use(kept);
  choice.addEventListener("change", () => {
    localStorage.setItem("hushrec-theme", choice.value);
    use(choice.value);
    window.dispatchEvent(new Event("themechange"));
  });
}

function askForToken() {
  return new Promise((done) => {
    const field = make("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true });
    const form = make("form", { class: "card door" },
      make("h1", null, "A token is needed"),
      labelled("Token", field, "As hushrec ui printed it. It stays in this tab until you close it."),
      make("button", { type: "submit" }, "Enter"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      form.remove();
      done(field.value.trim());
    });
    main.append(form);
    field.focus();
  });
}

let asking = null; // one form for all requests that wait for a token
onTokenWanted(() => {
  asking ??= askForToken().finally(() => { asking = null; });
  return asking;
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the router's
  main.focus();
});
fillNavigation();
keepTheme();
window.addEventListener("hashchange", show);
show();
