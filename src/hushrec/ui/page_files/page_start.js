// A form made from what a system declares; what it refuses, it refuses in the command line's words.

import { get, post } from "./api.js";
import { add, empty, labelled, make } from "./dom.js";

const KEY = "hushrec-form";
const PARTS = { first: "What to run", settings: "Settings of the system", measuring: "How it is measured", reading: "How a file is read", speed: "Speed and baselines: changes no number of the model" };

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  }
}

export async function render(main, { query }) {
  const before = kept();
  const { systems } = await get("/api/run/systems");
  const system = make("select", { required: true }, systems.map((one) => make("option", { value: one.name }, `${one.name}: ${one.title.replace(/^[^:]*: /, "")}`)));
  const name = make("input", { type: "text", autocomplete: "off", spellcheck: "false", maxlength: 100, value: before.name ?? "" });
  const wanted = query.get("system") ?? before.system ?? "fedrec++";
  if (systems.some((one) => one.name === wanted)) system.value = wanted;
  const parts = make("div", { class: "page" });
  const fault = make("p", { class: "notice bad", role: "alert", hidden: true });
  const button = make("button", { type: "submit" }, "Start");
  const command = make("code", null);
  const form = make("form", { class: "page", novalidate: true },
    make("section", { class: "card", "aria-label": "System" }, make("div", { class: "fields" }, make("div", { class: "wide-field" }, labelled("System", system)), labelled("Name of the run's folder", name, "Empty: a new one is made up."))),
    parts, fault,
    make("section", { class: "card startbar", "aria-label": "Start" }, make("p", { class: "quiet" }, "The same on the command line: ", command), button));
  add(main, make("div", { class: "head" }, make("div", null, make("h1", null, "Start a run"), make("p", { class: "quiet" }, "It is a process of its own: it goes on when this page, the browser or the server of the page is closed.")), make("a", { class: "button light", href: "#/runs" }, "Back to the list")), form);

  let fields = new Map();
  const values = () => {
    const found = {};
    for (const [key, { option, field }] of fields) {
      if (field.value !== "") found[key] = option.kind === "bool" ? field.value === "true" : field.value;
    }
    return found;
  };
  const retell = () => {
    const now = values();
    const words = Object.entries(now).map(([key, value]) => {
      const { flag, kind } = fields.get(key).option;
      return kind === "bool" ? (value ? flag : flag.replace("--", "--no-")) : `${flag} ${/^[\w.,:=@%+/-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`}`;
    });
    command.textContent = ["hushrec run", system.value, ...words].join(" ");
    sessionStorage.setItem(KEY, JSON.stringify({ system: system.value, name: name.value, values: now }));
  };

  const load = async () => {
    const { options } = await get("/api/run/form", { system: system.value });
    const old = fields.size ? values() : before.values ?? {};
    fields = new Map();
    empty(parts);
    for (const [part, title] of Object.entries(PARTS)) {
      const own = options.filter((option) => option.part === part);
      if (!own.length) continue;
      const grid = make("div", { class: "fields" }, own.map((option) => {
        const field = fieldOf(option, old[option.name]);
        fields.set(option.name, { option, field });
        return labelled(option.flag.slice(2), field, option.help);
      }));
      const isOpen = part === "first" || own.some((option) => option.name in old);
      add(parts, part === "first"
        ? make("section", { class: "card", "aria-label": title }, make("h2", null, title), grid)
        : make("details", { class: "card", open: isOpen }, make("summary", null, make("strong", null, title), ` (${own.length})`), grid));
    }
    retell();
  };

  form.addEventListener("input", retell);
  system.addEventListener("change", load);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    fault.hidden = true;
    for (const field of [name, ...[...fields.values()].map((one) => one.field)]) field.removeAttribute("aria-invalid");
    try {
      const { id } = await post("/api/run/start", { system: system.value, values: values(), name: name.value });
      location.hash = `#/run/${encodeURIComponent(id)}`;
    } catch (error) {
      fault.textContent = error.message;
      fault.hidden = false;
      const culprit = [...fields.values()].find(({ option }) => new RegExp(`${option.flag}(?![\\w-])`).test(error.message));
      if (culprit) {
        culprit.field.setAttribute("aria-invalid", "true");
        const folded = culprit.field.closest("details");
        if (folded) folded.open = true;
        culprit.field.focus();
        return;
      }
      const isName = /^a name has|another name$/.test(error.message);
      if (isName) name.setAttribute("aria-invalid", "true");
      button.disabled = false; // a button that is off cannot have the focus
      (isName ? name : button).focus();
    } finally {
      button.disabled = false;
    }
  });
  await load();
}

function fieldOf(option, value) {
  const usual = option.default === null ? "" : String(option.default);
  const common = { value: value === undefined || value === null ? "" : String(value), required: option.is_needed };
  let field;
  if (option.kind === "bool" || option.choices.length) {
    const choices = option.kind === "bool" ? [["true", "yes"], ["false", "no"]] : option.choices.map((one) => [one, one]);
    const known = { true: "yes", false: "no" }[usual] ?? usual;
    field = make("select", null, make("option", { value: "" }, known ? `usual: ${known}` : "as usual"), choices.map(([one, word]) => make("option", { value: one }, word)));
    field.value = common.value;
  } else {
    field = make("input", { type: "text", inputmode: option.kind === "int" ? "numeric" : option.kind === "float" ? "decimal" : null, autocomplete: "off", spellcheck: "false", placeholder: usual ? `usual: ${usual}` : "", ...common });
    if (option.suggested.length) {
      const list = make("datalist", { id: `${option.name}-known` }, option.suggested.map((one) => make("option", { value: one })));
      field.setAttribute("list", list.id);
      document.body.querySelector(`#${list.id}`)?.remove();
      document.body.append(list);
    }
  }
  field.name = option.name;
  return field;
}
