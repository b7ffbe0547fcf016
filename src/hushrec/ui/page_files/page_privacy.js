// One person's privacy: what is private, what left the device, and what a curious server concludes of it.

import { get, post } from "./api.js";
import { lineChart, saveable, table } from "./charts.js";
import { add, bytes, card, draw, empty, labelled, make, newId, number, renew } from "./dom.js";
import { fillSelect, later, longList, stars, useStyle } from "./people.js";
import { mainMessage, pictureOf } from "./privacy_picture.js";

const FIRST_ROWS = 120;
const WORDS = { read: "Read", some: "Partly known", nothing: "Hidden" };

// --- Signs ---------------------------------------------------------------------------------------------------------

// An open eye, one half shut, one that is shut.
function eye(tone) {
  const line = { fill: "none", stroke: "currentColor", "stroke-width": 2.4, "stroke-linecap": "round", "stroke-linejoin": "round" };
  const lid = tone === "nothing" ? draw("path", { ...line, d: "M3,14Q18,28 33,14M8,19L5,23M14,22L12.5,27M22,22L23.5,27M28,19L31,23" }) : draw("path", { ...line, d: "M3,18Q18,2 33,18Q18,34 3,18Z" });
  const pupil = tone === "read" ? draw("circle", { cx: 18, cy: 18, r: 5.5, fill: "currentColor" }) : tone === "some" ? draw("path", { d: "M12.5,18A5.5,5.5 0 0 0 23.5,18Z", fill: "currentColor" }) : null;
  return draw("svg", { viewBox: "0 0 36 36", width: 42, height: 42, "aria-hidden": "true" }, lid, pupil);
}

// --- One run that is watched ---------------------------------------------------------------------------------------

// A stage shows one run. It tells the page when rounds came, and shows the round that it is told to.
function makeStage(label, onRounds) {
  const verdict = make("section", { class: "card verdict", "aria-live": "polite", "aria-label": `Verdict: ${label}` });
  const progress = make("progress", { max: 1, value: 0, "aria-label": "rounds computed", hidden: true });
  const fault = make("p", { class: "notice bad", role: "alert", hidden: true });
  const picture = make("div", { class: "card dims" });
  const lists = make("div", { class: "triptych dims" });
  const more = make("div", { class: "columns dims" });
  const element = make("div", { class: "stage" }, fault, verdict, progress, picture, lists, more);
  const state = { id: null, person: null, rounds: [], details: new Map(), isDone: true, attack: null, wanted: null, shown: 0 };
  let turn = 0;

  async function start(wanted) {
    turn += 1;
    const mine = turn;
    if (state.id && !state.isDone) post("/api/privacy/stop", { id: state.id }).catch(() => {});
    element.setAttribute("aria-busy", "true");
    fault.hidden = true;
    const began = performance.now();
    try {
      let status = await post("/api/privacy/watch", wanted);
      if (mine !== turn) return;
      Object.assign(state, { id: status.id, person: status.person, rounds: [], details: new Map(), isDone: false, attack: null, wanted, shown: 0 });
      for (;;) {
        state.rounds.push(...status.rounds);
        state.isDone = status.is_done;
        progress.max = status.num_rounds;
        progress.value = state.rounds.length;
        progress.hidden = status.is_done;
        if (status.rounds.length) {
          element.dataset.milliseconds = String(Math.round(performance.now() - began));
          onRounds();
        }
        if (status.is_done) break;
        status = await get(`/api/privacy/watch/${state.id}`, { known: state.rounds.length });
        if (mine !== turn) return;
      }
      if (status.fault) throw new Error(status.fault);
    } catch (error) {
      if (mine !== turn) return;
      progress.hidden = true;
      state.isDone = true;
      tell(error);
      if (!state.rounds.length) for (const part of [verdict, picture, lists, more]) empty(part);
    }
    element.dataset.done = state.id ?? "";
    element.removeAttribute("aria-busy");
  }

  function tell(error) {
    fault.textContent = error.message;
    fault.hidden = false;
  }

  async function show(round) {
    const number = Math.min(round, state.rounds.length);
    if (number < 1) return;
    const { id } = state;
    if (!state.details.has(number)) state.details.set(number, get(`/api/privacy/watch/${id}/rounds/${number}`));
    let detail;
    try {
      detail = await state.details.get(number);
    } catch (error) {
      state.details.delete(number); // it is asked for again
      if (id === state.id) tell(error);
      return;
    }
    if (id !== state.id) return;
    state.shown = number;
    element.dataset.round = String(number);
    element.dataset.tone = detail.tone;
    render(detail);
  }

  function render(detail) {
    renew(element, () => fill(detail));
  }

  function fill(detail) {
    const { person, wanted } = state;
    const attack = detail.attacks.find((one) => one.name === state.attack) ?? detail.attacks[0] ?? null;
    const who = wanted.with_denoisers ? "Server and denoisers" : "The server";
    showVerdict(verdict, detail, person, label);
    const title = `${wanted.system}, ${wanted.data}, one of ${number(person.num_people)} people, round ${detail.round}`;
    const read = picture.querySelector("figure")?.read;
    const figure = saveable(pictureOf({ person, detail, attack, who, title, read }), `privacy-${wanted.system.replaceAll("+", "p")}-round-${detail.round}`);
    empty(picture).append(figure);
    figure.redraw();
    empty(lists).append(privateList(person), sentList(detail, person), saidList(detail, attack, person, (name) => {
      state.attack = name;
      render(detail);
    }));
    empty(more).append(curve(state.rounds, wanted), attackTable(detail));
  }

  return { element, state, start, show, end: () => { turn += 1; if (state.id && !state.isDone) post("/api/privacy/stop", { id: state.id }).catch(() => {}); } };
}

