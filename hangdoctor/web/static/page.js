// The live page. All text from the job is inserted as text, never as markup.

import { arrangements } from "./arrange.js";
import { Grid, clip } from "./grid.js";
import { banner, canCapture, element, hangs, headline, reportLink, say } from "./headline.js";
import { CAUSE, GLYPHS, Model, SAYS, STATES, SUSPECT, clock, rangesOf, seconds } from "./model.js";

const $ = (id) => document.getElementById(id);
const model = new Model();
const grid = new Grid($("grid"), model);
const QUIET_S = 10; // without a frame for this long the connection counts as lost
let asked = -1, shownIncidents = null, opened = -1, tracing = false, lostAt = 0;

// ------------------------------------------------------------------ the stream

function listen() {
  const source = new EventSource("/api/v1/stream");
  const take = (full) => (event) => {
    model.apply(JSON.parse(event.data), full);
    link("live", "live");
    lostAt = 0;
    show();
  };
  source.addEventListener("full", take(true));
  source.addEventListener("delta", take(false));
  source.onerror = async () => {
    lost();
    if (source.readyState !== EventSource.CLOSED) return;
    const answer = await fetch("/api/v1/status").catch(() => null);
    if (answer && answer.status === 401) location.assign("/login");
    else setTimeout(listen, 3000);
  };
}

function link(state, words) {
  $("link").className = `link ${state}`;
  say($("link"), words);
  document.body.classList.toggle("stale", state === "lost");
}

function lost() {
  lostAt = lostAt || Date.now();
  link("lost", "connection lost, reconnecting");
  banner(model, lostAt);
  $("capture").disabled = true;
}

setInterval(() => { if (model.status && performance.now() - model.seenAt > QUIET_S * 1000) lost(); }, 2000);

// ------------------------------------------------------------------ showing

function show() {
  const status = model.status, seen = model.size > (status.counts.unseen || 0);
  headline(model);
  banner(model, lostAt);
  say($("job"), jobs(status));
  $("job").title = $("job").textContent;
  figures(status);
  grid.culprits = culprits(status);
  legend(status);
  for (const id of ["frame", "tip", "legend", "scale"]) $(id).hidden = !seen;
  if (seen) grid.draw();
  arranged();
  empty();
  if (!performance.getEntriesByName("grid").length && model.size) performance.mark("grid");
  say($("scale"), `${model.size} rank${model.size === 1 ? "" : "s"}${grid.perNode() > 1 ? `, ${grid.perNode()} per node` : ""}. Arrow keys move, Enter shows one.`);
  standings();
  stragglers();
  incidents();
  detail();
  waitForCapture();
  $("capture").disabled = asked >= 0 || !canCapture(model, lostAt);
  $("trace").hidden = !status.can_trace || Boolean(status.ended);
  say($("foot"), `${status.agents} of ${status.nodes} agents connected · ${status.messages.toLocaleString("en")} messages, ${(status.bytes / 1e6).toFixed(1)} MB · times are UTC, as in the reports`);
}

// The ranks that the newest verdict about this hang names; before there is one, those for which the others wait.
function culprits(status) {
  const newest = model.incidents.find((i) => i.id === status.incident);
  const texts = newest && newest.ranks ? [newest.ranks] : model.standings.filter((s) => s.holds).map((s) => s.ranks.replace(/,?\.\.\.$/, ""));
  const found = new Set();
  if (status.ended) return found;
  for (const fits of texts.map(rangesOf).filter(Boolean)) for (let i = 0; i < model.size; i++) if (fits(i)) found.add(i);
  return found;
}

function arranged() {
  const place = $("arrange"), ways = arrangements(model);
  const key = ways.map(([name]) => name).join();
  if (place.dataset.of !== key) {
    place.dataset.of = key;
    place.replaceChildren(...ways.map(([name, title]) => { const way = element("option", title); way.value = name; return way; }));
  }
  const shown = grid.shown || grid.name();
  if (place.value !== shown) place.value = shown;
}

function empty() {
  let any = !grid.match;
  for (let i = 0; i < model.size && !any; i++) any = grid.match(i);
  $("empty").hidden = any && model.size > (model.status.counts.unseen || 0);
  say($("empty"), any ? "No rank to show yet." : `No rank matches "${clip($("filter").value, 60)}". Esc clears the filter.`);
}

