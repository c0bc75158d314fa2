// The grid of ranks on a canvas: one square a rank, labelled as the report's grid is.

import { arrange, arrangements } from "./arrange.js";
import { clip } from "./dom.js";
import { CAUSE, GLYPHS, STATES } from "./model.js";

const LARGE = [58, 48, 36, 30, 27, 24, 20, 17, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4];
const MIN_CELL = 4;
const MIN_TOUCH = 8;
const LABELLED = 9; // smaller squares have labels at every few lines only
const MAX_PIXELS = 16000; // of a canvas, in one direction

export class Grid {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.context = canvas.getContext("2d");
    this.shade = "state";
    this.wanted = "";
    this.zoom = 0;
    this.match = null;
    this.culprits = new Set();
    this.selected = -1;
    this.cell = 0;
    this.runs = []; // lines as drawn: { x, y, ranks }
    this.recolour();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = STATES.map(value);
    this.inks = STATES.map((s) => value(`on-${s}`));
    for (const name of ["card", "ink", "dim", "line", "link", "cause", "on-cause"]) this[name] = value(name);
    this.dead = null;
  }

  name() {
    const there = arrangements(this.model).map(([name]) => name);
    return there.includes(this.wanted) ? this.wanted : there[0];
  }

  // The largest squares with which all fits, then larger by the zoom; the frame scrolls.
  place() {
    const width = this.canvas.parentElement.clientWidth;
    const room = Math.max(300, Math.min(window.innerHeight * 0.6, 620));
    const least = matchMedia("(pointer: coarse)").matches ? MIN_TOUCH : MIN_CELL;
    const key = [width, room, this.model.size, this.name(), this.zoom, this.model.status.layout, this.model.names.node.length].join();
    if (key === this.placed) return;
    this.placed = key;
    this.shown = this.name();
    let blocks = arrange(this.model, this.shown);
    const sizes = LARGE.filter((c) => c >= least);
    let best = sizes.findIndex((c) => this.flow(blocks, c, width).height <= room);
    if (best < 0 || (this.name() === "node" && sizes[best] < LABELLED && !this.zoom && !this.wanted)) {
      if (this.name() === "node" && !this.wanted) blocks = arrange(this.model, this.shown = "number"); // no room for names
      best = sizes.findIndex((c) => this.flow(blocks, c, width).height <= room);
    }
    best = Math.max(0, (best < 0 ? sizes.length - 1 : best) - this.zoom);
    this.atMost = best === 0;
    this.cell = sizes[best];
    Object.assign(this, this.flow(blocks, this.cell, width));
    this.index();
    this.size(width);
  }

  size(width) {
    const wide = Math.max(width, this.width);
    const ratio = Math.min(window.devicePixelRatio || 1, MAX_PIXELS / Math.max(wide, this.height));
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${wide}px`;
    this.canvas.style.height = `${this.height}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  // Where everything goes with squares of that size.
  flow(blocks, cell, width) {
    const runs = [], labels = [], gap = cell >= 14 ? 22 : 14;
    let x = 0, y = 0, tallest = 0, widest = 0;
    for (const block of blocks) {
      const flows = block.lines.some((l) => l.flows);
      const lines = flows ? wrap(block.lines[0].ranks, Math.max(1, Math.floor((width - 48) / cell)), this.perNode()) : block.lines;
      const named = lines.some((l) => l.label);
      const left = named ? 42 : 0, head = block.title ? 18 : 0, over = block.columns.length ? 16 : 0;
      const across = Math.max(...lines.map((l) => l.ranks.length)) * cell;
      const wide = left + Math.max(across, block.title ? Math.min(block.title.length * 7, 130) : 0), high = head + over + lines.length * cell;
      if (x && x + wide > width) { x = 0; y += tallest + gap; tallest = 0; }
      if (block.title) labels.push({ text: block.title, x: x + left, y: y + 8, strong: true, room: Math.max(across, 130) });
      const step = Math.max(1, Math.ceil(34 / cell));
      block.columns.forEach((text, i) => { if (i % step === 0) labels.push({ text, x: x + left + (i + (step > 1 ? 0 : 0.5)) * cell, y: y + head + 8, middle: step === 1, room: step * cell - 2 }); });
      const rows = Math.max(1, Math.ceil(11 / cell));
      lines.forEach((line, i) => {
        const at = y + head + over + i * cell;
        if (line.label && i % rows === 0) labels.push({ text: line.label, x: x + left - 6, y: at + Math.max(cell, 10) / 2, right: true, room: left - 6 });
        runs.push({ x: x + left, y: at, ranks: line.ranks });
      });
      tallest = Math.max(tallest, high);
      widest = Math.max(widest, x + wide);
      x += wide + gap;
    }
    return { runs, labels, width: widest, height: y + tallest + 4 };
  }

  // rank -> its line and place, for keys and marks
  index() {
    this.spots = new Map();
    this.runs.forEach((run, line) => run.ranks.forEach((rank, i) => this.spots.set(rank, { line, i })));
  }

  perNode() {
    const nodes = this.model.columns.node;
    let n = 1;
    while (nodes[0] && n < nodes.length && n < 16 && nodes[n] === nodes[0]) n++;
    return n;
  }

  draw() {
    if (!this.model.size) return;
    this.place();
    const c = this.context;
    c.fillStyle = this.card;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.textBaseline = "middle";
    for (const label of this.labels) this.write(label);
    const scale = this.scale();
    for (const run of this.runs) run.ranks.forEach((rank, i) => this.tile(rank, run.x + i * this.cell, run.y, scale));
    c.globalAlpha = 1;
    for (const rank of this.culprits) this.mark(rank, this.cause, this.cell >= 14 ? 2 : 1.5);
    if (this.selected >= 0) this.mark(this.selected, this.ink, 3);
  }

  write(label) {
    const c = this.context;
    c.fillStyle = label.strong ? this.ink : this.dim;
    c.font = `${label.strong ? 600 : 400} ${label.strong ? 12.5 : 11}px system-ui, sans-serif`;
    c.textAlign = label.right ? "right" : label.middle ? "center" : "left";
    c.fillText(clip(label.text, Math.max(3, Math.floor(label.room / 6))), label.x, label.y);
  }

  gap() { return this.cell >= 36 ? 5 : this.cell >= 20 ? 3 : this.cell >= 9 ? 2 : 1; }

  tile(rank, x, y, scale) {
    const c = this.context, side = this.cell - this.gap(), guilty = this.culprits.has(rank) && this.shade === "state";
    const state = this.model.columns.state[rank];
    c.globalAlpha = this.match && !this.match(rank) ? 0.2 : 1;
    const plain = this.shade === "state";
    c.fillStyle = guilty ? this.cause : plain ? this.colours[state] : this.shaded(rank, scale);
    c.beginPath();
    if (this.cell >= 14) c.roundRect(x, y, side, side, side >= 30 ? 6 : 3); else c.rect(x, y, side, side);
    c.fill();
    if (plain && !guilty && STATES[state] === "silent") this.hatch(x, y, side);
    const ink = guilty ? this["on-cause"] : plain ? this.inks[state] : this.ink;
    if (side >= 7) this.letters(rank, state, { x, y, side, ink, guilty });
  }

  hatch(x, y, side) {
    const c = this.context;
    c.save();
    c.clip();
    c.strokeStyle = this.line;
    c.lineWidth = 2;
    for (let i = -side; i < side; i += 6) { c.beginPath(); c.moveTo(x + i, y + side); c.lineTo(x + i + side, y); c.stroke(); }
    c.restore();
    c.strokeStyle = this.dim;
    c.lineWidth = 1;
    c.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
  }

  letters(rank, state, { x, y, side, ink, guilty }) {
    const c = this.context, sign = `${guilty ? CAUSE : ""}${GLYPHS[state]}`;
    c.fillStyle = ink;
    c.textAlign = "center";
    if (side < 20) {
      c.font = `700 ${Math.min(11, Math.round(side * 0.8))}px system-ui, sans-serif`;
      if (sign) c.fillText(sign[0], x + side / 2, y + side / 2 + 0.5);
      return;
    }
    const digits = `${rank}`.length;
    c.font = `600 ${Math.min(15, Math.floor((side * 1.35) / Math.max(2.4, digits)), Math.floor(side * 0.42))}px system-ui, sans-serif`;
    c.fillText(`${rank}`, x + side / 2, y + side * (sign && side < 40 ? 0.64 : 0.54));
    const iteration = this.model.columns.iteration[rank];
    if (side >= 40 && iteration >= 0) {
      c.font = "400 10px system-ui, sans-serif";
      c.fillText(`it ${iteration}`, x + side / 2, y + side - 8, side - 4);
    }
    if (!sign) return;
    c.font = `700 ${side >= 40 ? 11 : 9}px system-ui, sans-serif`;
    c.textAlign = "right";
    c.fillText(sign, x + side - 3, y + (side >= 40 ? 9 : 7));
  }

  scale() {
    const column = this.model.columns[this.shade === "state" ? "iteration" : this.shade];
    let low = Infinity, high = -Infinity;
    for (const v of column) { if (v < 0) continue; if (v < low) low = v; if (v > high) high = v; }
    return { low, high };
  }

  // Iteration: what is behind stands out; lag: what is late does. At most half of the strong colour, so that numbers stay readable.
  shaded(rank, { low, high }) {
    const value = this.model.columns[this.shade][rank];
    if (value < 0 || !(high >= low)) return this.colours[0];
    const part = high > low ? (value - low) / (high - low) : this.shade === "lag" ? 0 : 1;
    const strength = this.shade === "iteration" ? 1 - part : part;
    return `color-mix(in srgb, ${this.cause} ${Math.round(strength * 50)}%, ${this.colours[0]})`;
  }

  mark(rank, colour, wide) {
    const spot = this.spot(rank);
    if (!spot) return;
    const c = this.context, side = this.cell - this.gap(), off = this.cell >= 14 ? 2 : 1.5;
    c.strokeStyle = colour;
    c.lineWidth = wide;
    c.beginPath();
    c.roundRect(Math.max(1, spot.x - off), Math.max(1, spot.y - off), side + 2 * off, side + 2 * off, this.cell >= 14 ? 5 : 0);
    c.stroke();
  }

  // The rank under a point of the page, -1 for none.
  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    for (const run of this.runs) {
      if (y < run.y || y >= run.y + this.cell || x < run.x) continue;
      const i = Math.floor((x - run.x) / this.cell);
      if (i < run.ranks.length) return run.ranks[i];
    }
    return -1;
  }

  spot(rank) {
    const found = this.spots && this.spots.get(rank);
    if (!found) return null;
    const run = this.runs[found.line];
    return { x: run.x + found.i * this.cell, y: run.y };
  }

  move(key) {
    const last = this.model.size - 1;
    if (key === "Home") this.selected = 0;
    else if (key === "End") this.selected = last;
    else if (!/^Arrow(Left|Right|Up|Down)$/.test(key)) return false;
    else if (this.selected < 0) this.selected = 0;
    else this.selected = this.neighbour(key);
    this.show();
    return true;
  }

  neighbour(key) {
    const here = this.spots.get(this.selected);
    if (!here) return 0;
    const order = this.runs.flatMap((run) => run.ranks);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const next = order[order.indexOf(this.selected) + (key === "ArrowLeft" ? -1 : 1)];
      return next === undefined ? this.selected : next;
    }
    const from = this.spot(this.selected), down = key === "ArrowDown" ? 1 : -1;
    let best = this.selected, nearest = Infinity;
    for (const rank of order) {
      const to = this.spot(rank), rows = (to.y - from.y) * down;
      if (rows <= 0) continue;
      const far = rows * 1000 + Math.abs(to.x - from.x);
      if (far < nearest) { nearest = far; best = rank; }
    }
    return best;
  }

  // Scroll the frame so that the selected rank is in it.
  show() {
    const spot = this.spot(this.selected), frame = this.canvas.parentElement;
    if (!spot) return;
    if (spot.y < frame.scrollTop || spot.y + this.cell > frame.scrollTop + frame.clientHeight) frame.scrollTop = spot.y - frame.clientHeight / 2;
    if (spot.x < frame.scrollLeft || spot.x + this.cell > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = spot.x - frame.clientWidth / 2;
  }
}

// Lines as long as there is room for, whole nodes where that is possible, with the number of their first rank.
function wrap(ranks, most, per) {
  const wide = per > 1 && most >= per ? most - (most % per) : most;
  const found = [];
  for (let i = 0; i < ranks.length; i += wide) found.push({ label: `${ranks[i]}`, ranks: ranks.slice(i, i + wide) });
  return found;
}