function showVerdict(place, detail, person, label) {
  place.className = `card verdict ${detail.tone}`;
  const strongest = detail.attacks[0];
  const facts = [make("span", { class: "chip" }, WORDS[detail.tone])];
  if (strongest) {
    facts.push(make("span", { class: "chip" }, `strongest attack: ${strongest.name}`), make("span", { class: "chip" }, `✓ ${number(strongest.right)} right`), make("span", { class: "chip" }, `✗ ${number(strongest.wrong)} wrong`), make("span", { class: "chip" }, `○ ${number(strongest.missed)} not found`));
  }
  const lines = [make("div", { class: "row" }, facts)];
  if (strongest?.repairs.length) lines.push(make("p", { class: "quiet" }, `Against it, where a system has it: ${strongest.repairs.join(" or ")}.`));
  if (detail.unnamed?.read) {
    const own = detail.unnamed.own;
    lines.push(make("p", { class: "quiet" }, `Besides, ${number(detail.unnamed.read)} ratings of items that one person alone rated were read out of the sum, without a name${own ? `; ${number(own)} of them are this person's` : ""}.${detail.unnamed.has_switch ? " The switch secure least raters leaves such items out." : ""}`));
  }
  empty(place).append(make("div", { class: "sign" }, eye(detail.tone)), make("div", null, label && make("p", { class: "quiet" }, label), make("h2", { class: "sentence" }, detail.sentence)), make("div", { class: "below" }, lines));
}

// --- The three lists -----------------------------------------------------------------------------------------------

function privateList(person) {
  const order = person.items.map((_, place) => place);
  if (person.ratings) order.sort((a, b) => person.ratings[b] - person.ratings[a]);
  const line = (place) => make("li", null, make("span", { class: "what" }, person.titles[person.items[place]]), stars(person.ratings?.[place] ?? null, person.scale));
  return card("What is private", make("p", { class: "quiet" }, `${number(person.items.length)} ${person.ratings ? "ratings" : "items"} on this person's device.`), longList(order, line, { label: "private ratings" }));
}

function reader(message) {
  if (message.seen) return "seen";
  return message.sealed ? "sealed: carried, not opened" : "not seen";
}

function sentList(detail, person) {
  const own = new Set(person.items);
  const mark = make("input", { type: "checkbox" });
  const box = make("div");
  const fill = () => {
    empty(box).append(...detail.sent.map((message) => messageOf(message, message === mainMessage(detail.sent), detail.titles, mark.checked ? own : null)));
    if (!detail.sent.length) add(box, make("p", null, "Nothing left this device in this round."));
  };
  mark.addEventListener("change", fill);
  fill();
  const total = detail.sent.reduce((sum, one) => sum + one.bytes, 0);
  return card("What left the device", make("p", { class: "quiet" }, `${number(detail.sent.length)} message${detail.sent.length === 1 ? "" : "s"}, ${bytes(total)}, as the transcript of round ${detail.round} has them.`), make("label", { class: "check" }, mark, "Mark this person's own items (only here)"), box);
}

function messageOf(message, isOpen, titles, own) {
  const letters = message.sealed ? `, ${number(message.letters)} letter${message.letters === 1 ? "" : "s"}` : "";
  const summary = make("summary", null, `${message.type} to ${message.to} `, make("span", { class: `chip ${message.seen ? "bad" : "good"}` }, reader(message)));
  const parts = [make("p", { class: "quiet" }, `${bytes(message.bytes)}${letters}. Reveals: ${message.reveals}`)];
  const single = Object.entries(message.single);
  if (single.length) parts.push(make("p", { class: "numbers" }, single.map(([name, values]) => `${name} ${values.join(", ")}`).join("; ")));
  if (message.items) parts.push(rowsOf(message, titles, own));
  for (const column of message.columns.filter((one) => one.numbers)) {
    const rest = column.count - column.numbers.length;
    parts.push(make("p", { class: "numbers", tabindex: "0" }, `${column.name}: ${column.numbers.join(" ")}${rest > 0 ? ` … and ${number(rest)} more` : ""}`));
  }
  return make("details", { class: "message", open: isOpen }, summary, parts);
}

function rowsOf(message, titles, own) {
  const columns = message.columns.filter((column) => column.rows);
  const line = (place) => {
    const item = message.items[place];
    const isOwn = own?.has(item);
    const cells = columns.map((column) => make("td", { class: column.width > 1 ? "numbers" : "number" }, `${column.rows[place].join(" ")}${column.width > column.rows[place].length ? " …" : ""}`));
    return make("tr", null, make("th", { scope: "row", class: "name" }, own && (isOwn ? "● own: " : "○ virtual: "), titles[item]), cells);
  };
  const body = make("tbody", null, message.items.slice(0, FIRST_ROWS).map((_, place) => line(place)));
  const head = make("tr", null, make("th", { scope: "col" }, "item"), columns.map((column) => make("th", { scope: "col", class: column.width > 1 ? null : "number" }, `${column.name}${column.width > 1 ? `, ${column.width} numbers` : ""}`)));
  const frame = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `rows of ${message.type}` }, make("table", null, make("thead", null, head), body));
  if (message.items.length <= FIRST_ROWS) return frame;
  const more = make("button", { type: "button", class: "light small" }, `Show all ${number(message.items.length)} rows`);
  more.addEventListener("click", () => {
    add(body, message.items.slice(FIRST_ROWS).map((_, place) => line(place + FIRST_ROWS)));
    more.remove();
    frame.focus();
  });
  return make("div", null, frame, make("p", null, more));
}

