// The top of the page: the verdict about the hang of now, since when, what to do, its captures; or why there is none.

import { clip } from "./grid.js";
import { clock, rangesText, seconds } from "./model.js";

const $ = (id) => document.getElementById(id);
const MAX_CAPTURES = 8; // of one hang, in its history

export function say(place, words) { if (place.textContent !== words) place.textContent = words; }

export function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Captures of one hang, newest first, as one group; any other capture is alone.
export function hangs(incidents) {
  const found = [];
  for (const one of incidents) {
    const last = found[found.length - 1];
    if (last && one.hang && last[0].hang === one.hang && last[0].job === one.job) last.push(one);
    else found.push([one]);
  }
  return found;
}

export function reportLink(one, words) {
  const link = element("a", words);
  link.href = `/api/v1/incidents/${encodeURIComponent(one.id)}/report`;
  link.target = "_blank";
  link.rel = "noopener";
  return link;
}

// What the top says, as plain values: { pill, look, since, sentence, explained, group }.
function told(model) {
  const status = model.status, known = model.size && model.size > (status.counts.unseen || 0);
  const group = hangs(model.incidents).find((g) => g.some((i) => i.id === status.incident)) || null;
  const newest = group && group[0];
  if (status.ended) {
    const explained = [`Last progress at ${clock(status.ended.at)}.`, status.ended.lost, newest && `${newest.status === "failed" ? "" : "Its last hang: "}${clip(newest.summary, 500)}`];
    return { pill: "ENDED", look: "", since: "", sentence: `The job has ended. ${status.ended.how}`, explained: explained.filter(Boolean).join(" "), group };
  }
  if (!status.nodes) return { ...EMPTY, sentence: "No agent has connected yet.", explained: `A sidecar starts one on every node of its job. By hand, on a node: hangdoctor agent --folder ${status.folder.replace(/\/incidents$/, "")}` };
  if (!known) return { ...EMPTY, sentence: "No rank has been seen yet.", explained: `${status.agents} of ${status.nodes} agents are connected. A rank appears when the job starts it. What a node has now: hangdoctor dump --local` };
  const since = status.hang_since ? `since ${clock(status.hang_since)} (${seconds(Math.max(0, Date.now() / 1000 - status.hang_since))})` : "";
  if (newest) return { pill: newest.status.toUpperCase(), look: newest.status, since, sentence: newest.summary, explained: "", group };
  if (since) return { pill: "WAITING", look: "stuck", since, sentence: `${status.sentence}.`, explained: "", group: null };
  return { pill: status.counts.moving ? "MOVING" : "", look: "healthy", since, sentence: `${status.sentence}.`, explained: "", group: null };
}
const EMPTY = { pill: "", look: "", since: "", group: null };

export function headline(model) {
  const status = model.status, says = told(model), newest = says.group && says.group[0];
  $("pill").hidden = !says.pill;
  $("pill").className = `pill ${says.look}`;
  say($("pill"), says.pill);
  say($("since"), status.capturing ? `capturing: ${status.capture_answered} of ${status.capture_asked} nodes have answered` : says.since);
  say($("sentence"), clip(says.sentence, 600));
  $("explained").hidden = !says.explained;
  say($("explained"), says.explained);
  $("do").hidden = !(newest && newest.advice && !status.ended);
  say($("advice"), newest ? clip(newest.advice, 1200) : "");
  history(says.group);
  document.title = `${newest && !status.ended ? `${says.pill}: ` : status.stalled ? "STALLED: " : ""}${clip(status.job || "hangdoctor", 60)}`;
}

let shown = null;

function history(group) {
  const key = group ? group.map((i) => i.id).join() : "";
  if (shown === key) return;
  shown = key;
  const saved = group ? group.filter((i) => i.state === "saved") : [];
  $("history").hidden = !saved.length;
  if (!saved.length) return;
  const parts = [reportLink(saved[0], "Open the report")];
  if (saved.length > 1) parts.push(element("span", ` · captured ${saved.length} times: `), ...saved.slice(0, MAX_CAPTURES).map((one) => reportLink(one, clock(one.at))));
  $("history").replaceChildren(...parts);
}

// What is missing from the page: the connection, agents, ranks.
export function banner(model, lostAt) {
  const status = model.status, words = [];
  if (lostAt) {
    words.push(`No connection to the collector since ${clock(lostAt / 1000)}: the page shows what was known then, and reconnects by itself.`);
    if (status && status.folder) words.push(`${status.ended ? "The job had ended, so the collector may have ended too." : ""} Reports stay readable: hangdoctor incidents list --folder ${status.folder.replace(/\/incidents$/, "")}`.trim());
  } else if (status && !status.ended) {
    const some = (names) => `${names.length > 1 ? "nodes" : "node"} ${names.slice(0, 8).join(", ")}${names.length > 8 ? ", …" : ""}`;
    if (status.missing.length) words.push(`No agent has connected from ${some(status.missing)}: the ranks there cannot be seen.`);
    if (status.silent.length) words.push(`No answer from ${some(status.silent)}: what is shown of the ranks there is old.`);
    const unseen = unseenRanks(model);
    if (unseen.length && unseen.length < model.size && !status.missing.length) words.push(`No agent has seen ${unseen.length > 1 ? "ranks" : "rank"} ${rangesText(unseen)}. Is there an agent on every node?`);
  }
  $("banner").hidden = !words.length;
  say($("banner"), words.join(" "));
}

function unseenRanks(model) {
  if (!model.status.counts.unseen) return [];
  const found = [];
  for (let i = 0; i < model.size; i++) if (!model.columns.state[i]) found.push(i);
  return found;
}

// Whether a capture can be asked for now.
export function canCapture(model, lostAt) {
  const status = model.status;
  return Boolean(status && !lostAt && !status.ended && status.agents && model.size > (status.counts.unseen || 0));
}
