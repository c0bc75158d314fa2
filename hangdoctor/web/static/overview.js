// Figures above the grid, its legend, and the ways to arrange it.

import { arrangements } from "./arrange.js";
import { $, clip, element, say, sayFacts } from "./dom.js";
import { CAUSE, GLYPHS, SAYS, STATES, rangesOf } from "./model.js";
import { seconds } from "./times.js";

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
  sayFacts($("figures"), [
    ["iteration", iterations(status.iteration)],
    ["per iteration", status.pace_s ? seconds(status.pace_s) : "–"],
    ["last progress", lastProgress(status)],
    ["watchdog", watchdog(status)],
    ["nodes", silent ? `${status.nodes}, no answer from ${silent}` : `${status.nodes}`],
    ["captures", captures(status)],
  ]);
}

function iterations([low, high]) {
  if (low < 0) return "–";
  return low === high ? `${low}` : `${low} to ${high}`;
}

function lastProgress(status) {
  if (status.counts.moving) return "now";
  return status.idle_s ? `${seconds(status.idle_s)} ago` : "–";
}

function captures(status) {
  if (!status.captures) return "none";
  return `${status.captures}, the last took ${seconds(status.capture_s)}`;
}

function watchdog(status) {
  if (status.ended) return "the job has ended";
  if (status.stalled) return "stalled";
  return status.warm ? "watching" : "learning the normal step time";
}

let culpritsOf = { key: "", found: new Set() };

// The ranks that the newest verdict about this hang names; before there is one, those for which the
// others wait. The same set until that changes.
export function culprits(model) {
  const status = model.status;
  const newest = model.incidents.find((i) => i.id === status.incident);
  let texts = [];
  if (!status.ended) texts = newest && newest.ranks ? [newest.ranks] : blocking(model);
  const key = `${model.size} ${texts.join()}`;
  if (key !== culpritsOf.key) culpritsOf = { key, found: ranksIn(texts, model.size) };
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

export function legend(status, culprits) {
  const place = $("legend");
  const wanted = STATES.filter((s) => status.counts[s]);
  if (place.dataset.of !== wanted.join()) {
    place.dataset.of = wanted.join();
    place.replaceChildren(...wanted.map(legendItem), guilty);
  }
  guilty.hidden = !culprits.size;
  say(guilty.children[1], `${culprits.size}`);
  say(guilty.children[2], culprits.size === 1 ? "culprit" : "culprits");
  wanted.forEach((state, i) => say(place.children[i].children[1], `${status.counts[state]}`));
}

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
