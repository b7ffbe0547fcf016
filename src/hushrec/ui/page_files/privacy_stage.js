// One run that is watched for one person's privacy: the verdict, the picture, the three lists, the curve.

import { get, post } from "./api.js";
import { lineChart } from "./charts.js";
import { add, bytes, card, draw, empty, labelled, make, number, renew, table } from "./dom.js";
import { fillSelect, longList, stars } from "./people.js";
import { mainMessage, pictureOf } from "./privacy_picture.js";
import { saveable } from "./saving.js";

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
export function makeStage(label, onRounds) {
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
  if (strongest?.repairs.length) {
    const repairs = strongest.repairs.map((repair, place) => [place ? " or " : "", make("code", null, repair)]);
    lines.push(make("p", { class: "quiet" }, "Against it, where a system has it: ", repairs, "."));
  }
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
  const parts = [make("p", { class: "quiet" }, `${bytes(message.bytes)}${letters}. Reveals: ${message.reveals.replaceAll("`", "")}`)];
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
