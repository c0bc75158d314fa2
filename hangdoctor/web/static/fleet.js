// The page of all jobs: asks every five seconds, and at each change of the search.

import { $, clip, element, say, sayFacts } from "./dom.js";
import { clock, isLocal, seconds, setClock, switchZone, zone } from "./times.js";

const PERIOD_MS = 5000, PAUSE_MS = 250;
const BADGES = ["stalled", "running", "starting", "not watched", "ended", "no status"];
let newest = null; // the last answers, for a change of the zone
let typing = 0;

async function get(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  const told = await answer.json();
  if (!answer.ok) throw new Error(`${told.error}. ${told.help}`);
  return told;
}

async function refresh() {
  try {
    const words = encodeURIComponent($("filter").value);
    const [jobs, nodes, found] = await Promise.all([
      get("/api/v1/jobs"), get("/api/v1/nodes"), get(`/api/v1/incidents?words=${words}`),
    ]);
    newest = { jobs, nodes, found };
    show();
    link("live", "live");
  } catch (error) {
    link("lost", "no connection");
    banner(error instanceof TypeError ? "No connection to the fleet view. It is tried again." : error.message);
  }
}

function link(className, words) {
  $("link").className = `link ${className}`;
  say($("link"), words);
}

function banner(words) {
  $("banner").hidden = !words;
  say($("banner"), words);
}

function show() {
  const { jobs, nodes, found } = newest;
  setClock(jobs.at);
  banner(jobs.trouble || found.trouble);
  say($("sentence"), sentence(jobs));
  fill($("jobs"), jobs.jobs.map(job), "No job has a folder here yet.");
  $("no-nodes").hidden = nodes.nodes.length > 0;
  $("nodes-table").hidden = !nodes.nodes.length;
  fill($("nodes"), nodes.nodes.map(node));
  const more = found.total > found.incidents.length ? `, the newest ${found.incidents.length} are shown` : "";
  say($("found"), `${count(found.total, "incident")}${$("filter").value ? " found" : ""}${more}`);
  fill($("incidents"), found.incidents.map(incident), $("filter").value ? "No incident matches." : "None so far.");
  say($("foot"), `as of ${clock(jobs.at)}`);
  say($("zone"), isLocal() ? "show UTC" : "show local time");
  $("zone").title = `Times are in ${zone(jobs.at)}`;
}

function count(number, noun) { return `${number} ${noun}${number === 1 ? "" : "s"}`; }

function sentence({ counts, jobs, total }) {
  if (!total) return "No job has a folder here yet.";
  const parts = BADGES.filter((state) => counts[state]).map((state) => `${counts[state]} ${state}`);
  const more = total > jobs.length ? ` The first ${jobs.length} are shown.` : "";
  return `${count(total, "job")}: ${parts.join(", ")}.${more}`;
}

// Replaced only where something has changed: a selection and the focus stay.
function fill(place, items, none) {
  const made = items.length || !none ? items : [element("li", none, "none")];
  const before = [...place.children];
  if (before.length === made.length && before.every((one, i) => one.isEqualNode(made[i]))) return;
  place.replaceChildren(...made);
}

function pill(state) {
  const look = { stalled: "stalled", running: "running", starting: "" }[state] ?? "over";
  return element("span", state.toUpperCase(), `pill ${look}`);
}

function job(row) {
  const item = element("li"), meta = element("div", undefined, "meta");
  meta.append(pill(row.state), element("span", clip(row.place, 90), "name"), element("span", row.user));
  if (row.job && row.job !== row.place) meta.append(element("span", clip(row.job, 60)));
  const facts = element("dl", undefined, "facts");
  sayFacts(facts, factsOf(row));
  item.append(meta, facts);
  if (row.last) item.append(last(row.last));
  return item;
}

function factsOf(row) {
  const facts = [];
  if (row.state === "stalled" && row.idle_s >= 0) facts.push(["without progress for", seconds(row.idle_s)]);
  if (row.world_size) facts.push(["ranks", `${row.living} of ${row.world_size}`]);
  if (row.nodes) facts.push(["nodes", row.silent.length ? `${row.nodes}, silent: ${row.silent.join(" ")}` : `${row.nodes}`]);
  if (row.iteration >= 0) facts.push(["iteration", `${row.iteration}`]);
  if (row.pace_s > 0) facts.push(["a step takes", seconds(row.pace_s)]);
  facts.push(["incidents", `${row.incidents}`]);
  if (row.page) facts.push(["its page", `${row.page} on ${row.host}`]);
  if (!["running", "stalled", "starting"].includes(row.state) && row.at) facts.push(["last seen", clock(row.at)]);
  return facts;
}

function last(entry) {
  const line = element("div", undefined, "last");
  line.append(element("span", clock(entry.at), "when"), clip(entry.summary, 300), report(entry));
  return line;
}

function report(entry) {
  const made = element("a", "Report", "report");
  made.href = `/api/v1/incidents/${encodeURIComponent(entry.key)}/report`;
  made.target = "_blank";
  made.rel = "noopener";
  made.setAttribute("aria-label", `Report of ${entry.id}`);
  return made;
}

function node(one) {
  const row = element("tr"), name = element("td"), pick = element("button", one.node, "pick");
  pick.type = "button";
  pick.dataset.words = one.node;
  pick.title = "Search its incidents";
  name.append(pick);
  const kinds = Object.entries(one.kinds).map(([kind, number]) => `${kind} ${number}`).join(", ");
  row.append(name, element("td", `${one.jobs}`, "number"), element("td", `${one.incidents}`, "number"), element("td", kinds));
  return row;
}

function incident(entry) {
  const item = element("li"), meta = element("div", undefined, "meta");
  const look = ["hang", "slow", "failed", "healthy"].includes(entry.status) ? entry.status : "";
  meta.append(
    element("span", entry.status.toUpperCase(), `pill ${look}`),
    element("span", clock(entry.at)),
    element("span", clip(entry.place, 60)),
    element("span", entry.user),
  );
  const line = element("div", clip(entry.summary, 600));
  line.append(report(entry));
  item.append(meta, line);
  return item;
}

function search(words) {
  $("filter").value = words;
  refresh();
}

$("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(refresh, PAUSE_MS);
});
$("nodes").addEventListener("click", (event) => {
  const words = event.target.dataset.words;
  if (words) search(words);
});
$("zone").addEventListener("click", () => {
  switchZone();
  if (newest) show();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && $("filter").value) search("");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target === $("filter")) return;
  event.preventDefault();
  $("filter").focus();
});

await refresh();
setInterval(refresh, PERIOD_MS);
