// One run: what it does now, round by round, and what came of it; stop and resume.

import { follow, get, post } from "./api.js";
import { bars, lineChart } from "./charts.js";
import { add, bytes, card, empty, labelled, make, measure, number, renew, seconds, table, when } from "./dom.js";
import { stateChip } from "./page_runs.js";
import { saveable } from "./saving.js";

const PAINT_EVERY = 400; // milliseconds between two drawings of curves that grow

export async function render(main, { id }) {
  let known = await get("/api/run/show", { id });
  const rounds = []; // as told while it goes on
  const status = { state: known.run ? (known.is_done ? "done" : "stopped") : "starting", phase: "training", seconds_left: null, log: null, num_folds: 1 };
  let fold = null; // which one is shown; null: the last
  let metric = null;

  const title = make("h1", null, id);
  const chip = make("span", null);
  const about = make("p", { class: "quiet" });
  const buttons = make("div", { class: "row" });
  const fault = make("p", { class: "notice bad", role: "alert", hidden: true });
  const broken = make("p", { class: "notice", role: "status", hidden: true });
  const progress = make("progress", { max: 1, value: 0, "aria-label": "Rounds done" });
  const line = make("p", { role: "status" });
  const facts = make("dl", { class: "facts" });
  const live = card("Now", progress, line, facts);
  const metricChoice = make("select", null);
  const foldChoice = make("select", null);
  const curvePlace = make("div", null);
  const bytesPlace = make("div", null);
  const log = make("pre", { class: "log", tabindex: "0", "aria-label": "Log" });
  const logCard = card("Log", log);
  const rest = make("div", { class: "page" });
  add(main,
    make("div", { class: "head" }, make("div", null, make("div", { class: "row" }, title, chip), about), buttons),
    fault, broken, live,
    make("div", { class: "columns" },
      card("Learning curve", make("div", { class: "fields" }, labelled("Metric", metricChoice), labelled("Fold", foldChoice)), curvePlace),
      card("Bytes by message", bytesPlace)),
    logCard, rest);

  // --- Telling ---
  const foldShown = () => fold ?? (rounds.length ? rounds[rounds.length - 1].fold : known.run?.folds.at(-1)?.fold ?? 1);

  // The curve of a fold: as run.json has it if the fold is done, else as it was told.
  function curveOf(name, number) {
    const done = known.run?.folds.find((one) => one.fold === number);
    const told = rounds.filter((one) => one.fold === number && name in one.metrics);
    if (done?.curve[name]) {
      const y = done.curve[name];
      const step = Math.max(1, Math.round(done.num_rounds / y.length));
      return { x: y.map((_, at) => (at + 1) * step), y, isDone: true };
    }
    return { x: told.map((one) => one.round_number), y: told.map((one) => one.metrics[name]), isDone: false };
  }

  function metricNames() {
    const names = new Set();
    for (const one of rounds) for (const name of Object.keys(one.metrics)) names.add(name);
    for (const one of known.run?.folds ?? []) for (const name of Object.keys(one.curve)) names.add(name);
    return [...names];
  }

  function refill(choice, values, wanted) {
    const now = values.join("\n");
    if (choice.dataset.values !== now) {
      choice.dataset.values = now;
      empty(choice);
      for (const value of values) add(choice, make("option", { value }, value));
    }
    if (wanted !== null && wanted !== undefined) choice.value = String(wanted);
  }

  function showCurve() {
    const names = metricNames();
    metric = names.includes(metric) ? metric : names.includes("RMSE") ? "RMSE" : names.find((name) => name.startsWith("NDCG")) ?? names[0] ?? null;
    refill(metricChoice, names, metric);
    const folds = [...new Set([...(known.run?.folds ?? []).map((one) => one.fold), ...rounds.map((one) => one.fold)])].sort((a, b) => a - b);
    refill(foldChoice, folds.length > 1 ? ["all", ...folds] : folds, fold ?? foldShown());
    if (!metric) {
      delete curvePlace.dataset.key;
      empty(curvePlace).append(make("p", { class: "quiet" }, status.state === "running" || status.state === "starting" ? "It begins with the first round that is measured." : "Nothing was measured round by round."));
      return;
    }
    const wanted = fold === "all" ? folds : [foldShown()];
    const series = wanted.map((one) => ({ name: wanted.length > 1 ? `fold ${one}` : metric, ...curveOf(metric, one) })).filter((one) => one.y.length);
    if (!series.length) {
      delete curvePlace.dataset.key;
      empty(curvePlace).append(make("p", { class: "quiet" }, "This fold has no curve of this metric yet."));
      return;
    }
    const key = JSON.stringify([metric, series.map((one) => [one.name, one.isDone, one.y.length])]);
    if (curvePlace.dataset.key === key) return; // a click on what is just replaced would be lost
    curvePlace.dataset.key = key;
    const read = curvePlace.querySelector("figure")?.read; // its reader stays at a round while rounds come
    const figure = saveable(lineChart({ title: `${metric} by round${wanted.length > 1 ? "" : `, fold ${foldShown()}`}`, yLabel: metric, series, read }), `${id.replaceAll("/", "-")}-${metric.replaceAll("@", "-")}`);
    empty(curvePlace).append(figure);
    figure.redraw();
    curvePlace.dataset.points = String(series[0].y.length);
  }

  function showBytes() {
    const number = fold === "all" ? 1 : foldShown();
    const done = known.run?.folds.find((one) => one.fold === number);
    const ways = new Map();
    if (done) for (const one of done.messages) ways.set(one.type, one.bytes);
    else {
      for (const one of rounds.filter((round) => round.fold === number)) {
        for (const [kind, sent] of Object.entries(one.sent_bytes)) ways.set(kind, (ways.get(kind) ?? 0) + sent);
      }
    }
    const rows = [...ways].filter(([, value]) => value).map(([name, value]) => ({ name, value }));
    const key = JSON.stringify([number, Boolean(done), rows]);
    if (bytesPlace.dataset.key === key) return;
    bytesPlace.dataset.key = key;
    empty(bytesPlace);
    if (!rows.length) {
      add(bytesPlace, make("p", { class: "quiet" }, "Nothing was sent yet."));
      return;
    }
    add(bytesPlace, saveable(bars({ title: `Sent in fold ${number}`, label: "bytes", rows, format: bytes }), `${id.replaceAll("/", "-")}-bytes`));
    if (done) {
      const sent = done.messages.filter((one) => one.messages);
      const unsent = done.messages.filter((one) => !one.messages).map((one) => one.type);
      add(bytesPlace, table({
        columns: [{ name: "message" }, { name: "way" }, { name: "messages", kind: "number" }, { name: "rows", kind: "number" }, { name: "bytes", kind: "number", format: bytes }],
        caption: unsent.length ? `Not sent with these settings: ${unsent.join(", ")}.` : "",
        rows: sent.map((one) => [one.type, `${one.sender} → ${one.receiver}`, one.messages, one.rows, one.bytes]),
      }));
    }
  }

  function showNow() {
    empty(chip).append(stateChip(status.state));
    const last = rounds.at(-1);
    const isRunning = status.state === "running";
    live.hidden = !isRunning && status.state !== "starting" && status.state !== "failed" && !(status.state === "stopped" && last);
    const done = last ? (last.fold - 1 + last.round_number / last.num_rounds) / Math.max(1, status.num_folds) : 0;
    progress.value = done;
    const where = last ? `fold ${last.fold} of ${status.num_folds}, round ${last.round_number} of ${last.num_rounds}` : "no round yet";
    const words = { starting: "Starting: data is read.", validation: "Choosing the number of rounds on a part that is held back", training: "Training" };
    if (isRunning) line.textContent = `${words[status.phase] ?? words.training}${last ? `: ${where}` : ""}${status.seconds_left === null ? "" : `, ${seconds(status.seconds_left)} left`}`;
    else if (status.state === "failed") line.textContent = last || known.run ? "Its folder was moved or deleted; what is shown was told before." : "It ended before its first round. The log says why.";
    else line.textContent = `It is stopped: ${where}. Resume goes on from there.`;
    empty(facts);
    if (!last) return;
    const sent = rounds.filter((one) => one.fold === last.fold).reduce((sum, one) => sum + Object.values(one.sent_bytes).reduce((a, b) => a + b, 0), 0);
    const measured = rounds.findLast((one) => Object.keys(one.metrics).length);
    const entries = [["round", `${last.round_number} of ${last.num_rounds}`], ["time so far", seconds(last.seconds)], ["time left", isRunning ? seconds(status.seconds_left) : "–"], ["sent in this fold", bytes(sent)]];
    for (const [name, value] of Object.entries(measured?.metrics ?? {}).slice(0, 6)) entries.push([name, measure(value)]);
    for (const [name, value] of entries) add(facts, make("div", null, make("dt", null, name), make("dd", null, value)));
  }

  function showButtons() {
    const hadFocus = buttons.contains(document.activeElement);
    empty(buttons);
    const act = (word, path, look) => make("button", {
      type: "button", class: look, onclick: async (event) => {
        event.target.disabled = true;
        fault.hidden = true;
        try {
          await post(path, { id });
          if (path.endsWith("forget")) location.hash = "#/runs";
        } catch (error) {
          fault.textContent = error.message;
          fault.hidden = false;
          event.target.disabled = false;
          event.target.focus(); // a button that is off cannot keep it
        }
      },
    }, word);
    const isOn = status.state === "running";
    if (isOn) add(buttons, act("Stop", "/api/run/stop", "bad"));
    if (status.state === "stopped" && known.can_resume) add(buttons, act("Resume", "/api/run/resume", ""));
    if (status.state === "failed") add(buttons, make("a", { class: "button", href: "#/start" }, "Change the settings"), act("Forget it", "/api/run/forget", "light"));
    if (known.run?.folds.length) {
      for (const [page, word] of [["privacy", "Privacy"], ["audit", "Audit"], ["model", "Model"]]) add(buttons, make("a", { class: "button light", href: `#/${page}/${encodeURIComponent(id)}` }, word));
    }
    add(buttons, make("a", { class: "button light", href: "#/runs" }, "All runs"));
    if (hadFocus) buttons.firstElementChild.focus(); // where Stop was is Resume now
  }

  function showRest() {
    const { run } = known;
    about.textContent = run ? `${run.system} on ${run.data}, seed ${run.seed}, started ${when(run.provenance.started)}` : "Not begun yet.";
    empty(rest);
    if (!run) return;
    const side = make("div", { class: "columns" });
    add(rest, side);
    if (run.folds.length) {
      const names = Object.keys(known.mean);
      const baselines = run.folds.every((one) => Object.keys(one.baselines).length) ? Object.keys(run.folds[0].baselines) : [];
      const beside = (name, metricName) => {
        const values = run.folds.map((one) => one.baselines[name]?.[metricName]).filter((value) => value !== undefined);
        return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
      };
      add(side, card("What came of it", table({
        caption: `Means over ${run.folds.length} of ${run.num_folds} folds${baselines.length ? "; beside them models that have all ratings in one place" : ""}.`,
        columns: [{ name: "metric" }, { name: run.system, kind: "number", format: measure }, ...(run.folds.length > 1 ? [{ name: "std", kind: "number", format: measure }] : []), ...baselines.map((name) => ({ name, kind: "number", format: measure }))],
        rows: names.map((name) => [known.is_low_better.includes(name) ? `${name} (lower is better)` : name, known.mean[name], ...(run.folds.length > 1 ? [known.std[name]] : []), ...baselines.map((one) => beside(one, name))]),
      })));
    }
    const tags = make("input", { type: "text", value: known.tags.join(", "), autocomplete: "off" });
    const saved = make("span", { class: "quiet", role: "status" });
    const tagForm = make("form", {
      class: "row", onsubmit: async (event) => {
        event.preventDefault();
        try {
          const answer = await post("/api/runs/tag", { id, tags: tags.value.split(",") });
          tags.value = answer.tags.join(", ");
          saved.textContent = "Kept.";
        } catch (error) {
          saved.textContent = error.message;
        }
      },
    }, labelled("Tags, with commas", tags), make("button", { type: "submit", class: "light" }, "Keep"), saved);
    const chosen = run.chosen.map((one) => make("li", null, one.why));
    add(side,
      card("Settings", table({ columns: [{ name: "setting" }, { name: "value" }], rows: Object.entries(run.config).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : String(value)]) }),
        chosen.length > 0 && make("div", null, make("h3", null, "Chosen by the data"), make("ul", null, chosen))),
      card("Where it comes from",
        make("dl", { class: "facts" }, [["data", run.data], ["users", number(run.provenance.num_users)], ["items", number(run.provenance.num_items)], ["ratings", number(run.provenance.num_ratings)], ["split", run.provenance.split],
          ["folds", `${run.folds.length} of ${run.num_folds}`], ["machine", run.provenance.machine], ["leakage", known.audit_fault || (known.leakage === null ? "not audited" : number(known.leakage, 2))], ["model", run.folds[0]?.model_sha256.slice(0, 16) ?? "–"]]
          .map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value)))),
        tagForm,
        run.command && make("div", null, make("h3", null, "The command that makes it again"), make("p", null, make("code", null, run.command)))));
  }

  function showLog() {
    logCard.hidden = status.log === null;
    if (status.log === null || log.textContent === status.log) return;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    log.textContent = status.log;
    if (isAtEnd) log.scrollTop = log.scrollHeight;
    if (status.state === "failed") {
      const told = status.log.trim().split("\n").findLast((text) => text.startsWith("hushrec: "));
      fault.textContent = told ? told.slice("hushrec: ".length) : rounds.length || known.run ? "Its folder was moved or deleted." : "It ended before its first round.";
      fault.hidden = false;
    }
  }

  let painted = 0;
  let due = null;
  const paint = () => {
    due = null;
    painted = performance.now();
    renew(curvePlace, showCurve);
    renew(bytesPlace, showBytes);
  };
  const paintSoon = () => {
    due ??= setTimeout(paint, Math.max(0, painted + PAINT_EVERY - performance.now()));
  };

  const reload = async () => {
    try {
      known = await get("/api/run/show", { id });
    } catch {
      return; // forgotten or deleted: what is shown stays
    }
    showRest();
    showButtons();
    paintSoon();
  };

  const take = (told) => {
    const before = status.state;
    const foldBefore = rounds.at(-1)?.fold;
    rounds.length = Math.min(rounds.length, told.kept);
    rounds.push(...told.rounds);
    for (const name of ["state", "phase", "seconds_left", "num_folds"]) status[name] = told[name];
    if ("log" in told) status.log = told.log;
    showNow();
    showLog();
    if (before !== status.state || foldBefore !== rounds.at(-1)?.fold || (!known.run && rounds.length)) {
      showButtons();
      reload();
    }
    if (told.rounds.length || told.kept < rounds.length - told.rounds.length) paintSoon();
  };

  metricChoice.addEventListener("change", () => { metric = metricChoice.value; paint(); });
  foldChoice.addEventListener("change", () => { fold = foldChoice.value === "all" ? "all" : Number(foldChoice.value); paint(); });
  showRest();
  showNow();
  showButtons();
  showLog();
  paint();
  const leave = follow("/api/run/events", { id }, take, (why) => {
    broken.textContent = why ? `Nothing new comes: ${why}` : "";
    broken.hidden = !why;
  });
  return () => {
    leave();
    clearTimeout(due);
  };
}
