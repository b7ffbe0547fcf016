// The model of a run: lists for its users, items that are alike, a newcomer typed in by hand, a map of the items.

import { get, post } from "./api.js";
import { scatter } from "./charts.js";
import { add, card, empty, labelled, make, newId, number, renew } from "./dom.js";
import { fillSelect, later, longList, stars, useStyle } from "./people.js";
import { saveable } from "./saving.js";

const LENGTH = 12;

const titleOf = (entry) => entry.title || `item ${entry.item}`;

// A list of recommended items; each can be asked what is like it.
function recommended(entries, onSimilar) {
  const line = (entry, place) => {
    const similar = onSimilar && make("button", { type: "button", class: "light small", "aria-label": `Items like ${titleOf(entry)}`, onclick: () => onSimilar(entry) }, "alike");
    const because = entry.because && make("span", { class: "because" }, `near ${titleOf(entry.because)}`);
    return make("li", null, make("span", { class: "value quiet" }, `${place + 1}`), make("span", { class: "what" }, titleOf(entry), because), make("span", { class: "value" }, number(entry.score, 3)), similar);
  };
  return entries.length ? longList(entries, (entry) => line(entry, entries.indexOf(entry)), { label: "recommended items", tag: "ol" }) : make("p", null, "No item that may be listed is left.");
}

// A field in which items are looked for; onPick gets the one that is chosen.
function searchBox(id, label, help, onPick) {
  const field = make("input", { type: "search", autocomplete: "off", placeholder: "words of a title" });
  const found = make("div");
  const look = async (text) => {
    const { items } = await get("/api/model/search", { id, q: text });
    if (field.value.trim() !== text) return;
    const line = (one) => make("li", null, make("button", { type: "button", class: "plain pick", onclick: () => onPick(one) }, titleOf(one)));
    empty(found).append(items.length ? longList(items, line, { label: "found items" }) : make("p", { class: "quiet" }, "No title has all these words."));
  };
  const soon = later((text) => look(text).catch((error) => empty(found).append(make("p", { class: "notice bad" }, error.message))), 150);
  field.addEventListener("input", () => {
    const text = field.value.trim();
    if (text) soon(text);
    else empty(found);
  });
  return make("div", null, labelled(label, field, help), found);
}

function usersCard(id, onSimilar) {
  const people = make("datalist", { id: newId("people") });
  const user = make("input", { type: "text", list: people.id, autocomplete: "off", spellcheck: "false" });
  const list = make("div", { "aria-live": "polite" });
  const suggest = async (text) => {
    const found = await get("/api/model/users", { id, q: text });
    empty(people).append(...found.users.map((one) => make("option", { value: one.user }, `${one.num_ratings} ratings`)));
    return found.users;
  };
  const show = async () => {
    try {
      const found = await get("/api/model/list", { id, user: user.value.trim(), k: LENGTH });
      const scale = [0, Math.max(...found.rated.map((one) => one.rating ?? 0), 0)];
      const rated = found.rated.length ? make("details", null, make("summary", null, `Rated before: ${number(found.rated.length)}`), longList(found.rated, (one) => make("li", null, make("span", { class: "what" }, titleOf(one)), stars(one.rating, scale)), { label: "rated before" })) : null;
      empty(list).append(recommended(found.list, onSimilar), rated ?? "");
    } catch (error) {
      empty(list).append(make("p", { class: "notice bad", role: "alert" }, error.message));
    }
  };
  user.addEventListener("input", later(() => suggest(user.value.trim()).catch(() => {}), 150));
  user.addEventListener("change", show);
  suggest("").then((users) => {
    user.value = (users.find((one) => one.num_ratings > 0) ?? users[0])?.user ?? "";
    return user.value && show();
  }).catch((error) => empty(list).append(make("p", { class: "notice bad" }, error.message)));
  return card("A user of the run", labelled("User", user, "An id of the data."), people, list);
}

