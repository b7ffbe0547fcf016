// Up to 500 runs beside each other: learning curves, parallel coordinates, accuracy against bytes against leakage.

import { post } from "./api.js";
import { lineChart, parallel, scatter } from "./charts.js";
import { add, bytes, card, empty, labelled, make, measure, number, table } from "./dom.js";
import { chosenRuns, linkTo, stateChip } from "./page_runs.js";
import { saveable } from "./saving.js";

const MOST_AXES = 9;

export async function render(main, { query }) {
  const asked = query.has("filter") || !chosenRuns().size ? { filter: query.get("filter") ?? "" } : { ids: [...chosenRuns()] };
  const status = make("p", { class: "quiet", role: "status" }, "Reading…");
  add(main, make("div", { class: "head" }, make("div", null, make("h1", null, "Runs beside each other"), status), make("a", { class: "button light", href: "#/runs" }, "Back to the list")));
  const metric = make("select", null);
  const group = make("select", null);
  const place = make("div", { class: "page" });
  add(main, make("section", { class: "card", "aria-label": "What is compared" }, make("div", { class: "fields" }, labelled("Metric", metric), labelled("Look by", group, "Runs of one value share colour, dash and marker."))), place);

  let found = null;
  const load = async () => {
    found = await post("/api/runs/compare", { ...asked, metric: metric.value });
    if (!metric.options.length) {
      for (const name of found.metrics) add(metric, make("option", { value: name }, name));
      metric.value = found.metric;
      for (const name of ["system", "data", ...differing(found.rows)]) add(group, make("option", { value: name }, name));
      const systems = new Set(found.rows.map((row) => row.system));
      if (systems.size === 1 && group.options.length > 2) group.value = group.options[2].value;
    }
    show();
  };

  const show = () => {
    const { rows, curves } = found;
    status.textContent = `${number(rows.length)} runs, ${found.metric || "no metric"}`;
    const byGroup = (row) => `${group.value} ${valueOf(row, group.value)}`;
    const series = rows.map((row, at) => ({ name: row.id, group: byGroup(row), x: curves[at].x, y: curves[at].y })).filter((one) => one.y.length);
    const open = (one) => { location.hash = linkTo(one.name ?? one.label); };
    const settings = telling(rows).slice(0, MOST_AXES - 3);
    const columns = ["rounds", "bytes"].filter((name) => new Set(rows.map((row) => row[name])).size > 1);
    const metricOf = (row) => row.last[found.metric] ?? null;
    const axes = [...settings.map((name) => ({ name, kind: isNumeric(rows, name) ? "number" : "text" })),
      ...columns.map((name) => ({ name, kind: "number" })), { name: found.metric || "metric", kind: "number" }];
    const lines = rows.map((row) => ({ name: row.id, group: byGroup(row), values: [...settings.map((name) => row.config[name] ?? null), ...columns.map((name) => row[name]), metricOf(row)] }));
    const points = rows.map((row) => ({ label: row.id, group: byGroup(row), x: row.bytes, y: metricOf(row), size: row.leakage ?? undefined }));
    const hasLeakage = rows.some((row) => row.leakage !== null);
    empty(place);
    add(place,
      make("div", { class: "columns" },
        card("Learning curves", series.length ? saveable(lineChart({ title: `${found.metric} by round`, yLabel: found.metric, series, onPick: open }), "curves") : make("p", null, "None of these runs has a curve of this metric.")),
        card("Accuracy, bytes and leakage",
          make("p", { class: "quiet" }, hasLeakage ? "The larger a marker, the more the strongest attack of an audit learned (0: a blind guess, 1: all). Hollow: not audited." : "None of these runs was audited, so leakage is not known: hushrec audit RUN attacks one and keeps what it finds."),
          saveable(scatter({ title: `${found.metric} against bytes sent`, xLabel: "bytes sent in a fold", yLabel: found.metric || "metric", points, sizeLabel: hasLeakage ? "leakage" : null, logX: spread(points) > 20, xFormat: bytes, onPick: open }), "accuracy-bytes-leakage"))),
      card("Settings and what came of them", saveable(parallel({ title: "One line per run", axes, rows: lines, onPick: open }), "parallel-coordinates")),
      card("The runs", tableOf(rows, settings, found.metric)));
    place.dataset.shown = String(rows.length);
    // For whoever measures it: when all of it has been painted.
    requestAnimationFrame(() => requestAnimationFrame(() => { place.dataset.shownAt = String(performance.now()); }));
  };

  metric.addEventListener("change", load);
  group.addEventListener("change", show);
  await load();
}

function valueOf(row, name) {
  const value = name === "system" || name === "data" ? row[name] : row.config[name];
  return value === undefined || value === null ? "none" : String(value);
}

// Settings that not all runs have alike, those first that make the fewest groups.
function differing(rows) {
  const names = new Set(rows.flatMap((row) => Object.keys(row.config)));
  const counts = [...names].map((name) => [name, new Set(rows.map((row) => valueOf(row, name))).size]);
  return counts.filter(([, count]) => count > 1).sort((a, b) => a[1] - b[1]).map(([name]) => name);
}

// Settings of which runs that have them have different values, those first that most runs have, and in most ways.
function telling(rows) {
  const valuesOf = (name) => rows.map((row) => row.config[name]).filter((value) => value !== undefined && value !== null);
  const found = differing(rows).map((name) => [name, valuesOf(name)]).filter(([, values]) => new Set(values).size > 1);
  const size = ([, values]) => new Set(values).size;
  return found.sort((a, b) => b[1].length - a[1].length || size(b) - size(a)).map(([name]) => name);
}

function isNumeric(rows, name) {
  return rows.every((row) => row.config[name] === undefined || row.config[name] === null || typeof row.config[name] === "number");
}

function spread(points) {
  const found = points.map((point) => point.x).filter((x) => x > 0);
  return found.length ? Math.max(...found) / Math.min(...found) : 1;
}

function tableOf(rows, settings, metric) {
  const columns = [{ name: "run", kind: "name" }, { name: "state" }, { name: "system" }, { name: "data" }, ...settings.map((name) => ({ name, kind: "number" })),
    { name: `${metric}, last`, kind: "number", format: measure }, { name: "best", kind: "number", format: measure }, { name: "bytes", kind: "number", format: bytes }, { name: "leakage", kind: "number" }];
  const shown = rows.slice(0, 200);
  return table({
    caption: rows.length > shown.length ? `The first ${shown.length} of ${rows.length}.` : "",
    columns,
    rows: shown.map((row) => [make("a", { href: linkTo(row.id) }, row.id), stateChip(row.state), row.system, row.data, ...settings.map((name) => row.config[name] ?? null), row.last[metric] ?? null, row.best[metric] ?? null, row.bytes, row.leakage]),
  });
}
