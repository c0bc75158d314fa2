// Tables beside the grid: blocked ranks and what blocks them, and stragglers.

import { $, clip, element, say } from "./dom.js";
import { CAUSE, GLYPHS, SAYS, STATES, SUSPECT, rangesOf } from "./model.js";
import { seconds } from "./times.js";

const MOST_LATE = 5;

export function standings(model, culprits, pickRanks) {
  const body = $("standing").tBodies[0], rows = model.standings;
  while (body.rows.length > rows.length) body.deleteRow(-1);
  while (body.rows.length < rows.length) addRow(body, pickRanks);
  rows.forEach((one, i) => sayRow(body.rows[i], one, one.holds || blamed(one, culprits)));
  $("standing").classList.toggle("no-blocks", !rows.some((one) => one.holds));
  $("standing-more").hidden = !model.more;
  say($("standing-more"), `and ${model.more} more places`);
}

function addRow(body, pickRanks) {
  const row = body.insertRow(), pick = element("button", "", "pick");
  pick.addEventListener("click", () => pickRanks(row.dataset.ranks));
  row.insertCell().append(pick);
  row.insertCell().append(element("span"), element("span", "", "where"));
  row.insertCell().className = "number";
  row.insertCell().className = "number";
}

// Whether the newest verdict names all of these ranks.
function blamed(one, culprits) {
  if (one.count > culprits.size) return false;
  const fits = rangesOf(one.ranks);
  return fits && [...culprits].filter(fits).length === one.count;
}

function sayRow(row, one, culprit) {
  const [ranks, where, time, holds] = row.cells;
  row.dataset.ranks = one.ranks;
  row.className = culprit ? "culprit" : "";
  const many = one.count > 1 && one.ranks.length > 24;
  const names = many ? `${one.count}: ${clip(one.ranks, 22)}` : one.ranks;
  say(ranks.firstChild, `${culprit ? `${CAUSE} ` : ""}${names}`);
  const more = [
    one.nodes,
    one.phase && `phase ${clip(one.phase, 40)}`,
    one.iteration >= 0 && `iteration ${one.iteration}`,
  ];
  say(where.children[0], place(one));
  say(where.children[1], more.filter(Boolean).join(" · "));
  say(time, one.for_s ? seconds(one.for_s) : "");
  say(holds, one.holds ? `${one.holds}` : "");
}

function place(one) {
  const glyph = GLYPHS[STATES.indexOf(one.state)];
  const sign = glyph ? `${glyph} ` : "";
  if (one.state === "waiting") {
    const number = one.seq ? ` #${one.seq}` : "";
    return `${sign}waiting in ${clip(one.op || "an operation", 60)}${number}`;
  }
  const after = SUSPECT.includes(one.state) && one.op ? `, after ${clip(one.op, 60)}` : "";
  return `${sign}${SAYS[one.state]}${after}`;
}

export function stragglers(model, openRank) {
  const lag = model.columns.lag, found = [];
  const least = Math.max(10, model.status.pace_s * 150); // less is chance
  for (let i = 0; i < model.size; i++) if (lag[i] >= least) found.push(i);
  const top = found.sort((a, b) => lag[b] - lag[a]).slice(0, MOST_LATE), list = $("late");
  if (list.dataset.of !== `${top.length}`) {
    list.dataset.of = `${top.length}`;
    const none = element("li", "No rank arrives later than the others.", "none");
    list.replaceChildren(...(top.length ? top.map(() => lateItem(openRank)) : [none]));
  }
  top.forEach((rank, i) => {
    const [pick, meter, text] = list.children[i].children;
    say(pick, `rank ${rank}`);
    pick.dataset.rank = rank;
    meter.max = lag[top[0]];
    meter.value = lag[rank];
    meter.setAttribute("aria-label", `arrival lag of rank ${rank}`);
    say(text, seconds(lag[rank] / 1000));
  });
}

function lateItem(openRank) {
  const item = element("li"), pick = element("button", "", "pick");
  pick.addEventListener("click", () => openRank(Number(pick.dataset.rank)));
  item.append(pick, element("meter"), element("span", "", "number"));
  return item;
}