function saidList(detail, attack, person, onAttack) {
  if (!attack) {
    const sum = detail.people_in_sum;
    return card("What is concluded", make("p", null, sum ? `The attacks tried find nothing in a sum over ${number(sum)} people that is this person's alone.` : "The attacks tried find nothing of this person."));
  }
  const choice = fillSelect(make("select"), detail.attacks.map((one) => [one.name, `${one.name} (${one.right} right, ${one.wrong} wrong)`]), attack.name);
  choice.addEventListener("change", () => onAttack(choice.value));
  const truth = new Map(person.items.map((item, place) => [item, person.ratings?.[place] ?? null]));
  const titles = { ...person.titles, ...detail.titles };
  const rows = attack.items.map((item, place) => ({ item, rating: attack.ratings[place], isRight: attack.is_right[place], isExact: attack.is_exact[place] }));
  rows.sort((a, b) => b.isRight - a.isRight || (b.rating ?? 0) - (a.rating ?? 0));
  const said = new Set(attack.items);
  for (const item of person.items) if (!said.has(item)) rows.push({ item, rating: null, isMissed: true });
  const line = (row) => {
    if (row.isMissed) return make("li", { class: "missed" }, make("span", { class: "mark", "aria-label": "not found" }, "○"), make("span", { class: "what" }, titles[row.item]), make("span", { class: "value" }, "not found"));
    const isGood = row.isRight && (row.rating === null || row.isExact);
    const note = row.isRight && !isGood ? ` (it is ${truth.get(row.item)})` : "";
    return make("li", { class: row.isRight ? "right" : "wrong" }, make("span", { class: `mark ${row.isRight ? "bad" : "quiet"}`, "aria-label": row.isRight ? "right" : "wrong" }, row.isRight ? "✓" : "✗"), make("span", { class: "what" }, titles[row.item]), row.rating === null ? make("span", { class: "value" }, row.isRight ? "right" : "wrong") : make("span", null, stars(row.rating, person.scale), note));
  };
  const since = attack.since < detail.round ? ` Known since round ${attack.since}.` : "";
  return card("What is concluded", labelled("Attack", choice), make("p", { class: "quiet" }, `It guesses ${attack.guesses}. ✓ right, ✗ wrong, ○ not found.${since}`), longList(rows, line, { label: "conclusions" }));
}