function jobs(status) {
  const names = Object.keys(status.jobs);
  return names.length ? names.map((n) => clip(n, 80)).join(", ") : "no job yet";
}

function figures(status) {
  const [low, high] = status.iteration;
  const facts = [
    ["iteration", low < 0 ? "–" : low === high ? `${low}` : `${low} to ${high}`],
    ["per iteration", status.pace_s ? seconds(status.pace_s) : "–"],
    ["last progress", status.counts.moving ? "now" : status.idle_s ? `${seconds(status.idle_s)} ago` : "–"],
    ["watchdog", status.stalled ? "stalled" : status.warm ? "watching" : "learning the normal step time"],
    ["nodes", status.silent.length ? `${status.nodes}, no answer from ${status.silent.join(", ")}` : `${status.nodes}`],
    ["captures", status.captures ? `${status.captures}, last ${seconds(status.capture_s)}` : "none"],
  ];
  const place = $("figures");
  while (place.children.length < facts.length) { const box = element("div"); box.append(element("dt"), element("dd")); place.append(box); }
  facts.forEach(([name, value], i) => { say(place.children[i].children[0], name); say(place.children[i].children[1], value); });
}

const guilty = element("li");
guilty.append(element("span", CAUSE, "swatch"), element("b"), element("span", "cause"));
guilty.title = "The others wait for it: by the newest verdict, or before there is one by what is seen now";
paint(guilty.firstChild, "cause");

function paint(swatch, state) {
  swatch.style.backgroundColor = `var(--${state})`;
  swatch.style.color = `var(--on-${state})`;
}

function legend(status) {
  const place = $("legend");
  const wanted = STATES.filter((s) => status.counts[s]);
  if (place.dataset.of !== wanted.join()) {
    place.dataset.of = wanted.join();
    place.replaceChildren(...wanted.map((state) => {
      const item = element("li"), swatch = element("span", GLYPHS[STATES.indexOf(state)], `swatch ${state}`);
      paint(swatch, state);
      item.append(swatch, element("b"), element("span", state));
      item.title = SAYS[state];
      return item;
    }), guilty);
  }
  guilty.hidden = !grid.culprits.size;
  say(guilty.children[1], `${grid.culprits.size}`);
  wanted.forEach((state, i) => say(place.children[i].children[1], `${status.counts[state]}`));
}

function standings() {
  const body = $("standing").tBodies[0], rows = model.standings;
  while (body.rows.length > rows.length) body.deleteRow(-1);
  while (body.rows.length < rows.length) {
    const row = body.insertRow(), pick = element("button", "", "pick");
    pick.addEventListener("click", () => { filterBy(row.dataset.ranks); });
    row.insertCell().append(pick);
    row.insertCell().append(element("span"), element("span", "", "where"));
    row.insertCell().className = "number";
    row.insertCell().className = "number";
  }
  rows.forEach((one, i) => {
    const row = body.rows[i], [ranks, where, time, holds] = row.cells;
    row.dataset.ranks = one.ranks;
    row.className = one.holds ? "culprit" : "";
    const sign = one.holds ? `${CAUSE} ` : "";
    say(ranks.firstChild, sign + (one.count > 1 && one.ranks.length > 24 ? `${one.count}: ${clip(one.ranks, 22)}` : one.ranks));
    ranks.firstChild.title = `Show rank ${one.ranks}`;
    say(where.children[0], place(one));
    say(where.children[1], [one.nodes, one.phase && `phase ${clip(one.phase, 40)}`, one.iteration >= 0 && `iteration ${one.iteration}`].filter(Boolean).join(" · "));
    say(time, one.for_s ? seconds(one.for_s) : "");
    say(holds, one.holds ? `${one.holds}` : "");
  });
  $("standing-more").hidden = !model.more;
  say($("standing-more"), `and ${model.more} more places`);
}

function place(one) {
  const glyph = GLYPHS[STATES.indexOf(one.state)];
  if (one.state === "waiting") return `${glyph} waiting in ${clip(one.op || "an operation", 60)}${one.seq ? ` #${one.seq}` : ""}`;
  return `${glyph ? `${glyph} ` : ""}${SAYS[one.state]}${SUSPECT.includes(one.state) && one.op ? `, after ${clip(one.op, 60)}` : ""}`;
}

