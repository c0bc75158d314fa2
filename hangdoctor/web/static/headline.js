// The top of the page: the verdict about the hang of now, since when, what to do, its captures; or
// why there is none.

import { $, clip, element, say } from "./dom.js";
import { hangs, reportLink } from "./incidents.js";
import { clock, now, seconds } from "./times.js";

const MAX_CAPTURES = 8; // of one hang, in its history
const STOOD_S = 10; // without progress before the end: worth saying
const NOTHING = { pill: "", look: "", since: "", sentence: "", explained: "", group: null };

// What the top says, as plain values; `group` is all captures of this hang, newest first, or null.
function told(model) {
  const status = model.status;
  const known = model.size && model.size > (status.counts.unseen || 0);
  const ofNow = (group) => group.some((one) => one.id === status.incident);
  const group = hangs(model).find(ofNow) || null;
  if (status.ended) return ended(status.ended, group);
  if (!status.nodes) return noAgent(status);
  if (!known) return noRank(status);
  return running(status, group);
}

function ended({ at, how, lost, progress }, group) {
  const lead = group && group[0].status === "failed" ? "" : "Its last hang: ";
  const hang = group && `${lead}${clip(group[0].summary, 500)}`;
  const stood = at - progress;
  const before = stood >= STOOD_S ? `, after ${seconds(stood)} without progress` : "";
  const explained = [`Its last rank ended at ${clock(at)}${before}.`, lost, hang].filter(Boolean).join(" ");
  return { ...NOTHING, pill: "ENDED", sentence: `The job has ended. ${how}`, explained, group };
}

function noAgent(status) {
  const command = `hangdoctor agent --folder ${folderOf(status)}`;
  const explained = `A sidecar starts one on every node of its job. By hand, on a node: ${command}`;
  return { ...NOTHING, sentence: "No agent has connected yet.", explained };
}

function noRank(status) {
  const explained = [
    `${status.agents} of ${status.nodes} agents are connected.`,
    "A rank appears when the job starts it. What a node has now: hangdoctor dump --local",
  ].join(" ");
  return { ...NOTHING, sentence: "No rank has been seen yet.", explained };
}

function running(status, group) {
  const says = { ...NOTHING, since: since(status.hang_since), sentence: `${status.sentence}.` };
  if (group) {
    const { status: found, summary } = group[0];
    return { ...says, pill: found.toUpperCase(), look: found, sentence: summary, group };
  }
  if (says.since) return { ...says, pill: "WAITING", look: "stuck" };
  return { ...says, pill: status.counts.moving ? "MOVING" : "", look: "healthy" };
}

function since(at) {
  if (!at) return "";
  return `since ${clock(at)} (${seconds(Math.max(0, now() - at))})`;
}

function folderOf(status) { return status.folder.replace(/\/incidents$/, ""); }

export function headline(model, again = false) {
  const status = model.status, says = told(model), newest = says.group && says.group[0];
  $("pill").hidden = !says.pill;
  $("pill").className = `pill ${says.look}`;
  say($("pill"), says.pill);
  const lines = [says.since, newest && capturedAt(newest), status.capturing && capturing(status)];
  say($("since"), lines.filter(Boolean).join(" · "));
  say($("sentence"), clip(says.sentence, 600));
  $("explained").hidden = !says.explained;
  say($("explained"), says.explained);
  $("do").hidden = !(newest && newest.advice && !status.ended);
  say($("advice"), newest ? clip(newest.advice, 1200) : "");
  history(says.group, again);
  document.title = title(status, newest ? `${says.pill}: ` : "");
}

// The times in the sentence do not go on: they are those of its capture.
function capturedAt(one) { return `verdict as of ${clock(one.at)}`; }

function capturing(status) {
  return `capturing: ${status.capture_answered} of ${status.capture_asked} nodes have answered`;
}

function title(status, verdict) {
  const job = clip(status.job_names[0] || "hangdoctor", 60);
  if (verdict && !status.ended) return `${verdict}${job}`;
  return status.stalled ? `STALLED: ${job}` : job;
}

let shown = null;

function history(group, again) {
  const key = group ? group.map((one) => one.id).join() : "";
  if (shown === key && !again) return;
  shown = key;
  const saved = group ? group.filter((one) => one.state === "saved") : [];
  $("history").hidden = !saved.length;
  if (!saved.length) return;
  const parts = [reportLink(saved[0], "Open the report")];
  if (saved.length > 1) {
    parts.push(element("span", ` · captured ${saved.length} times: `));
    parts.push(...saved.slice(0, MAX_CAPTURES).map((one) => reportLink(one, clock(one.at))));
  }
  $("history").replaceChildren(...parts);
}
