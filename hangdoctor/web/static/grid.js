// The grid of ranks on a canvas: one square a rank, or one for several where there are more ranks than room.

import { DARK_INK, GLYPHS, STATES, WORST } from "./model.js";

const MIN_CELL = 4;
const MIN_TOUCH = 8;
const LARGE = [92, 76, 64, 52, 44, 36, 30, 24, 20, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4];
const ORDER = new Array(STATES.length);
WORST.forEach((code, place) => { ORDER[code] = place; });

export class Grid {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.context = canvas.getContext("2d");
    this.shade = "state";
    this.match = null;
    this.selected = -1;
    this.cell = 0;
    this.columns = 1;
    this.per = 1;
    this.recolour();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    this.colours = STATES.map((s) => style.getPropertyValue(`--${s}`).trim());
    this.ink = { light: style.getPropertyValue("--on-light").trim(), dark: style.getPropertyValue("--on-dark").trim() };
    this.back = style.getPropertyValue("--card").trim();
    this.ring = style.getPropertyValue("--ring").trim();
    this.late = style.getPropertyValue("--late").trim();
  }

  // Squares as large as they fit, in columns that keep the ranks of a node together.
  place() {
    const width = this.canvas.parentElement.clientWidth;
    const room = Math.max(300, Math.min(window.innerHeight * 0.62, 640));
    const least = matchMedia("(pointer: coarse)").matches ? MIN_TOUCH : MIN_CELL;
    const size = this.model.size;
    const per = this.perNode();
    this.per = 1;
    let whole = per; // a node in one row, or its half, where the squares stay large
    while (whole > 4 && whole % 2 === 0 && width / whole < 52) whole /= 2;
    const wide = size <= 64 && per > 1 && width / whole >= 52 ? Math.min(92, Math.floor(width / whole)) : 0;
    let cell = wide && Math.ceil(size / this.fit(width, wide, per)) * wide <= room ? wide : LARGE.find((c) => c >= least && Math.ceil(size / this.fit(width, c, per)) * c <= room);
    if (!cell) {
      cell = least;
      const most = this.fit(width, cell, 1) * Math.floor(room / cell);
      while (Math.ceil(size / this.per) > most) this.per *= 2;
    }
    this.cell = cell;
    this.count = Math.ceil(size / this.per);
    this.columns = Math.max(1, this.per === 1 ? this.fit(width, cell, per) : this.fit(width, cell, 1));
    this.rows = Math.max(1, Math.ceil(this.count / this.columns));
    const ratio = window.devicePixelRatio || 1;
    const height = this.rows * cell;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${height}px`;
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  fit(width, cell, per) {
    const most = Math.max(1, Math.floor(width / cell));
    if (per > 1 && most >= per) return most - (most % per);
    let part = Math.min(most, per);
    while (per > 1 && per % part) part--;
    return per > 1 && part > most / 2 ? part : most;
  }

  perNode() {
    const nodes = this.model.columns.node;
    if (!nodes.length || !nodes[0]) return 1;
    let n = 1;
    while (n < nodes.length && n < 16 && nodes[n] === nodes[0]) n++;
    return n;
  }

  draw() {
    if (!this.model.size) return;
    this.place();
    const { context: c, cell, columns } = this;
    c.fillStyle = this.back;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const gap = cell >= 24 ? 3 : cell >= 10 ? 2 : 1;
    const scale = this.scale();
    for (let i = 0; i < this.count; i++) {
      const x = (i % columns) * cell, y = Math.floor(i / columns) * cell;
      const first = i * this.per, last = Math.min(this.model.size, first + this.per);
      const shown = this.worst(first, last);
      c.globalAlpha = this.match && !this.anyMatch(first, last) ? 0.16 : 1;
      c.fillStyle = this.colour(shown, scale);
      if (cell >= 16) { c.beginPath(); c.roundRect(x, y, cell - gap, cell - gap, cell >= 36 ? 6 : 3); c.fill(); } else c.fillRect(x, y, cell - gap, cell - gap);
      if (cell >= 12) this.label(shown, x, y, cell - gap);
    }
    c.globalAlpha = 1;
    if (this.selected >= 0 && this.selected < this.model.size) this.mark(Math.floor(this.selected / this.per), gap);
  }

  worst(first, last) {
    const state = this.model.columns.state;
    let found = first;
    for (let r = first + 1; r < last; r++) if (ORDER[state[r]] < ORDER[state[found]]) found = r;
    return found;
  }

  anyMatch(first, last) {
    for (let r = first; r < last; r++) if (this.match(r)) return true;
    return false;
  }

  scale() {
    const column = this.model.columns[this.shade === "state" ? "iteration" : this.shade];
    let low = Infinity, high = -Infinity;
    for (const v of column) { if (v < 0) continue; if (v < low) low = v; if (v > high) high = v; }
    return { low, high };
  }

  colour(rank, { low, high }) {
    const state = this.model.columns.state[rank];
    if (this.shade === "state") return this.colours[state];
    const value = this.model.columns[this.shade][rank];
    if (value < 0 || !(high >= low)) return this.colours[0];
    const part = high > low ? (value - low) / (high - low) : this.shade === "lag" ? 0 : 1;
    // Iteration: what is behind stands out; lag: what is late does.
    const strength = this.shade === "iteration" ? 1 - part : part;
    return `color-mix(in srgb, ${this.late} ${Math.round(strength * 100)}%, ${this.colours[2]})`;
  }

  label(rank, x, y, side) {
    const c = this.context, state = this.model.columns.state[rank];
    const dark = this.shade === "state" && DARK_INK.includes(STATES[state]);
    const inverted = STATES[state] === "gone" && matchMedia("(prefers-color-scheme: dark)").matches;
    c.fillStyle = dark || inverted ? this.ink.light : this.ink.dark;
    if (STATES[state] === "unseen" || (STATES[state] === "finished" && this.dark())) c.fillStyle = getComputedStyle(document.body).color;
    c.textBaseline = "middle";
    c.textAlign = "center";
    const middle = x + side / 2;
    if (side < 28) {
      c.font = `700 ${Math.round(side * 0.62)}px system-ui, sans-serif`;
      if (GLYPHS[state]) c.fillText(GLYPHS[state], middle, y + side / 2 + 0.5);
      return;
    }
    if (this.per > 1) return;
    const big = side >= 60;
    c.font = `700 ${big ? 19 : Math.round(side * 0.36)}px system-ui, sans-serif`;
    c.fillText(`${GLYPHS[state]}${GLYPHS[state] ? " " : ""}${rank}`, middle, y + side * (big ? 0.3 : 0.38));
    c.font = `${big ? 11 : Math.max(8, Math.round(side * 0.22))}px system-ui, sans-serif`;
    const told = this.model.rank(rank);
    if (told.iteration >= 0) c.fillText(big ? `it ${told.iteration}` : `${told.iteration}`, middle, y + side * (big ? 0.57 : 0.72), side - 6);
    if (big) c.fillText(clip(told.state === "waiting" || !told.phase ? told.op : told.phase, 14), middle, y + side * 0.8, side - 8);
  }

  dark() { return matchMedia("(prefers-color-scheme: dark)").matches; }

  mark(i, gap) {
    const c = this.context, x = (i % this.columns) * this.cell, y = Math.floor(i / this.columns) * this.cell;
    c.strokeStyle = this.ring;
    c.lineWidth = 3;
    c.strokeRect(Math.max(1.5, x - 1), Math.max(1.5, y - 1), this.cell - gap + 1, this.cell - gap + 1);
  }

  // The rank under a point of the page, -1 for none.
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.cell), row = Math.floor((event.clientY - box.top) / this.cell);
    if (column < 0 || column >= this.columns || row < 0) return -1;
    const i = row * this.columns + column;
    return i < this.count ? this.worst(i * this.per, Math.min(this.model.size, (i + 1) * this.per)) : -1;
  }

  // Where the square of a rank is, in the frame around the canvas.
  spot(rank) {
    const i = Math.floor(rank / this.per);
    return { x: (i % this.columns) * this.cell, y: Math.floor(i / this.columns) * this.cell + this.cell };
  }

  move(key) {
    const step = { ArrowLeft: -this.per, ArrowRight: this.per, ArrowUp: -this.columns * this.per, ArrowDown: this.columns * this.per }[key];
    if (key === "Home") this.selected = 0;
    else if (key === "End") this.selected = this.model.size - 1;
    else if (step === undefined) return false;
    else this.selected = Math.max(0, Math.min(this.model.size - 1, this.selected < 0 ? 0 : this.selected + step));
    return true;
  }
}

export function clip(text, room) { return text.length > room ? `${text.slice(0, room - 1)}…` : text; }