function stragglers() {
  const found = [];
  const lag = model.columns.lag;
  const least = Math.max(10, model.status.pace_s * 150); // less is chance
  for (let i = 0; i < model.size; i++) if (lag[i] >= least) found.push(i);
  found.sort((a, b) => lag[b] - lag[a]);
  const top = found.slice(0, 5), list = $("late");
  if (!top.length) { if (list.dataset.of !== "none") { list.dataset.of = "none"; list.replaceChildren(element("li", "No rank arrives later than the others.", "none")); } return; }
  if (list.dataset.of === "none" || list.children.length !== top.length) {
    list.dataset.of = "some";
    list.replaceChildren(...top.map(() => { const item = element("li"), pick = element("button", "", "pick"); pick.addEventListener("click", () => open(Number(pick.dataset.rank))); item.append(pick, document.createElement("meter"), element("span", "", "number")); return item; }));
  }
  top.forEach((rank, i) => {
    const [pick, meter, text] = list.children[i].children;
    say(pick, `rank ${rank}`);
    pick.dataset.rank = rank;
    meter.max = lag[top[0]];
    meter.value = lag[rank];
    say(text, seconds(lag[rank] / 1000));
  });
}

function incidents() {
  if (shownIncidents === model.incidents) return;
  shownIncidents = model.incidents;
  const list = $("incidents");
  if (!model.incidents.length) { list.replaceChildren(element("li", model.status.trouble || "None so far.", "none")); return; }
  list.replaceChildren(...hangs(model.incidents).slice(0, 50).map(incident));
}

// All captures of one hang, newest first.
function incident(group) {
  const one = group[0], item = element("li"), meta = element("div", undefined, "meta");
  const look = ["hang", "slow", "failed", "healthy"].includes(one.status) ? one.status : "";
  meta.append(element("span", (one.status || one.state).toUpperCase(), `pill ${look}`), element("span", clock(one.at)), element("span", clip(one.reason, 90)));
  item.append(meta, element("div", clip(one.summary, 600)));
  if (one.state === "saved") item.append(reportLink(one, "Open the report"));
  else item.append(element("div", "its bundle was not saved or was removed", "none"));
  const before = group.slice(1).filter((i) => i.state === "saved");
  if (before.length) {
    const times = element("div", `same hang, captured ${group.length} times; before: `, "times");
    times.append(...before.slice(0, 8).map((i) => reportLink(i, clock(i.at))));
    item.append(times);
  }
  return item;
}

// ------------------------------------------------------------------ one rank

function open(rank) {
  opened = rank;
  grid.selected = rank;
  $("rank").hidden = false;
  grid.draw();
  detail();
}

function close() {
  opened = -1;
  $("rank").hidden = true;
  $("grid").focus();
}

function detail() {
  if (opened < 0 || opened >= model.size) return;
  const told = model.rank(opened);
  say($("rank-title"), `Rank ${opened}: ${SAYS[told.state]}`);
  const facts = [
    ["node", told.node || "–"], ["iteration", told.iteration < 0 ? "–" : `${told.iteration}`], ["phase", told.phase || "–"],
    [told.state === "waiting" ? "waits in" : "last operation", told.op ? `${told.op}${told.seq ? ` #${told.seq}` : ""}` : "–"],
    ["for", told.for_s ? seconds(told.for_s) : "it is moving"], ["arrival lag", told.lag_s ? seconds(told.lag_s) : "none"],
  ];
  const place = $("rank-facts");
  while (place.children.length < facts.length) { const box = element("div"); box.append(element("dt"), element("dd")); place.append(box); }
  facts.forEach(([name, value], i) => { say(place.children[i].children[0], name); say(place.children[i].children[1], clip(value, 200)); });
}

// In a line of its own below the grid, so that it covers nothing.
function tip(rank) {
  if (rank < 0 || rank >= model.size) { say($("tip"), ""); return; }
  const told = model.rank(rank);
  const words = [`Rank ${rank}${told.node ? ` on ${clip(told.node, 40)}` : ""}: ${grid.culprits.has(rank) ? "a cause, " : ""}${SAYS[told.state]}`];
  if (told.iteration >= 0 || told.phase) words.push([told.iteration >= 0 && `iteration ${told.iteration}`, clip(told.phase, 40)].filter(Boolean).join(", "));
  if (told.op) words.push(`${told.state === "waiting" ? "in" : "last"} ${clip(told.op, 40)}${told.for_s ? `, ${seconds(told.for_s)}` : ""}`);
  say($("tip"), words.join("; "));
}

// ------------------------------------------------------------------ asking

async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body || {}) });
  if (answer.status === 401) { location.assign("/login"); return null; }
  const told = await answer.json();
  if (!answer.ok) note(`${told.error} ${told.help || ""}`, true);
  return answer.ok ? told : null;
}

