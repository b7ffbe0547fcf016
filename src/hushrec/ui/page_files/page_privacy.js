// One person's privacy: what is private, what left the device, and what a curious server concludes of it.

import { get } from "./api.js";
import { add, empty, labelled, make, newId } from "./dom.js";
import { fillSelect, later, useStyle } from "./people.js";
import { makeStage } from "./privacy_stage.js";

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
