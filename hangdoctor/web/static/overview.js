// Figures above the grid, its legend, and the ways to arrange it.

import { arrangements } from "./arrange.js";
import { $, clip, element, say, sayFacts } from "./dom.js";
import { CAUSE, GLYPHS, SAYS, STATES, rangesOf } from "./model.js";
import { seconds } from "./times.js";

const UNKNOWN = ""; // a figure that is left out
const guilty = element("li");
guilty.append(element("span", CAUSE, "swatch"), element("b"), element("span", "culprit"));
paint(guilty.firstChild, "cause");

function paint(swatch, state) {
  swatch.style.backgroundColor = `var(--${state})`;
  swatch.style.color = `var(--on-${state})`;
}

export function jobNames(status) {
  const names = status.job_names;
  return names.length ? names.map((n) => clip(n, 80)).join(", ") : "no job yet";
}

export function figures(status) {
  const silent = status.silent.join(", ");
  const facts = [
    ["iteration", iterations(status.iteration)],
    ["per iteration", status.pace_s ? seconds(status.pace_s) : UNKNOWN],
    ["last progress", lastProgress(status)],
    ["watchdog", watchdog(status)],
    ["nodes", silent ? `${status.nodes}, no answer from ${silent}` : `${status.nodes}`],
    ["last capture", lastCapture(status)],
  ];
  sayFacts($("figures"), facts.filter(([, value]) => value !== UNKNOWN));
}

function iterations([low, high]) {
  if (low < 0) return UNKNOWN;
  return low === high ? `${low}` : `${low} to ${high}`;
}

function lastProgress(status) {
  if (status.counts.moving) return "now";
  return status.idle_s ? `${seconds(status.idle_s)} ago` : UNKNOWN;
}

function lastCapture(status) {
  return status.captures ? `took ${seconds(status.capture_s)}` : UNKNOWN;
}

function watchdog(status) {
  if (status.ended) return "the job has ended";
  if (status.stalled) return "stalled";
  return status.warm ? "watching" : "learning the normal step time";
}

let culpritsOf = { key: "", found: new Set(), named: false };

// The ranks that the newest verdict about this hang names; before there is one, those for which the
// others wait. The same set until that changes.
export function culprits(model) {
  const status = model.status;
  const newest = model.incidents.find((i) => i.id === status.incident);
  const named = Boolean(newest && newest.ranks);
  let texts = [];
  if (!status.ended) texts = named ? [newest.ranks] : blocking(model);
  const key = `${model.size} ${named} ${texts.join()}`;
  if (key !== culpritsOf.key) culpritsOf = { key, found: ranksIn(texts, model.size), named };
  return culpritsOf.found;
}

function blocking(model) {
  const found = model.standings.filter((one) => one.holds);
  return found.map((one) => one.ranks.replace(/,?\.\.\.$/, ""));
}

function ranksIn(texts, size) {
  const found = new Set();
  for (const fits of texts.map(rangesOf).filter(Boolean)) {
    for (let i = 0; i < size; i++) if (fits(i)) found.add(i);
  }
  return found;
}

// As in the report: culprits first, before a verdict those that block the others; the other ranks
// by their states, so that the sum is that of all ranks.
export function legend(model, culprits) {
  const place = $("legend"), counts = { ...model.status.counts };
  for (const rank of culprits) counts[STATES[model.columns.state[rank]]] -= 1;
  const wanted = STATES.filter((s) => counts[s] > 0);
  if (place.dataset.of !== wanted.join()) {
    place.dataset.of = wanted.join();
    place.replaceChildren(guilty, ...wanted.map(legendItem));
  }
  guilty.hidden = !culprits.size;
  say(guilty.children[1], `${culprits.size}`);
  say(guilty.children[2], called(culprits.size));
  wanted.forEach((state, i) => say(place.children[i + 1].children[1], `${counts[state]}`));
}

function called(number) {
  if (!culpritsOf.named) return number === 1 ? "blocks the others" : "block the others";
  return number === 1 ? "culprit" : "culprits";
}

// What a rank that stands out is: the verdict's, or only in the way now.
export function calledOne() { return called(1); }

function legendItem(state) {
  const item = element("li");
  const swatch = element("span", GLYPHS[STATES.indexOf(state)], `swatch ${state}`);
  paint(swatch, state);
  item.append(swatch, element("b"), element("span", SAYS[state]));
  return item;
}

export function arranged(model, grid) {
  const place = $("arrange"), ways = arrangements(model);
  const key = ways.map(([name]) => name).join();
  if (place.dataset.of !== key) {
    place.dataset.of = key;
    place.replaceChildren(...ways.map(([name, title]) => {
      const way = element("option", title);
      way.value = name;
      return way;
    }));
  }
  if (grid.shown && place.value !== grid.shown) place.value = grid.shown;
}
