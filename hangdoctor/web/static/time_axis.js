// The time axis: progress of the job, its stalls, captures, and gaps in what was watched.
// Nothing here depends on the number of ranks: a few hundred buckets, whatever the job.

import { $, element, say } from "./dom.js";
import { reportAddress } from "./incidents.js";
import { draw, isWide, place, timeAt } from "./time_axis_picture.js";
import { capturesSay, fillTable, readout, summary } from "./time_axis_words.js";
import { clock, zone } from "./times.js";

const NAMES = {
  "1h": "the last hour",
  "6h": "the last 6 hours",
  "24h": "the last 24 hours",
  "7d": "the last 7 days",
};
const OFTEN_MS = 5000; // the span whose buckets are short; the others change slowly
const SELDOM_MS = 30_000;
const MARK = 24; // pixels of a capture's mark: what is closer is one mark
const LEAST_SHOWN = 1 / 30; // of a span, however short the recording
const LEAPS = {
  ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity,
};
const SIGN = "▼";
const GRAVEST = ["failed", "hang", "slow", "unknown", "healthy"];

export class TimeAxis {
  constructor() {
    this.span = "1h";
    this.history = null;
    this.waits = 0; // time of day since when ranks have been waiting, 0 where none is
    this.cursor = -1; // number of a bucket, -1: none is pointed at
    this.marked = ""; // what is said of the captures that are pointed at
    this.due = 0;
    this.asked = 0; // counts requests: of two answers the later question's is shown
    for (const button of $("spans").children) {
      button.addEventListener("click", () => this.choose(button.dataset.span));
    }
    this.listen($("axis-cursor"));
    new ResizeObserver(() => this.draw()).observe($("axis-picture").parentElement);
    $("axis-table").addEventListener("toggle", () => this.table());
  }