function newcomerCard(id, model) {
  const given = new Map(); // item -> {title, rating}
  const rated = make("div");
  const list = make("div", { "aria-live": "polite" });
  const steps = model.steps;
  const show = async () => {
    if (!given.size) {
      empty(list);
      return;
    }
    try {
      const ratings = steps.length ? [...given.values()].map((one) => one.rating) : null;
      const found = await post("/api/model/newcomer", { id, items: [...given.keys()], ratings, k: LENGTH });
      empty(list).append(make("h3", null, "For this person"), recommended(found.list, null));
    } catch (error) {
      empty(list).append(make("p", { class: "notice bad", role: "alert" }, error.message));
    }
  };
  const soon = later(show, 120);
  const fill = () => renew(rated, fillRated);
  const fillRated = () => {
    const line = ([item, one]) => {
      const rate = steps.length ? make("span", { class: "rate", role: "group", "aria-label": `Rating of ${one.title}` }, steps.map((step) => make("button", {
        type: "button", "aria-label": `${step} of ${steps[steps.length - 1]}`, "aria-pressed": String(one.rating === step),
        onclick: () => {
          one.rating = step;
          fill();
          soon();
        },
      }, steps.length <= 5 ? (step <= one.rating ? "★" : "☆") : String(step)))) : null;
      const drop = make("button", { type: "button", class: "light small", "aria-label": `Leave out ${one.title}`, onclick: () => { given.delete(item); fill(); soon(); } }, "✕");
      return make("li", null, make("span", { class: "what" }, one.title), rate, steps.length > 5 && make("span", { class: "value" }, String(one.rating)), drop);
    };
    empty(rated);
    if (given.size) add(rated, make("h3", null, "Rated"), longList([...given], line, { label: "ratings given here" }));
  };
  const pick = (one) => {
    given.set(one.item, { title: titleOf(one), rating: steps[steps.length - 1] });
    fill();
    soon();
  };
  if (!model.takes_newcomers) return card("Somebody new", make("p", null, "This model has lists only for people whom it was trained with."));
  return card("Somebody new", make("p", { class: "quiet" }, "Search titles, pick some, click stars. What you give is used for the list, and kept nowhere."), searchBox(id, "Titles", null, pick), rated, list);
}

function similarCard(id, model) {
  const list = make("div", { "aria-live": "polite" });
  const show = async (entry) => {
    try {
      const found = await get("/api/model/similar", { id, item: entry.item, k: LENGTH });
      empty(list).append(make("h3", null, `Like ${titleOf(entry)}`), recommended(found.list, show));
    } catch (error) {
      empty(list).append(make("p", { class: "notice bad", role: "alert" }, error.message));
    }
  };
  if (!model.explains) return { element: card("Items that are alike", make("p", null, "This model has no vectors of items to compare.")), show: null };
  const element = card("Items that are alike", make("p", { class: "quiet" }, "By the cosine of what the model learned."), searchBox(id, "Title", null, show), list);
  return { element, show: (entry) => { show(entry); element.scrollIntoView({ block: "nearest" }); } };
}

async function mapCard(id, onPick) {
  const found = await get("/api/model/map", { id });
  const counts = new Map();
  for (const genre of found.genres ?? []) counts.set(genre, (counts.get(genre) ?? 0) + 1);
  const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 7).map(([genre]) => genre);
  const group = (place) => (found.genres ? (common.includes(found.genres[place]) ? found.genres[place] || "no genre" : "others") : "item");
  const points = found.items.map((item, place) => ({ x: found.x[place], y: found.y[place], label: found.titles[place] || `item ${item}`, group: group(place), size: found.raters[place], item, title: found.titles[place] }));
  const percent = (value) => `${Math.round(100 * (value ?? 0))}%`;
  const figure = scatter({ title: "Items by what the model learned of them", xLabel: `first direction, ${percent(found.shares[0])} of the differences`, yLabel: `second, ${percent(found.shares[1])}`, points, sizeLabel: "raters", onPick });
  return card("A map of the items", make("p", { class: "quiet" }, `${number(points.length)} items as points, in the plane in which their vectors differ most (principal components). Larger: more raters. Click one to see what is like it.`), saveable(figure, "item-map"));
}

async function showModel(place, id) {
  empty(place);
  if (!id) return;
  const model = await get("/api/model/card", { id });
  const similar = similarCard(id, model);
  const scale = model.scale ? `, ratings ${model.scale[0]} to ${model.scale[1]}` : "";
  const map = make("div");
  add(place, make("p", null, make("strong", null, model.system), ` on ${model.data}: ${number(model.num_users)} users, ${number(model.num_items)} items${scale}.`),
    make("div", { class: "triptych" }, usersCard(id, similar.show), similar.element, newcomerCard(id, model)), map);
  if (model.explains) {
    mapCard(id, similar.show).then((element) => map.append(element)).catch((error) => map.append(make("p", { class: "notice bad" }, error.message)));
  }
}

export async function render(main, { id }) {
  useStyle();
  const { runs } = await get("/api/model/runs");
  const known = runs.some((run) => run.id === id) || !id ? runs : [{ id }, ...runs];
  const chosen = id ?? runs[0]?.id ?? "";
  const choice = fillSelect(make("select", { "aria-label": "Run" }), known.length ? known.map((run) => [run.id, run.system === undefined ? run.id : `${run.id}: ${run.system} on ${run.data}`]) : [["", "no run below this folder is done"]], chosen);
  const place = make("div", { class: "page" });
  const show = () => showModel(place, choice.value).catch((error) => empty(place).append(make("p", { class: "notice bad", role: "alert" }, error.message)));
  choice.addEventListener("change", () => {
    history.replaceState(null, "", `#/model/${encodeURIComponent(choice.value)}`);
    show();
  });
  add(main, make("div", { class: "head" }, make("div", null, make("h1", null, "The model"), make("p", { class: "quiet" }, "What a run learned: lists for people, items that are alike, and a map. Computed on this machine, from the run's folder."))),
    make("section", { class: "card" }, labelled("Run", choice)), place);
  await show();
}
