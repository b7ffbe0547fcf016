// The audit: verdicts, what attacks learn round after round, the ledger of epsilon, published beside repaired.

import { get } from "./api.js";
import { bars, lineChart, scatter } from "./charts.js";
import { add, bytes, card, empty, labelled, make, number, seconds, table } from "./dom.js";
import { fillSelect, useStyle } from "./people.js";
import { saveable } from "./saving.js";

const share = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));
const MOST_LINES = 8;

// What the leakage of a comparison is in words.
function word(advantage) {
  if (advantage >= 0.9) return "reads it";
  if (advantage >= 0.5) return "reads most";
  if (advantage >= 0.1) return "learns something";
  return advantage > 0.01 ? "learns a little" : "at chance";
}

function toneOf(advantage) {
  if (advantage >= 0.5) return "bad";
  return advantage >= 0.1 ? "warn" : "good";
}

function chipOf(finding) {
  return make("span", { class: `chip ${toneOf(finding.is_above_chance ? finding.advantage : 0)}` }, finding.word);
}

// --- One run -------------------------------------------------------------------------------------------------------

function verdictsOf(audit) {
  const lines = audit.verdicts.map((line) => make("li", null, line));
  return card("Verdicts", make("p", { class: "quiet" }, `Audit of ${audit.date}, ${number(audit.rounds)} rounds. 0 is a blind guess, 1 is knowing all.`), lines.length ? make("ul", null, lines) : make("p", null, "No attack that was tried learned anything. That is no proof that nothing can be known."));
}

function curvesOf(audit, name) {
  const told = audit.findings.filter((one) => one.curve.some((value) => value !== null));
  if (!told.length) return null;
  const shown = told.slice(0, MOST_LINES);
  const series = shown.map((one) => ({ name: `${one.name} (${one.role})`, y: one.curve.map((value) => (value === null ? null : Math.min(Math.max(value, 0), 1))), group: one.role }));
  const left = told.length - shown.length;
  const figure = saveable(lineChart({ title: "What attacks learn, round after round: 0 is a blind guess, 1 is all", yLabel: "advantage", yRange: [0, 1], series }), `audit-${name}`);
  return make("section", { class: "card" }, figure, left > 0 && make("p", { class: "quiet" }, `The ${MOST_LINES} strongest; ${left} more are in the table.`));
}

function findingsOf(audit) {
  return card("Attacks", table({
    caption: "The strongest first.",
    columns: [{ name: "attack", kind: "name" }, { name: "by", kind: "text" }, { name: "measure", kind: "text" }, { name: "score", kind: "number" }, { name: "blind", kind: "number" }, { name: "advantage", kind: "number", format: share }, { name: "in words", kind: "text" }, { name: "what it says", kind: "long" }],
    rows: audit.findings.map((one) => [one.name, one.role, one.measure, one.score, one.chance, one.advantage, chipOf(one), one.sentence ?? ""]),
  }));
}

function ledgerOf(ledger, name) {
  const parts = [];
  if (ledger.total) {
    const { epsilon, delta, unit } = ledger.total;
    parts.push(make("p", null, `All that this run releases with noise tells of one ${unit} at most epsilon ${number(epsilon)} at delta ${number(delta)}.`));
  }
  const told = Object.entries(ledger.told);
  if (told.length) parts.push(table({ columns: [{ name: "as the run told it", kind: "name" }, { name: "value", kind: "number" }], rows: told }));
  if (ledger.curve.length > 1) parts.push(saveable(lineChart({ title: "Epsilon spent after each round", yLabel: "epsilon", series: [{ name: "epsilon", y: ledger.curve }] }), `epsilon-${name}`));
  if (!parts.length) parts.push(make("p", null, "No noise bounds what this run tells: it has no epsilon. What protects it, if anything, are masks, ciphers or lists."));
  return card("The ledger of epsilon", ...parts);
}

async function showRun(place, id) {
  empty(place);
  if (!id) return null;
  const found = await get("/api/audit/run", { id });
  const name = id.replaceAll("/", "-");
  add(place, make("h2", null, `${found.system} on ${found.data}`));
  if (!found.audit) {
    add(place, make("p", { class: "notice" }, "This run was not audited. To attack it, type: ", make("code", null, found.command)));
  } else {
    add(place, verdictsOf(found.audit), make("div", { class: "columns" }, curvesOf(found.audit, name), ledgerOf(found.ledger, name)), findingsOf(found.audit));
  }
  if (!found.audit) add(place, ledgerOf(found.ledger, name));
  return found;
}

// --- Published beside repaired -------------------------------------------------------------------------------------

function nameOf(row, rows) {
  if (!row.switches) return `${row.system}, published`;
  const repairs = rows.filter((one) => one.system === row.system && one.switches);
  return `${row.system}, repaired${repairs.length > 1 ? ` ${repairs.indexOf(row) + 1}` : ""}`;
}

function leakText(look) {
  if (!look) return "–";
  if (!look.attack) return "0.00 nothing to read";
  return `${share(look.advantage)} ${look.advantage > 0.01 ? look.attack : "at chance"}${look.stand_in ? ", stand-in" : ""}`;
}

