// What is missing from the page: the connection, agents, ranks.

import { $, say } from "./dom.js";
import { rangesText } from "./model.js";
import { clock } from "./times.js";

const MAX_NAMES = 8;

export function banner(model, lostAt) {
  const status = model.status;
  let words = [];
  if (lostAt) words = lost(status, lostAt);
  else if (status && !status.ended) words = missing(model);
  $("banner").hidden = !words.length;
  say($("banner"), words.join(" "));
}

function lost(status, at) {
  const words = [
    `No connection to the collector since ${clock(at)}:`,
    "the page shows what was known then, and reconnects by itself.",
  ];
  if (!status || !status.folder) return words;
  if (status.ended) words.push("The job had ended, so the collector may have ended too.");
  const folder = status.folder.replace(/\/incidents$/, "");
  words.push(`Reports stay readable: hangdoctor incidents list --folder ${folder}`);
  return words;
}

function missing(model) {
  const { missing: absent, silent } = model.status, words = [];
  if (absent.length) {
    words.push(`No agent has connected from ${nodes(absent)}: the ranks there cannot be seen.`);
  }
  if (silent.length) {
    words.push(`No answer from ${nodes(silent)}: what is shown of the ranks there is old.`);
  }
  const unseen = unseenRanks(model);
  if (unseen.length && unseen.length < model.size && !absent.length) {
    const ranks = `${unseen.length > 1 ? "ranks" : "rank"} ${rangesText(unseen)}`;
    words.push(`No agent has seen ${ranks}. Is there an agent on every node?`);
  }
  return words;
}

function nodes(names) {
  const shown = names.slice(0, MAX_NAMES).join(", ");
  const more = names.length > MAX_NAMES ? ", …" : "";
  return `${names.length > 1 ? "nodes" : "node"} ${shown}${more}`;
}

function unseenRanks(model) {
  if (!model.status.counts.unseen) return [];
  const found = [];
  for (let i = 0; i < model.size; i++) if (!model.columns.state[i]) found.push(i);
  return found;
}