function note(words, bad) {
  $("note").hidden = !words;
  $("note").className = bad ? "note bad" : "note";
  say($("note"), words);
}

async function capture() {
  if ($("capture").disabled) return;
  $("capture").disabled = true;
  note("Capturing all ranks …");
  const told = await post("/api/v1/capture").catch(() => { note("The collector did not answer.", true); return null; });
  asked = told ? told.concluded : -1;
  if (!told && model.status) $("capture").disabled = !canCapture(model, lostAt);
}

function waitForCapture() {
  if (asked < 0 || model.concluded <= asked) return;
  asked = -1;
  const newest = model.incidents[0];
  note(newest ? `Captured: ${clip(newest.summary, 300)}` : "Captured: no hang was found, no incident was saved.");
}

async function switchTrace() {
  const told = await post("/api/v1/trace", { on: !tracing }).catch(() => { note("The collector did not answer.", true); return null; });
  if (!told) return;
  tracing = told.on;
  say($("trace"), tracing ? "Trace off" : "Trace on");
  $("trace").setAttribute("aria-pressed", String(tracing));
  note(told.says);
}

// ------------------------------------------------------------------ filter and keys

function filterBy(text) {
  $("filter").value = text;
  const wanted = text.trim().toLowerCase();
  if (!wanted) grid.match = null;
  else {
    const spans = rangesOf(wanted.replace(/\s/g, "").replace(/,?\.\.\.$/, ""));
    grid.match = spans || ((r) => { const t = model.rank(r); return [t.node, t.op, t.phase, t.state].some((v) => v.toLowerCase().includes(wanted)); });
  }
  grid.draw();
  empty();
}

function zoomed(by) {
  if (by > 0 && grid.atMost) return;
  grid.zoom = Math.max(0, grid.zoom + by);
  grid.draw();
  grid.show();
}

$("filter").addEventListener("input", () => filterBy($("filter").value));
$("filter").addEventListener("keydown", (event) => { if (event.key === "Escape") { filterBy(""); $("grid").focus(); event.stopPropagation(); } });
$("shade").addEventListener("change", () => { grid.shade = $("shade").value; grid.draw(); });
$("arrange").addEventListener("change", () => { grid.wanted = $("arrange").value; grid.zoom = 0; grid.draw(); });
$("smaller").addEventListener("click", () => zoomed(-1));
$("larger").addEventListener("click", () => zoomed(1));
$("capture").addEventListener("click", capture);
$("trace").addEventListener("click", switchTrace);
$("rank-close").addEventListener("click", close);
$("grid").addEventListener("mousemove", (event) => tip(grid.at(event)));
$("grid").addEventListener("mouseleave", () => tip(-1));
$("grid").addEventListener("click", (event) => { const rank = grid.at(event); if (rank >= 0) open(rank); });
$("grid").addEventListener("blur", () => tip(-1));
$("grid").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && grid.selected >= 0) open(grid.selected);
  else if (grid.move(event.key)) { grid.draw(); tip(grid.selected); if (opened >= 0) open(grid.selected); } else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "c") capture();
  else if (event.key === "+") zoomed(2);
  else if (event.key === "-") zoomed(-2);
  else if (event.key === "/") { $("filter").focus(); event.preventDefault(); } else if (event.key === "g") { $("grid").focus(); } else if (event.key === "Escape") { tip(-1); if (opened >= 0) close(); else if (grid.match) filterBy(""); }
});
window.addEventListener("resize", () => grid.draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { grid.recolour(); grid.draw(); });
listen();