  listen(overlay) {
    overlay.addEventListener("pointermove", (event) => this.point(this.under(event)));
    overlay.addEventListener("pointerleave", () => this.point(-1));
    overlay.addEventListener("blur", () => this.point(-1));
    overlay.addEventListener("keydown", (event) => {
      if (event.key in LEAPS) this.leap(LEAPS[event.key]);
      else if (event.key === "Escape" && this.cursor >= 0) this.point(-1);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  choose(span) {
    this.span = span;
    for (const button of $("spans").children) {
      button.setAttribute("aria-pressed", String(button.dataset.span === span));
    }
    this.cursor = -1;
    this.ask();
  }

  // Called each second while the page is connected, with since when ranks have been waiting.
  tick(waits) {
    this.waits = waits;
    if (performance.now() >= this.due && !document.hidden) this.ask();
  }

  async ask() {
    this.due = performance.now() + (this.span === "1h" ? OFTEN_MS : SELDOM_MS);
    const number = ++this.asked;
    const answer = await fetch(`/api/v1/history?span=${this.span}`).catch(() => null);
    if (!answer || !answer.ok || number !== this.asked) return; // the stream says what is wrong
    this.history = recorded(await answer.json());
    this.draw();
  }

  draw() {
    const history = this.history;
    if (!history) return;
    const any = history.watched.some(Boolean) || history.captures.length > 0;
    $("axis").hidden = !any;
    $("axis-none").hidden = any;
    if (!any || !isWide($("axis-picture"))) return;
    const drawn = draw($("axis-picture"), history);
    say($("axis-unit"), drawn.unit.title);
    this.unit = drawn.unit;
    for (const [id, there] of Object.entries(drawn.shows)) $(id).hidden = !there;
    const overlay = $("axis-cursor");
    const name = spanName(this.span, history);
    overlay.setAttribute("aria-label", `Progress in ${name}; arrow keys move in time`);
    overlay.setAttribute("aria-valuemax", `${history.watched.length - 1}`);
    say($("axis-summary"), summary(history, name, this.unit, this.waits));
    this.marks();
    this.point(this.cursor);
    this.table();
  }

  table() {
    if ($("axis-table").open && this.history) fillTable($("axis-rows"), this.history, this.unit);
  }

  // ------------------------------------------------------------------ captures

  // Marks above the axis, links to the reports. Those that would overlap are one.
  marks() {
    const history = this.history, found = [];
    for (const one of history.captures) {
      const at = place($("axis-picture"), history, one.at);
      const last = found[found.length - 1];
      if (last && last.at - at < MARK) last.all.push(one);
      else found.push({ at, all: [one] });
    }
    const ids = found.map(({ all }) => all.map((one) => one.id));
    const key = JSON.stringify([ids, zone(history.at)]), links = $("axis-marks");
    if (links.dataset.of !== key) { // the same ones stay: one may have the focus
      links.dataset.of = key;
      this.marked = "";
      links.replaceChildren(...found.map(({ all }) => this.mark(all)));
    }
    found.forEach(({ at }, i) => { links.children[i].style.left = `${at - MARK / 2}px`; });
  }

  mark(all) {
    const worst = GRAVEST.find((status) => all.some((one) => one.status === status));
    const link = element("a", all.length > 1 ? `${all.length}` : SIGN, `mark ${worst || ""}`);
    link.href = reportAddress(all[0].id);
    link.target = "_blank";
    link.rel = "noopener";
    const words = capturesSay(all);
    link.setAttribute("aria-label", `${words}; opens the ${all.length > 1 ? "newest " : ""}report`);
    for (const event of ["pointerenter", "focus"]) {
      link.addEventListener(event, () => this.tell(words));
    }
    for (const event of ["pointerleave", "blur"]) link.addEventListener(event, () => this.tell(""));
    return link;
  }

  // What is said while a mark is pointed at.
  tell(words) {
    this.marked = words;
    this.point(-1);
  }

  // ------------------------------------------------------------------ pointing

  under(event) {
    const { begin, step_s, watched } = this.history;
    const at = timeAt($("axis-picture"), this.history, event.clientX);
    return Math.min(watched.length - 1, Math.max(0, Math.floor((at - begin) / step_s)));
  }

  leap(by) {
    if (!this.history) return;
    const last = this.history.watched.length - 1;
    const from = this.cursor < 0 ? last : this.cursor;
    this.point(Math.min(last, Math.max(0, from + by)));
  }

  // In a line of its own below the axis, so that it covers nothing.
  point(number) {
    const history = this.history;
    if (!history) return;
    this.cursor = number;
    const last = history.watched.length - 1, shown = number < 0 ? last : number;
    const words = readout(history, shown, this.unit);
    $("axis-cursor").setAttribute("aria-valuenow", `${shown}`);
    $("axis-cursor").setAttribute("aria-valuetext", words);
    const whole = this.marked || $("axis-summary").textContent;
    say($("axis-tip"), number < 0 ? whole : words);
    const line = $("axis-picture").querySelector(".cursor");
    const at = place($("axis-picture"), history, history.begin + (shown + 0.5) * history.step_s);
    line.setAttribute("visibility", number < 0 ? "hidden" : "visible");
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
  }
}

// Without the time before anything was recorded, so that a job of ten minutes fills its axis.
function recorded(history) {
  const { begin, step_s, captures, stalls, watched } = history;
  const events = [...captures.map((one) => one.at), ...stalls.map((one) => one.begin)];
  const most = watched.length - Math.ceil(watched.length * LEAST_SHOWN);
  const before = Math.floor((Math.min(history.since, ...events) - begin) / step_s);
  const cut = Math.max(0, Math.min(most, before)), shown = { ...history, cut };
  shown.begin = begin + cut * step_s;
  for (const name of ["watched", "alive", "moved", "steps"]) shown[name] = history[name].slice(cut);
  return shown;
}

function spanName(span, history) {
  return history.cut ? `${NAMES[span]}, recorded since ${clock(history.since)}` : NAMES[span];
}
