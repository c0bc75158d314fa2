// The list of incidents: all captures of one hang are one of them.

import { $, clip, element } from "./dom.js";
import { clock } from "./times.js";

const MOST = 50;
const MOST_BEFORE = 8; // earlier captures of one hang
const SLACK_S = 3; // between the clocks of a capture and of a rank's last progress
let shown = null, shownSince = 0;

// Captures of one hang, newest first, as one group; any other capture is alone. Of the same hang are
// those with the same verdict, and all of the time in which nothing has moved: with more evidence,
// or less, a capture may find another operation.
export function hangs({ incidents, status }) {
  const since = standsSince(status), found = [];
  const stuck = (one) => since && one.at >= since - SLACK_S && /^(hang|slow)$/.test(one.status);
  const same = (one, other) => {
    if (one.job !== other.job) return false;
    return (one.hang && one.hang === other.hang) || (stuck(one) && stuck(other));
  };
  for (const one of incidents) {
    const last = found[found.length - 1];
    if (last && same(one, last[0])) last.push(one);
    else found.push([one]);
  }
  return found;
}

function standsSince(status) { return status.ended ? status.ended.progress : status.hang_since; }

export function reportAddress(id) { return `/api/v1/incidents/${encodeURIComponent(id)}/report`; }

export function reportLink(one, words) {
  const link = element("a", words);
  link.href = reportAddress(one.id);
  link.target = "_blank";
  link.rel = "noopener";
  return link;
}

// Once for each new list; `again` where its times are to be written anew.
export function incidents(model, again) {
  const since = Math.round(standsSince(model.status) / 10); // it differs a little each second
  if (shown === model.incidents && shownSince === since && !again) return;
  shown = model.incidents;
  shownSince = since;
  const none = element("li", model.status.trouble || "None so far.", "none");
  const groups = hangs(model).slice(0, MOST);
  $("incidents").replaceChildren(...(groups.length ? groups.map(incident) : [none]));
}

function incident(group) {
  const one = group[0], item = element("li"), meta = element("div", undefined, "meta");
  const look = ["hang", "slow", "failed", "healthy"].includes(one.status) ? one.status : "";
  meta.append(
    element("span", (one.status || one.state).toUpperCase(), `pill ${look}`),
    element("span", clock(one.at)),
    element("span", clip(one.reason, 90)),
  );
  item.append(meta, element("div", clip(one.summary, 600)));
  if (one.state === "saved") item.append(reportLink(one, "Open the report"));
  else item.append(element("div", "its bundle was not saved or was removed", "none"));
  const before = group.slice(1).filter((i) => i.state === "saved");
  if (before.length) {
    const times = element("div", `same hang, captured ${group.length} times; before: `, "times");
    times.append(...before.slice(0, MOST_BEFORE).map((i) => reportLink(i, clock(i.at))));
    item.append(times);
  }
  return item;
}
