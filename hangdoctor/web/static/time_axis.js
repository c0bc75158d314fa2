// The time axis: progress of the job, its stalls, captures, and times that no one watched.
// Nothing here depends on the number of ranks: a few hundred buckets, whatever the job.

import { $, element, say } from "./dom.js";
import { reportAddress } from "./incidents.js";
import { draw, place, timeAt } from "./time_axis_picture.js";
import { capturesSay, fillTable, readout, summary } from "./time_axis_words.js";
import { clock } from "./times.js";

const NAMES = {
  "1h": "the last hour", "6h": "the last 6 hours", "24h": "the last 24 hours", "7d": "the last 7 days",
};
const OFTEN_MS = 5000; // the span whose buckets are short; the others change slowly
const SELDOM_MS = 30_000;
const MARK = 24; // pixels of a capture's mark: what is closer is one mark
const LEAPS = {
  ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity,
};
const SIGN = "▼";

export class TimeAxis {
  constructor() {
    this.span = "1h";
    this.history = null;
    this.cursor = -1; // number of a bucket, -1: none is pointed at
    this.due = 0;
    this.asked = 0; // counts requests: of two answers the later question's is shown
    for (const button of $("spans").children) {
      button.addEventListener("click", () => this.choose(button.dataset.span));
    }
    this.listen($("axis-cursor"));
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

  // Called each second while the page is connected.
  tick() {
    if (performance.now() >= this.due && !document.hidden) this.ask();
  }

  async ask() {
    this.due = performance.now() + (this.span === "1h" ? OFTEN_MS : SELDOM_MS);
    const number = ++this.asked;
    const answer = await fetch(`/api/v1/history?span=${this.span}`).catch(() => null);
    if (!answer || !answer.ok || number !== this.asked) return; // the stream says what is wrong
    this.history = await answer.json();
    this.draw();
  }

  draw() {
    const history = this.history;
    if (!history) return;
    const any = history.watched.some(Boolean) || history.captures.length > 0;
    $("axis").hidden = !any;
    $("axis-none").hidden = any;
    if (!any) return;
    const drawn = draw($("axis-picture"), history);
    say($("axis-unit"), drawn.unit.title);
    this.unit = drawn.unit;
    for (const [id, there] of Object.entries(drawn.shows)) $(id).hidden = !there;
    const overlay = $("axis-cursor");
    const label = `Progress in ${NAMES[this.span]}; arrow keys move in time`;
    overlay.setAttribute("aria-label", label);
    overlay.setAttribute("aria-valuemax", `${history.watched.length - 1}`);
    say($("axis-summary"), summary(history, NAMES[this.span], this.unit));
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
    const key = JSON.stringify([found, clock(history.at).slice(-6)]);
    if ($("axis-marks").dataset.of === key) return; // a focused one stays
    $("axis-marks").dataset.of = key;
    $("axis-marks").replaceChildren(...found.map(({ at, all }) => this.mark(at, all)));
  }

  mark(at, all) {
    const link = element("a", all.length > 1 ? `${all.length}` : SIGN, `mark ${all[0].status}`);
    link.href = reportAddress(all[0].id);
    link.target = "_blank";
    link.rel = "noopener";
    link.style.left = `${at - MARK / 2}px`;
    const words = capturesSay(all);
    link.setAttribute("aria-label", `${words}; opens the ${all.length > 1 ? "newest " : ""}report`);
    const tell = (text) => () => say($("axis-tip"), text);
    for (const event of ["pointerenter", "focus"]) link.addEventListener(event, tell(words));
    for (const event of ["pointerleave", "blur"]) link.addEventListener(event, tell(""));
    return link;
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
    say($("axis-tip"), number < 0 ? "" : words);
    const line = $("axis-picture").querySelector(".cursor");
    const at = place($("axis-picture"), history, history.begin + (shown + 0.5) * history.step_s);
    line.setAttribute("visibility", number < 0 ? "hidden" : "visible");
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
  }
}