function comparisonOf(survey, wanted) {
  const rows = survey.rows.filter((row) => !wanted || row.system === wanted);
  const drawn = rows.filter((row) => row.accuracy !== null && row.leakage !== null && !row.fault);
  const parts = [];
  for (const metric of new Set(drawn.map((row) => row.metric))) {
    const points = drawn.filter((row) => row.metric === metric).map((row) => ({ x: row.leakage, y: row.accuracy, label: nameOf(row, rows), group: row.switches ? "repaired" : "published", size: row.up_bytes }));
    const isError = drawn.find((row) => row.metric === metric).is_error;
    parts.push(make("section", { class: "card" }, saveable(scatter({ title: `${metric} against leakage (${isError ? "lower" : "higher"} is better)`, xLabel: "leakage: 0 is a blind guess, 1 is all", yLabel: metric, points, sizeLabel: "bytes up" }), `leakage-${survey.data}-${metric}`)));
  }
  const systems = [...new Set(drawn.map((row) => row.system))].filter((name) => drawn.some((row) => row.system === name && row.switches));
  const pairs = drawn.filter((row) => systems.includes(row.system));
  if (pairs.length) {
    parts.push(make("section", { class: "card" }, saveable(bars({
      title: "Leakage to curious parties, published beside repaired", label: "leakage",
      rows: pairs.map((row) => ({ name: nameOf(row, rows), value: row.leakage, group: row.switches ? "repaired" : "published", text: `${share(row.leakage)} ${word(row.leakage)}` })),
    }), `repaired-${survey.data}`)));
  }
  const lines = table({
    caption: survey.heading,
    columns: [{ name: "system", kind: "name" }, { name: "settings", kind: "text" }, { name: "accuracy", kind: "text" }, { name: "up", kind: "number", format: bytes }, { name: "CPU", kind: "number", format: seconds }, { name: "server", kind: "text" }, { name: "others", kind: "text" }, { name: "active server", kind: "text" }, { name: "change", kind: "long" }],
    rows: rows.map((row) => [row.system, row.switches || "published", row.fault ? "not measured" : `${row.metric} ${number(row.accuracy)}`, row.up_bytes, row.cpu_seconds, row.has_all_rows ? "has all rows" : leakText(row.looks.server), leakText(row.looks.others), leakText(row.looks.active), row.change]),
  });
  const notes = make("details", null, make("summary", null, "What the numbers are"), make("ul", null, survey.notes.map((line) => make("li", null, line))));
  return [make("div", { class: "columns" }, parts), make("section", { class: "card" }, lines, notes)];
}

export async function render(main, { id }) {
  useStyle();
  const [{ runs }, { comparisons }] = await Promise.all([get("/api/audit/runs"), get("/api/audit/comparisons")]);
  const place = make("div", { class: "page" });
  const known = runs.some((run) => run.id === id) || !id ? runs : [{ id }, ...runs];
  const choice = fillSelect(make("select", { "aria-label": "Audited run" }), [["", runs.length ? "choose a run" : "no run below this folder was audited"], ...known.map((run) => [run.id, run.system === undefined ? run.id : `${run.id}: ${run.system} on ${run.data}${run.strongest === undefined || run.strongest === null ? "" : `, strongest ${share(run.strongest)}`}`])], id ?? runs[0]?.id ?? "");
  const show = async () => {
    const found = await showRun(place, choice.value);
    // The list may be older than the run's own folder.
    if (found && !runs.some((run) => run.id === choice.value)) {
      choice.selectedOptions[0].textContent = `${choice.value}: ${found.audit ? `${found.system} on ${found.data}` : "not audited"}`;
    }
  };
  const tell = (error) => empty(place).append(make("p", { class: "notice bad", role: "alert" }, error.message));
  choice.addEventListener("change", () => {
    history.replaceState(null, "", choice.value ? `#/audit/${encodeURIComponent(choice.value)}` : "#/audit");
    show().catch(tell);
  });

  const survey = make("select");
  fillSelect(survey, comparisons.map((one, at) => [String(at), `${one.data}, ${one.date}, ${one.origin}`]), "0");
  const system = make("select");
  const shown = make("div", { class: "page" });
  const fill = () => empty(shown).append(...comparisonOf(comparisons[Number(survey.value)], system.value));
  const fillSystems = () => {
    const names = [...new Set(comparisons[Number(survey.value)].rows.map((row) => row.system))];
    fillSelect(system, [["", "all systems"], ...names.map((name) => [name, name])], "");
    fill();
  };
  survey.addEventListener("change", fillSystems);
  system.addEventListener("change", fill);

  add(main, make("div", { class: "head" }, make("div", null, make("h1", null, "The audit"), make("p", { class: "quiet" }, "What attacks learn of people, beside blind guessing. hushrec audit RUN attacks a run and keeps what it finds; it is shown here."))),
    card("An audited run", choice, !runs.length && make("p", { class: "quiet" }, "To audit one, type: ", make("code", null, "hushrec audit RUN"))),
    place, make("h2", null, "Published beside repaired"), make("div", { class: "fields" }, make("div", { class: "wide-field" }, labelled("Comparison", survey)), labelled("System", system)), shown);
  fillSystems();
  await show().catch(tell);
}
