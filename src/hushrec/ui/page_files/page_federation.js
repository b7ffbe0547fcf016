// A federation as its operator's machine sees it, or a node as its owner does. It only reads.

import { follow, get } from "./api.js";
import { add, bytes, card, empty, labelled, make, number, renew, table, when } from "./dom.js";

export async function render(main, { query }) {
  const { federations } = await get("/api/federation/list");
  const choice = make("select", null, federations.map((one) => make("option", { value: one.id }, `${one.id} (${one.kind})`)));
  const status = make("p", { class: "quiet", role: "status" });
  const place = make("div", { class: "page" });
  add(main, make("div", { class: "head" }, make("div", null, make("h1", null, "A federation"), status), federations.length > 1 && labelled("Folder", choice)));
  if (!federations.length) {
    add(main, make("section", { class: "card" }, make("p", null, "None is known here. Start the page with ", make("code", null, "hushrec ui RUNS --federation DIR"), ", where DIR is what ", make("code", null, "hushrec deploy init"), " made, or a node's kit; it only reads them.")));
    return null;
  }
  add(main, place);
  if (federations.some((one) => one.id === query.get("folder"))) choice.value = query.get("folder");
  let leave = () => {};
  const watch = () => {
    leave();
    let last = "";
    let folder = "";
    history.replaceState(null, "", `#/federation?folder=${encodeURIComponent(choice.value)}`);
    const looked = () => {
      const now = `${folder}, read only, looked at ${when(new Date().toISOString())}`;
      if (status.textContent !== now) status.textContent = now; // it is read out when it changes
    };
    leave = follow("/api/federation/events", { id: choice.value }, (told) => {
      const now = JSON.stringify(told);
      folder = told.kind === "node" ? `${told.folder}, a node's kit` : told.folder;
      looked();
      if (now === last) return;
      last = now;
      renew(place, () => (told.kind === "node" ? showNode(told) : show(told)));
    }, (why) => { if (why) status.textContent = `Nothing new comes: ${why}`; }, looked);
  };

  const yes = (is, good, bad, unknown = "not known") => {
    if (is === null || is === undefined) return make("span", { class: "chip" }, `? ${unknown}`);
    return make("span", { class: `chip ${is ? "good" : "bad"}` }, is ? `✓ ${good}` : `✗ ${bad}`);
  };

  function show(told) {
    const { server, nodes, runs } = told;
    const here = nodes.filter((one) => one.is_connected).length;
    empty(place);
    add(place,
      make("div", { class: "columns" },
        card("The server", make("dl", { class: "facts" }, [["address", `${server.host}:${server.port}`], ["engine", server.engine], ["answers", yes(server.is_up, "is up", "does not answer", server.fault ? "not known" : "asking")], ["nodes", server.is_up ? `${here} of ${nodes.length} connected` : String(nodes.length)]]
          .map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value)))), server.fault && make("p", { class: "quiet" }, server.fault)),
        card("What waits", told.waiting.length ? make("ul", null, told.waiting.map((text) => make("li", null, text))) : make("p", null, "Nothing."))),
      card("Nodes", table({
        columns: [{ name: "node", kind: "name" }, { name: "there" }, { name: "takes part because" }, { name: "budget" }, { name: "left out because" }],
        rows: nodes.map((one) => [one.name, yes(one.is_connected, "connected", "not connected"), list(one.consents.map(({ run, words }) => `${run}: ${words}`)), budgets(one.own), list(one.lost.map(({ run, reason }) => `${run}: ${reason}`))]),
      })),
      card("Runs", runs.length ? make("div", { class: "page" }, runs.map(showRun)) : make("p", null, "None was ordered yet: hushrec deploy run SYSTEM DIR orders one.")),
      errors(told.errors));
  }

  function showRun(run) {
    const perRound = run.timed_rounds ? Object.entries(run.seconds).map(([name, value]) => [name, number(value / run.timed_rounds, 3)]) : [];
    const looks = { running: ["▶", "good"], done: ["✓", ""], paused: ["‖", "warn"], failed: ["!", "bad"], ordered: ["…", ""] }[run.status] ?? ["·", ""];
    return make("article", { class: "part" },
      make("h3", { class: "row" }, run.name, make("span", { class: `chip ${looks[1]}` }, `${looks[0]} ${run.status}`)),
      make("progress", { max: run.num_rounds || 1, value: run.round_number, "aria-label": `Rounds of ${run.name}` }),
      make("dl", { class: "facts" }, [["system", run.system], ["round", `${number(run.round_number)} of ${number(run.num_rounds)}`], ["sent", bytes(run.sent_bytes)], ["attempt", number(run.attempt)], ["nodes", [...run.nodes].sort().join(", ") || "–"], ["last change", when(new Date(run.changed * 1000).toISOString())],
        ...perRound.map(([name, value]) => [`${name}, s a round`, value])].map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value)))),
      run.reason && make("p", { class: "bad" }, run.reason),
      make("details", null, make("summary", null, "Settings as ordered"), table({ columns: [{ name: "setting" }, { name: "value" }], rows: Object.entries(run.settings).map(([name, value]) => [name, String(value)]) })));
  }

  function showNode(told) {
    const { own, server } = told;
    empty(place);
    add(place, make("div", { class: "columns" },
      card(`What ${own.node} agreed to`, make("dl", { class: "facts" }, [["server", `${server.host}:${server.port}`], ["systems", own.systems.join(", ")], ["only with", Object.entries(own.required).map(([name, value]) => `${name} ${value}`).join(", ") || "–"]]
        .map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value)))),
        own.accepts_everything ? make("p", { class: "warn" }, "! It accepts everything, for a rehearsal.") : list(Object.entries(own.accepted).map(([words, since]) => `since ${since}: ${words}`)) ?? make("p", null, "Protected settings only.")),
      card("What it gave away", make("dl", { class: "facts" }, [["rounds without noise", number(own.rounds_without_noise)], [`epsilon at delta ${own.delta}`, number(own.epsilon)], ["rounds charged", number(own.rounds)]].map(([name, value]) => make("div", null, make("dt", null, name), make("dd", null, value)))), budgets(own) ?? make("p", { class: "quiet" }, "No budget is set."))),
      card("Its runs", own.runs.length ? table({
        columns: [{ name: "run" }, { name: "system" }, { name: "began" }, { name: "state" }, { name: "rounds", kind: "number" }, { name: "epsilon", kind: "number" }, { name: "consent" }],
        rows: own.runs.map((one) => [one.run.slice(0, 8), one.system, when(one.began), one.ended ? "ended" : "goes on", make("span", null, `${one.rounds_answered} of ${one.most_rounds}`), one.epsilon === null ? make("span", null, "no noise") : one.epsilon, one.consent]),
      }) : make("p", null, "None yet.")),
      errors(told.errors));
  }

  function errors(found) {
    return card("Last errors", found.length ? table({ columns: [{ name: "where" }, { name: "what" }], rows: found.map((one) => [one.where, one.what]) }) : make("p", null, "None."));
  }

  function list(texts) {
    return texts.length ? make("ul", { class: "plain" }, texts.map((text) => make("li", null, text))) : null;
  }

  function budgets(own) {
    const found = Object.entries(own?.budget ?? {});
    return found.length ? make("ul", { class: "plain" }, found.map(([name, one]) => make("li", null, `${name}: ${number(one.charged)} of ${number(one.most)} used, ${number(Math.max(0, one.left))} left `, make("meter", { min: 0, max: one.most || 1, value: one.charged, "aria-label": `Used of ${name}` })))) : null;
  }

  choice.addEventListener("change", watch);
  watch();
  return () => leave();
}
