// All runs: a list that is sorted, filtered and paged by the server, groups, tags, and a choice of runs to compare.

import { get, post } from "./api.js";
import { add, bytes, empty, labelled, make, measure, number, when } from "./dom.js";

const PAGE = 100;
const MOST = 500;
const EVERY = 2500; // milliseconds between two looks
const KEY = "hushrec-chosen";
const SIGNS = { running: "▶", done: "✓", stopped: "◼", unreadable: "!", failed: "!" };
const LOOKS = { running: "good", done: "", stopped: "warn", unreadable: "bad", failed: "bad" };
const USUAL = ["RMSE", "MAE", "NDCG@10", "NDCG@20", "HR@10", "Recall@20"];

export function stateChip(state) {
  return make("span", { class: `chip ${LOOKS[state] ?? ""}` }, make("span", { "aria-hidden": "true" }, SIGNS[state] ?? "·"), state);
}

// A word of a filter, in quotes if it has spaces.
const quoted = (text) => (/\s/.test(text) && !text.includes('"') ? `"${text}"` : text);

export const linkTo = (id) => `#/run/${encodeURIComponent(id)}`;

// Which runs are chosen, in this tab.
export function chosenRuns() {
  try {
    return new Set(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
  } catch {
    return new Set();
  }
}

export async function render(main, { query }) {
  const view = {
    filter: query.get("filter") ?? "",
    sort: query.get("sort") ?? "started",
    descending: query.get("descending") !== "false",
    offset: Math.max(0, Math.trunc(Number(query.get("offset"))) || 0),
    group: query.get("group") ?? "",
    metrics: query.get("metrics")?.split(",").filter(Boolean) ?? [],
    settings: query.get("settings")?.split(",").filter(Boolean) ?? [],
    value: query.get("value") ?? "last",
  };
  const chosen = chosenRuns();
  let told = null;
  let text = "";
  let timer = null;
  let isLeft = false;

  // --- What is always there ---
  const count = make("p", { class: "quiet", role: "status" }, "Looking at the folder…");
  const filter = make("input", { type: "search", value: view.filter, autocomplete: "off", spellcheck: "false", placeholder: "fedrec++ rho=3 RMSE<0.95 tag:good" });
  const group = make("select", null);
  const value = make("select", null, make("option", { value: "last" }, "last"), make("option", { value: "best" }, "best"));
  value.value = view.value;
  const fault = make("p", { class: "bad", role: "alert", hidden: true });
  const waiting = make("div", null);
  const columns = make("details", null, make("summary", null, "Columns"));
  const list = make("div", null);
  const pager = make("div", { class: "row" });
  const chosenBar = make("div", { class: "row", role: "group", "aria-label": "Chosen runs" });
  add(main,
    make("div", { class: "head" }, make("div", null, make("h1", null, "Runs"), count), make("a", { class: "button", href: "#/start" }, "Start a run")),
    waiting,
    make("section", { class: "card", "aria-label": "List of runs" },
      make("div", { class: "fields tools" },
        make("div", { class: "wide-field" }, labelled("Filter", filter, "Words, settings, metrics, columns: all must fit. best:NDCG@10>0.3, state=running, tag:good.")),
        labelled("Group by", group), labelled("Value of metrics", value)),
      fault, columns, chosenBar, list, pager));

  const remember = () => {
    const words = new URLSearchParams();
    for (const [name, one] of Object.entries({ ...view, metrics: view.metrics.join(","), settings: view.settings.join(",") })) {
      if (one !== "" && one !== 0 && !(name === "descending" && one) && !(name === "sort" && one === "started") && !(name === "value" && one === "last")) words.set(name, one);
    }
    history.replaceState(null, "", words.size ? `#/runs?${words}` : "#/runs");
    sessionStorage.setItem(KEY, JSON.stringify([...chosen]));
  };

  const load = async () => {
    clearTimeout(timer);
    try {
      const answer = await get("/api/runs/list", { filter: view.filter, sort: view.sort, descending: view.descending, offset: view.offset, limit: PAGE });
      fault.hidden = true;
      // What is not shown makes no new list: a click on a row that is just replaced would be lost.
      const { num_runs, num_left, is_looking } = answer.progress;
      const now = JSON.stringify([{ ...answer, progress: [num_runs, num_left, is_looking && !num_runs] }, view]);
      if (now !== text) {
        [text, told] = [now, answer];
        await show();
      }
    } catch (error) {
      fault.textContent = error.message;
      fault.hidden = false;
    }
    if (!isLeft) timer = setTimeout(() => (document.hidden ? later() : load()), told?.progress.num_left ? 400 : EVERY);
  };
  const later = () => {
    timer = setTimeout(() => (document.hidden ? later() : load()), EVERY);
  };
  const change = (values) => {
    Object.assign(view, { offset: 0 }, values);
    remember();
    return load();
  };

  // --- What depends on the answer ---
  const metricsShown = () => {
    const known = told.metrics;
    const wanted = view.metrics.filter((name) => known.includes(name));
    const usual = USUAL.filter((name) => known.includes(name)).slice(0, 3);
    return wanted.length ? wanted : usual.length ? usual : known.slice(0, 3);
  };

  async function show() {
    const { progress } = told;
    const left = progress.num_left ? `, ${number(progress.num_left)} still to be read` : "";
    count.textContent = `${number(told.total)} of ${number(progress.num_runs)} runs${left}${progress.is_looking && !progress.num_runs ? ", looking for runs" : ""}`;
    showWaiting();
    fillGroups();
    fillColumns();
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    if (view.group) await showGroups();
    else showTable();
    if (focused) list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    showChosen();
  }

  function showWaiting() {
    empty(waiting);
    for (const one of told.waiting) {
      add(waiting, make("p", { class: `notice${one.is_running ? "" : " bad"}` }, make("a", { href: linkTo(one.id) }, one.id),
        one.is_running ? " is starting." : " ended before its first round, or its folder was moved or deleted; its page says more."));
    }
  }

  function fillGroups() {
    const known = ["", "system", "data", "state", "seed", ...told.settings];
    if (group.options.length === known.length) return;
    empty(group);
    for (const name of known) add(group, make("option", { value: name }, name || "nothing"));
    group.value = view.group;
  }

  function fillColumns() {
    const key = [...told.metrics, "", ...told.settings].join(",");
    if (columns.dataset.key === key) return;
    columns.dataset.key = key;
    while (columns.childElementCount > 1) columns.lastChild.remove();
    const boxes = (title, names, kept, on) => make("fieldset", null, make("legend", null, title), make("div", { class: "boxes" }, names.map((name) =>
      make("label", { class: "box" }, make("input", {
        type: "checkbox", checked: on(name), onchange: (event) => {
          const now = kept === "metrics" ? metricsShown() : view.settings;
          change({ [kept]: event.target.checked ? [...now, name] : now.filter((one) => one !== name), offset: view.offset });
        },
      }), name))));
    const shown = metricsShown();
    add(columns, boxes("Metrics", told.metrics, "metrics", (name) => shown.includes(name)),
      boxes("Settings", told.settings, "settings", (name) => view.settings.includes(name)));
  }

  function heading(title, key, kind) {
    const isSorted = view.sort === key;
    const sign = isSorted ? (view.descending ? " ↓" : " ↑") : "";
    const isFirstDown = kind === "number" || key === "started";
    const button = make("button", {
      type: "button", class: "plain", data: { key: `sort ${key}` },
      onclick: () => change({ sort: key, descending: isSorted ? !view.descending : isFirstDown }),
    }, title, make("span", { "aria-hidden": "true" }, sign));
    return make("th", { scope: "col", class: `${kind === "number" ? "number" : ""}${kind === "main" ? "" : " extra"}`, "aria-sort": isSorted ? (view.descending ? "descending" : "ascending") : null }, button);
  }

  function showTable() {
    const metrics = metricsShown();
    const prefix = view.value === "best" ? "best:" : "";
    const all = make("input", { type: "checkbox", "aria-label": "Choose all runs on this page", checked: told.rows.length > 0 && told.rows.every((row) => chosen.has(row.id)), data: { key: "all" } });
    all.addEventListener("change", () => {
      for (const row of told.rows) if (all.checked) chosen.add(row.id); else chosen.delete(row.id);
      remember();
      showTable();
      showChosen();
    });
    const head = make("tr", null, make("th", { scope: "col" }, all), heading("run", "name", "main"), heading("state", "state"), heading("system", "system"), heading("data", "data"),
      view.settings.map((name) => heading(name, name, "number")),
      metrics.map((name, place) => {
        const cell = heading(name, prefix + name.replaceAll(" ", "_"), "number");
        if (place === 0) cell.classList.remove("extra");
        return cell;
      }),
      heading("rounds", "rounds", "number"), heading("bytes", "bytes", "number"), heading("leakage", "leakage", "number"), heading("started", "started"), make("th", { scope: "col", class: "extra" }, "tags"));
    const body = told.rows.map((row) => {
      const box = make("input", { type: "checkbox", checked: chosen.has(row.id), "aria-label": `Choose ${row.name}`, data: { key: `box ${row.id}` } });
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(row.id);
        else chosen.delete(row.id);
        remember();
        showChosen();
      });
      const cells = row[view.value];
      return make("tr", null, make("td", null, box),
        make("th", { scope: "row", class: "name" }, make("a", { href: linkTo(row.id), data: { key: `run ${row.id}` } }, row.id),
          make("span", { class: "narrow quiet" }, `${row.system} · ${row.data} · ${row.state}`), row.fault && make("span", { class: "bad fault" }, row.fault)),
        make("td", { class: "extra" }, stateChip(row.state)), make("td", { class: "extra" }, row.system), make("td", { class: "extra" }, row.data),
        view.settings.map((name) => make("td", { class: "number extra" }, number(row.config[name]))),
        metrics.map((name, place) => make("td", { class: `number${place ? " extra" : ""}` }, measure(cells[name]))),
        make("td", { class: "number extra" }, number(row.rounds)), make("td", { class: "number extra" }, bytes(row.bytes)),
        make("td", { class: "number extra" }, row.leakage === null ? "–" : number(row.leakage, 2)),
        make("td", { class: "extra when" }, when(row.started)),
        make("td", { class: "extra" }, make("span", { class: "row" }, row.tags.map((tag) => make("a", { class: "chip", href: `#/runs?filter=${encodeURIComponent(`tag:${quoted(tag)}`)}` }, tag)))));
    });
    empty(list);
    if (!told.rows.length && !view.filter && !told.progress.is_looking) {
      add(list, make("p", null, "There is no run here yet. ", make("a", { href: "#/start" }, "Start one"), ", or make one on the command line: ", make("code", null, "hushrec run fedrec++ --data ml-100k --out runs/one")));
    } else {
      if (!told.rows.length) add(list, make("p", null, told.total ? "There are fewer runs than that." : "No run fits this filter."));
      add(list, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
        make("table", { class: "runs" }, make("thead", null, head), make("tbody", null, body))));
    }
    list.dataset.shownAt ??= String(performance.now()); // for whoever measures it
    const last = Math.min(view.offset + PAGE, told.total);
    empty(pager);
    if (told.total > PAGE) {
      add(pager,
        make("button", { type: "button", class: "light", disabled: view.offset === 0, onclick: () => change({ offset: Math.max(0, view.offset - PAGE) }) }, "← Before"),
        make("span", null, `${number(view.offset + 1)} to ${number(last)} of ${number(told.total)}`),
        make("button", { type: "button", class: "light", disabled: last >= told.total, onclick: () => change({ offset: view.offset + PAGE }) }, "After →"));
    }
  }

  async function showGroups() {
    const [metric] = metricsShown();
    empty(pager);
    const prefix = view.value === "best" ? "best:" : "";
    const answer = metric ? await get("/api/runs/groups", { filter: view.filter, by: view.group, metric: prefix + metric.replaceAll(" ", "_") }) : { groups: [] };
    const head = make("tr", null, make("th", { scope: "col" }, view.group), [["runs"], [`best ${metric}`], ["mean"], ["worst"]].map(([name]) => make("th", { scope: "col", class: "number" }, name)));
    const body = answer.groups.map((one) => {
      const text = one.value === null ? "none" : String(one.value);
      const filtered = `${view.filter} ${view.group}=${one.value === null ? "" : quoted(text)}`.trim();
      return make("tr", null, make("th", { scope: "row" }, make("a", { href: `#/runs?filter=${encodeURIComponent(filtered)}`, data: { key: `group ${text}` } }, text)),
        make("td", { class: "number" }, number(one.count)), [one.best, one.mean, one.worst].map((found) => make("td", { class: "number" }, measure(found))));
    });
    add(empty(list), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Runs by ${view.group}` },
      make("table", null, make("caption", null, `${metric ?? "no metric"}, its ${view.value} value, by ${view.group}`), make("thead", null, head), make("tbody", null, body))));
  }

  function showChosen() {
    const some = chosen.size;
    const key = JSON.stringify([some, told.total, view.filter]);
    if (chosenBar.dataset.key === key) return; // somebody may be typing a tag
    chosenBar.dataset.key = key;
    empty(chosenBar);
    if (!some && told.total > MOST) {
      add(chosenBar, make("button", { type: "button", class: "light", onclick: () => doing(chooseFirst) }, `Choose the first ${MOST}`), make("span", { class: "quiet" }, "or tick runs, to compare or to tag them."));
    } else if (!some && told.total > 1) {
      add(chosenBar, make("a", { class: "button light", href: `#/compare?filter=${encodeURIComponent(view.filter)}` }, `Compare all ${number(told.total)}`));
    }
    if (!some) return;
    add(chosenBar, some > MOST ? make("span", { class: "warn" }, `${number(some)} are chosen; at most ${MOST} can be compared.`) : make("a", { class: "button", href: "#/compare" }, `Compare ${number(some)} chosen`));
    const tag = make("input", { type: "text", "aria-label": "Tags for the chosen runs", placeholder: "tags, with commas" });
    add(chosenBar, make("button", { type: "button", class: "light", onclick: () => { chosen.clear(); remember(); showTable(); showChosen(); } }, "Choose none"),
      make("form", { class: "row tagging", onsubmit: async (event) => { event.preventDefault(); await doing(() => tagChosen(tag.value)); } }, tag, make("button", { type: "submit", class: "light" }, "Tag")));
  }

  // What a click does; if it is refused, the line above the list says why.
  async function doing(work) {
    try {
      await work();
    } catch (error) {
      fault.textContent = error.message;
      fault.hidden = false;
    }
  }

  async function chooseFirst() {
    const answer = await get("/api/runs/list", { filter: view.filter, sort: view.sort, descending: view.descending, offset: 0, limit: MOST });
    chosen.clear();
    for (const row of answer.rows) chosen.add(row.id);
    remember();
    await show();
  }

  async function tagChosen(words) {
    const rows = new Map(told.rows.map((row) => [row.id, row.tags]));
    for (const id of chosen) {
      const tags = rows.get(id) ?? (await get("/api/run/show", { id })).tags;
      await post("/api/runs/tag", { id, tags: [...tags, ...words.split(",")] });
    }
    await load();
  }

  let typing = null;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ filter: filter.value }), 200);
  });
  group.addEventListener("change", () => change({ group: group.value }));
  value.addEventListener("change", () => change({ value: value.value }));
  await load();
  return () => {
    isLeft = true;
    clearTimeout(timer);
    clearTimeout(typing);
  };
}
