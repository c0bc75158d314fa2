// The live page: brings its parts together.

import { Asking } from "./asking.js";
import { banner } from "./banner.js";
import { Detail } from "./detail.js";
import { $, clip, say } from "./dom.js";
import { matching } from "./filter.js";
import { events } from "./events.js";
import { Grid } from "./grid.js";
import { headline } from "./headline.js";
import { incidents } from "./incidents.js";
import { Model } from "./model.js";
import { arranged, culprits, figures, jobNames, legend } from "./overview.js";
import { standings, stragglers } from "./standings.js";
import { Stream } from "./stream.js";
import { TimeAxis } from "./time_axis.js";
import { isLocal, now, switchZone, zone } from "./times.js";

const model = new Model();
const grid = new Grid($("grid"), model);
const stream = new Stream(model, show, lost);
const detail = new Detail(model, grid);
const asking = new Asking(model, stream);
const axis = new TimeAxis();

// ------------------------------------------------------------------ showing

function show() {
  const status = model.status, seen = model.size > (status.counts.unseen || 0);
  headline(model);
  banner(model, stream.lostAt);
  say($("job"), jobNames(status));
  $("job").title = $("job").textContent;
  figures(status);
  axis.tick(status.hang_since);
  grid.culprits = culprits(model);
  legend(model, grid.culprits);
  for (const id of ["frame", "tip", "legend", "scale"]) $(id).hidden = !seen;
  if (seen) grid.draw();
  arranged(model, grid);
  empty();
  if (!performance.getEntriesByName("grid").length && model.size) performance.mark("grid");
  scale();
  standings(model, grid.culprits, filterBy);
  stragglers(model, (rank) => detail.open(rank));
  incidents(model);
  events(model);
  detail.show();
  asking.show();
  foot(status);
}

function lost() {
  banner(model, stream.lostAt);
  $("capture").disabled = true;
}

function scale() {
  const per = grid.perNode() > 1 ? `, ${grid.perNode()} per node` : "";
  const ranks = `${model.size} rank${model.size === 1 ? "" : "s"}`;
  say($("scale"), `${ranks}${per}. Arrow keys move, Enter shows one.`);
}

function foot(status) {
  const messages = status.messages.toLocaleString("en");
  const own = `${zone(now())}, your local time; reports are in UTC`;
  say($("foot"), [
    `${status.agents} of ${status.nodes} agents connected`,
    `${messages} messages, ${(status.bytes / 1e6).toFixed(1)} MB`,
    `times are ${isLocal() ? own : "UTC, as in the reports"}`,
  ].join(" · "));
}

function empty() {
  let any = !grid.match;
  for (let i = 0; i < model.size && !any; i++) any = grid.match(i);
  const none = `No rank matches "${clip($("filter").value, 60)}". Esc clears the filter.`;
  $("empty").hidden = any && model.size > (model.status.counts.unseen || 0);
  say($("empty"), any ? "No rank to show yet." : none);
}

// ------------------------------------------------------------------ filter, zoom, zone

function filterBy(text) {
  $("filter").value = text;
  grid.match = matching(model, text);
  grid.draw();
  empty();
}

function zoomed(by) {
  if (by > 0 && grid.atMost) return;
  grid.zoomBy(by);
}

function sayZone() { say($("zone"), isLocal() ? "Show UTC" : "Show local time"); }

function otherZone() {
  switchZone();
  sayZone();
  axis.draw();
  if (!model.status) return;
  headline(model, true);
  banner(model, stream.lostAt);
  incidents(model, true);
  events(model, true);
  foot(model.status);
}

// ------------------------------------------------------------------ pointer and keys

const on = (id, event, act) => $(id).addEventListener(event, act);

on("filter", "input", () => filterBy($("filter").value));
on("filter", "keydown", (event) => {
  if (event.key !== "Escape") return;
  filterBy("");
  $("grid").focus();
  event.stopPropagation();
});
on("shade", "change", () => { grid.shade = $("shade").value; grid.draw(); });
on("arrange", "change", () => { grid.wanted = $("arrange").value; grid.zoom = 0; grid.draw(); });
on("smaller", "click", () => zoomed(-1));
on("larger", "click", () => zoomed(1));
on("capture", "click", () => asking.capture());
on("trace", "click", () => asking.switchTrace());
on("zone", "click", otherZone);
on("rank-close", "click", () => detail.close());
on("grid", "mousemove", (event) => detail.tip(grid.at(event)));
on("grid", "mouseleave", () => detail.tip(-1));
on("grid", "blur", () => detail.tip(-1));
on("grid", "click", (event) => {
  const rank = grid.at(event);
  if (rank >= 0) detail.open(rank);
});
on("grid", "keydown", (event) => {
  if (event.key === "Enter" && grid.selected >= 0) detail.open(grid.selected);
  else if (grid.move(event.key)) moved();
  else return;
  event.preventDefault();
});

function moved() {
  grid.draw();
  detail.tip(grid.selected);
  if (detail.opened >= 0) detail.open(grid.selected);
}

const KEYS = {
  "c": () => asking.capture(),
  "+": () => zoomed(2),
  "-": () => zoomed(-2),
  "/": (event) => { $("filter").focus(); event.preventDefault(); },
  "g": () => $("grid").focus(),
  "Escape": () => {
    detail.tip(-1);
    if (detail.opened >= 0) detail.close();
    else if (grid.match) filterBy("");
  },
};

document.addEventListener("keydown", (event) => {
  const modified = event.ctrlKey || event.metaKey || event.altKey;
  const writes = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (!modified && !writes && Object.hasOwn(KEYS, event.key)) KEYS[event.key](event);
});
window.addEventListener("resize", () => grid.draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  grid.recolour();
  grid.draw();
});
sayZone();
stream.listen();