// --- Over the rounds -----------------------------------------------------------------------------------------------

function curve(rounds, wanted) {
  const x = rounds.map((one) => one.round);
  const figure = lineChart({
    title: "Precision and recall of the strongest attack", xLabel: "round", yLabel: "share", yRange: [0, 1],
    series: [{ name: "precision: of what is concluded, right", x, y: rounds.map((one) => one.precision) }, { name: "recall: of what is private, found", x, y: rounds.map((one) => one.recall) }],
  });
  return make("section", { class: "card" }, saveable(figure, `privacy-curve-${wanted.system.replaceAll("+", "p")}`));
}

function attackTable(detail) {
  if (!detail.attacks.length) return card("Attacks", make("p", null, "No attack that was tried says anything of this person. That is no proof that nothing can be known."));
  return card("Attacks of this round", table({
    caption: "The strongest first: by how well it does on the other people of the run.",
    columns: [{ name: "attack", kind: "name" }, { name: "by", kind: "text" }, { name: "right", kind: "number" }, { name: "wrong", kind: "number" }, { name: "not found", kind: "number" }, { name: "F1, others", kind: "number", format: (value) => value.toFixed(3) }],
    rows: detail.attacks.map((one) => [one.name, one.by, one.right, one.wrong, one.missed, one.f1_of_others]),
  }));
}

// --- What is chosen ------------------------------------------------------------------------------------------------

const PREFIX = "set.";

function read(query, choices) {
  const system = choices.systems.some((one) => one.name === query.get("system")) ? query.get("system") : "fedrec++";
  const settings = {};
  for (const [name, value] of query) {
    if (!name.startsWith(PREFIX)) continue;
    const key = name.slice(PREFIX.length);
    const declared = choices.systems.find((one) => one.name === system).switches.find((one) => one.name === key);
    if (!declared) continue;
    const typed = declared.kind === "switch" ? value === "true" : declared.kind === "choice" ? value : Number(value);
    if (!Number.isNaN(typed)) settings[key] = typed;
  }
  const whole = (name, usual, most) => Math.min(Math.max(1, Number.parseInt(query.get(name) ?? "", 10) || usual), most);
  return {
    data: query.get("data") || choices.data[0], user: query.get("user") ?? "", system, settings,
    num_rounds: whole("rounds", 5, choices.limits.rounds), num_people: Math.max(choices.limits.least_people, whole("people", 100, choices.limits.people)),
    with_denoisers: query.get("helpers") === "yes", beside: query.get("beside") === "yes",
  };
}

function write(wish, round) {
  const query = new URLSearchParams({ data: wish.data, user: wish.user, system: wish.system, rounds: wish.num_rounds, people: wish.num_people });
  for (const [name, value] of Object.entries(wish.settings)) query.set(PREFIX + name, String(value));
  if (wish.with_denoisers) query.set("helpers", "yes");
  if (wish.beside) query.set("beside", "yes");
  if (round) query.set("round", round);
  history.replaceState(null, "", `#/privacy?${query}`);
}

// What a run was: its data, system and switches, where they can be watched here, and a line on what cannot.
async function likeRun(id, choices) {
  const query = new URLSearchParams();
  let run = null;
  try {
    ({ run } = await get("/api/run/show", { id }));
  } catch (error) {
    return { query, note: error.message };
  }
  const notes = [];
  const system = choices.systems.find((one) => one.name === run?.system);
  if (choices.data.includes(run?.data)) query.set("data", run.data);
  else notes.push("its data is not among those that can be watched here");
  if (system) query.set("system", system.name);
  else notes.push("in its system no person sends anything to a server");
  for (const { name, value } of system?.switches ?? []) {
    if (name in run.config && run.config[name] !== value) query.set(PREFIX + name, String(run.config[name]));
  }
  return { query, note: notes.length ? `Not as in ${id}: ${notes.join("; ")}.` : `Data, system and switches are those of ${id}; people and rounds are fewer, to see it at once.` };
}

const isSame = (one, other) => {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  return [...names].every((name) => one[name] === other[name]);
};

export async function render(main, { id, query: asked }) {
  useStyle();
  const choices = await get("/api/privacy/choices");
  const { query, note } = id ? await likeRun(id, choices) : { query: asked, note: "" };
  const wish = read(query, choices);
  const systemOf = (name) => choices.systems.find((one) => one.name === name);
  let base = wish.system; // whose ways of protection are offered
  let round = Number.parseInt(query.get("round") ?? "", 10) || 0; // 0: the newest

  // Who and where.
  const data = fillSelect(make("select"), [...new Set([...choices.data, wish.data])].map((name) => [name, name]), wish.data);
  const people = make("datalist", { id: newId("people") });
  const user = make("input", { type: "text", list: people.id, autocomplete: "off", spellcheck: "false", required: true });
  const numPeople = make("input", { type: "number", min: choices.limits.least_people, max: choices.limits.people, value: wish.num_people });
  const numRounds = make("input", { type: "number", min: 1, max: choices.limits.rounds, value: wish.num_rounds });
  const system = fillSelect(make("select"), choices.systems.map((one) => [one.name, one.title]), wish.system);
  const ways = make("fieldset", { class: "ways" });
  const switches = make("div", { class: "switches" });
  const beside = make("input", { type: "checkbox", checked: wish.beside });
  const helpers = make("input", { type: "checkbox", checked: wish.with_denoisers });
  const helpersLabel = make("label", { class: "check" }, helpers, "Denoisers share what they saw with the server");

  // Rounds.
  const slider = make("input", { type: "range", min: 1, max: wish.num_rounds, value: wish.num_rounds, "aria-label": "Round" });
  const told = make("output", null, "");
  const play = make("button", { type: "button", class: "light small" }, "▶ Play");
  const rounds = make("section", { class: "card rounds", "aria-label": "Rounds" }, told, slider, play);

  const first = makeStage("", () => sync());
  const second = makeStage("The same person, in a repaired run", () => sync());
  const stages = make("div", { class: "stages" }, first.element);

  const active = () => (wish.beside ? [first, second] : [first]);
  const sync = () => {
    const come = Math.max(...active().map((one) => one.state.rounds.length), 0);
    slider.max = wish.num_rounds;
    const now = round ? Math.min(round, Math.max(come, 1)) : come;
    slider.value = now || 1;
    told.textContent = `Round ${now || 1} of ${wish.num_rounds}`;
    for (const one of active()) one.show(now);
  };

  const repaired = () => {
    return systemOf(base).ways.findLast((way) => way.is_repair) ?? null;
  };

  const start = () => {
    if (!wish.user) return;
    write(wish, round);
    const common = { data: wish.data, user: wish.user, num_rounds: wish.num_rounds, num_people: wish.num_people };
    const jobs = [first.start({ ...common, system: wish.system, settings: wish.settings, with_denoisers: wish.with_denoisers })];
    const way = repaired();
    stages.replaceChildren(first.element);
    if (wish.beside && way) {
      stages.append(second.element);
      jobs.push(jobs[0].then(() => second.start({ ...common, system: way.system, settings: way.settings, with_denoisers: false })));
    }
    return Promise.all(jobs);
  };
  const soon = later(start, 120);

  const set = (name, value, declared) => {
    if (value === declared.value) delete wish.settings[name];
    else wish.settings[name] = value;
    fillWays();
    soon();
  };

  // The ways of the system that was chosen stay, also while one of them is shown that is in another system.
  function fillWays() {
    if (ways.dataset.system !== base) {
      ways.dataset.system = base;
      empty(ways).append(make("legend", null, "Protection"), ...systemOf(base).ways.map(wayOf));
    }
    systemOf(base).ways.forEach((way, place) => {
      ways.querySelectorAll("input")[place].checked = way.system === wish.system && isSame(way.settings, wish.settings);
    });
  }

  function wayOf(way) {
    const radio = make("input", { type: "radio", name: "way" });
    radio.addEventListener("change", () => {
      wish.system = way.system;
      wish.settings = { ...way.settings };
      system.value = way.system;
      fillSystem();
      soon();
    });
    return make("label", null, radio, way.name);
  }

  function fillSwitches() {
    empty(switches);
    for (const one of systemOf(wish.system).switches) {
      const value = wish.settings[one.name] ?? one.value;
      const name = one.name.replaceAll("_", " ");
      const help = one.value === one.published ? one.help : `${one.help}; published: ${one.published}`;
      if (one.kind === "switch") {
        const box = make("input", { type: "checkbox", checked: value, data: { setting: one.name } });
        box.addEventListener("change", () => set(one.name, box.checked, one));
        add(switches, make("div", { class: "field" }, make("label", { class: "check" }, box, name), make("p", { class: "help" }, help)));
        continue;
      }
      const field = one.kind === "choice" ? fillSelect(make("select"), one.choices.map((word) => [word, word]), value) : make("input", { type: "number", step: one.kind === "real" ? "any" : 1, value });
      field.dataset.setting = one.name;
      field.addEventListener("change", () => {
        const typed = one.kind === "choice" ? field.value : one.kind === "whole" ? Number.parseInt(field.value, 10) : Number.parseFloat(field.value);
        if (!Number.isNaN(typed)) set(one.name, typed, one);
      });
      add(switches, labelled(name, field, help));
    }
  }

  function fillSystem() {
    const chosen = systemOf(wish.system);
    helpersLabel.hidden = !chosen.has_denoisers;
    if (!chosen.has_denoisers) {
      helpers.checked = false;
      wish.with_denoisers = false;
    }
    fillWays();
    fillSwitches();
  }

  const findPeople = async (text) => {
    const found = await get("/api/privacy/users", { data: wish.data, q: text });
    empty(people).append(...found.users.map((one) => make("option", { value: one.user }, `${one.num_ratings} ratings`)));
    return found.users;
  };
  const suggest = later((text) => findPeople(text).catch(() => {}), 150);
  const fail = (error) => {
    stages.replaceChildren(make("p", { class: "notice bad", role: "alert" }, error.message));
  };
  const openData = async () => {
    const found = await findPeople("");
    if (!wish.user) wish.user = (found.find((one) => one.num_ratings >= 20) ?? found[0])?.user ?? "";
    user.value = wish.user;
  };

  data.addEventListener("change", () => {
    Object.assign(wish, { data: data.value, user: "" });
    openData().then(start).catch(fail);
  });
  user.addEventListener("input", () => suggest(user.value));
  user.addEventListener("change", () => { wish.user = user.value.trim(); soon(); });
  const counted = (field, name) => field.addEventListener("change", () => {
    const typed = Number.parseInt(field.value, 10);
    if (Number.isNaN(typed)) return;
    wish[name] = typed;
    soon();
  });
  counted(numPeople, "num_people");
  counted(numRounds, "num_rounds");
  system.addEventListener("change", () => {
    base = system.value;
    Object.assign(wish, { system: base, settings: {} });
    fillSystem();
    soon();
  });
  helpers.addEventListener("change", () => { wish.with_denoisers = helpers.checked; soon(); });
  beside.addEventListener("change", () => { wish.beside = beside.checked; soon(); });
  slider.addEventListener("input", () => {
    round = Number(slider.value);
    write(wish, round);
    sync();
  });
  let timer = 0;
  const pause = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶ Play";
  };
  play.addEventListener("click", () => {
    if (timer) {
      pause();
      return;
    }
    round = 0;
    play.textContent = "❚❚ Pause";
    timer = setInterval(() => {
      const come = Math.max(...active().map((one) => one.state.rounds.length), 0);
      if (round >= come) pause();
      else {
        round += 1;
        sync();
      }
    }, 900);
  });

  fillSystem();
  const help = `So many people of the data, drawn by a seed, take part; fewer are faster.`;
  add(main,
    make("div", { class: "head" }, make("div", null, make("h1", null, "One person's privacy"), make("p", { class: "quiet" }, "What is private, what leaves the device, and what a curious server makes of it. The run is real, the attacks see messages alone, and the truth only marks what they say as right or wrong. Nothing leaves this machine."))),
    make("section", { class: "card", "aria-label": "What is watched" },
      make("div", { class: "fields" }, labelled("Data", data), labelled("Person", user, "An id of the data."), labelled("System", system), labelled("People", numPeople, help), labelled("Rounds", numRounds)),
      make("div", { class: "row" }, ways), make("div", { class: "row" }, make("label", { class: "check" }, beside, "Show a repaired run beside it"), helpersLabel),
      make("details", { open: window.innerWidth > 768 }, make("summary", null, "Switches"), switches)),
    note && make("p", { class: "notice", role: "status" }, note), rounds, stages);
  openData().then(start).catch(fail);
  return () => {
    pause();
    for (const one of [first, second]) one.end();
  };
}
