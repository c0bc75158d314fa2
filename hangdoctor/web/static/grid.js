// The grid of ranks: one square a rank, labelled as the report's grid is; pointing and keys in it.

import { fitted, perNode } from "./grid_layout.js";
import { Paint, WRITTEN, signOf } from "./grid_paint.js";
import { STATES } from "./model.js";

const MIN_CELL = 4, MIN_TOUCH = 8;
const SILENT = STATES.indexOf("silent");
const PADDING = 4; // of the frame
const PALE = 0.2; // what the filter leaves out
const MIN_ROOM = 300, MAX_ROOM = 620; // pixels in height that all ranks should fit into

export class Grid {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.space = canvas.parentElement; // as large as the whole grid; the canvas stays in sight
    this.frame = this.space.parentElement; // scrolls
    this.model = model;
    this.paint = new Paint(canvas);
    this.shade = "state";
    this.wanted = "";
    this.zoom = 0;
    this.match = null;
    this.culprits = new Set();
    this.selected = -1;
    this.placed = "";
    Object.assign(this, { shown: "", atMost: false, cell: 0, runs: [], labels: [], height: 0 });
    this.frame.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
  }

  recolour() { this.paint.recolour(); }

  perNode() { return perNode(this.model); }

  // Anew only where something that it depends on has changed.
  place() {
    const model = this.model;
    const wish = {
      wanted: this.wanted,
      zoom: this.zoom,
      width: this.frame.clientWidth - 2 * PADDING,
      room: Math.max(MIN_ROOM, Math.min(window.innerHeight * 0.6, MAX_ROOM)),
      least: matchMedia("(pointer: coarse)").matches ? MIN_TOUCH : MIN_CELL,
    };
    const names = model.names.node.length;
    const key = JSON.stringify([wish, model.size, model.status.layout, names, perNode(model)]);
    if (key === this.placed) return;
    this.placed = key;
    const found = fitted(model, wish);
    Object.assign(this, found);
    this.space.style.width = `${Math.max(wish.width, found.width)}px`;
    this.space.style.height = `${found.height}px`;
    this.index();
  }

  // The part of the grid that is in sight: { x, y, right, bottom }.
  view() {
    const { frame, space, canvas } = this;
    const wide = Math.min(space.clientWidth, frame.clientWidth);
    const high = Math.min(this.height, frame.clientHeight);
    this.paint.size(wide, high);
    const at = canvas.getBoundingClientRect(), whole = space.getBoundingClientRect();
    const x = at.left - whole.left, y = at.top - whole.top;
    return { x, y, right: x + wide, bottom: y + high };
  }

  // rank -> its line and place, for keys and marks
  index() {
    this.spots = new Map();
    this.runs.forEach((run, line) => {
      run.ranks.forEach((rank, i) => this.spots.set(rank, { line, i }));
    });
  }

  draw() {
    if (!this.model.size) return;
    this.place();
    const { paint, cell } = this;
    const view = this.view();
    paint.begin(view);
    for (const label of this.labels) {
      if (label.y > view.y - cell && label.y < view.bottom + cell) paint.label(label);
    }
    const look = this.shade === "state" ? this.byState() : this.byShade();
    for (const run of this.runs) {
      if (run.y > view.y - cell && run.y < view.bottom) this.drawRun(run, look, view);
    }
    paint.strength(1);
    for (const rank of this.culprits) this.mark(rank, view, "cause", cell >= 14 ? 2 : 1.5);
    if (this.selected >= 0) this.mark(this.selected, view, "ink", 3);
  }

  drawRun(run, look, view) {
    const cell = this.cell;
    const first = Math.max(0, Math.floor((view.x - run.x) / cell));
    const end = Math.min(run.ranks.length, Math.ceil((view.right - run.x) / cell));
    for (let i = first; i < end; i++) this.drawRank(run.ranks[i], run.x + i * cell, run.y, look);
  }

  drawRank(rank, x, y, look) {
    const { paint, cell, match } = this;
    const state = this.model.columns.state[rank], guilty = look.guilty(rank);
    if (match) paint.strength(match(rank) ? 1 : PALE);
    paint.square(x, y, cell, look.fill(rank, guilty));
    if (state === SILENT && look.silent && !guilty) paint.hollow(x, y, cell);
    if (cell < WRITTEN) return;
    const ink = look.ink(rank, guilty), iteration = this.iteration(rank);
    paint.write({ x, y, cell, ink, rank, iteration, sign: signOf(state, guilty) });
  }

  mark(rank, view, colour, wide) {
    const spot = this.spot(rank);
    if (!spot || spot.y < view.y - this.cell || spot.y > view.bottom) return;
    this.paint.mark({ ...spot, cell: this.cell, colour, wide });
  }

  // How a square looks, by its rank: by the state of the rank...
  byState() {
    const { paint, culprits } = this, states = this.model.columns.state;
    return {
      silent: true,
      guilty: (rank) => culprits.has(rank),
      fill: (rank, guilty) => (guilty ? paint.cause : paint.colours[states[rank]]),
      ink: (rank, guilty) => (guilty ? paint["on-cause"] : paint.inks[states[rank]]),
    };
  }

  // ... or by a number: of iterations, what is behind stands out; of lag, what is late does.
  byShade() {
    const { paint } = this, values = this.model.columns[this.shade];
    const [low, high] = ends(values), late = this.shade === "lag";
    const strength = (value) => {
      const part = high > low ? (value - low) / (high - low) : Number(!late);
      return late ? part : 1 - part;
    };
    const known = (rank) => values[rank] >= 0 && high >= low;
    return {
      silent: false,
      guilty: () => false,
      fill: (rank) => (known(rank) ? paint.shade(strength(values[rank])) : paint.colours[0]),
      ink: () => paint.ink,
    };
  }

  iteration(rank) {
    const found = this.model.columns.iteration[rank];
    return found >= 0 ? `it ${found}` : "";
  }

  // The rank under a point of the page, -1 for none.
  at(event) {
    const box = this.space.getBoundingClientRect();
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

  // ------------------------------------------------------------------ keys

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
    if (!this.spots.has(this.selected)) return 0;
    if (key === "ArrowLeft") return this.beside(-1);
    if (key === "ArrowRight") return this.beside(1);
    return this.nextRow(key === "ArrowDown" ? 1 : -1);
  }

  beside(by) {
    const { line, i } = this.spots.get(this.selected), run = this.runs[line];
    const next = run.ranks[i + by];
    if (next !== undefined) return next;
    const other = this.runs[line + by];
    if (!other) return this.selected;
    return by < 0 ? other.ranks[other.ranks.length - 1] : other.ranks[0];
  }

  // The nearest square of the nearest line above or below.
  nextRow(down) {
    const from = this.spot(this.selected);
    let best = this.selected, nearest = Infinity;
    for (const run of this.runs) {
      const rows = (run.y - from.y) * down;
      if (rows <= 0) continue;
      const wanted = Math.round((from.x - run.x) / this.cell);
      const i = Math.max(0, Math.min(run.ranks.length - 1, wanted));
      const far = rows * 1000 + Math.abs(run.x + i * this.cell - from.x);
      if (far < nearest) {
        nearest = far;
        best = run.ranks[i];
      }
    }
    return best;
  }

  // Larger or smaller squares around the selected rank, the first cause, or what was in the middle.
  zoomBy(by) {
    const { frame } = this, middle = frame.clientHeight / 2;
    const share = (frame.scrollTop + middle) / Math.max(1, this.height);
    this.zoom = Math.max(0, this.zoom + by);
    this.place();
    const rank = this.selected < 0 ? Math.min(...this.culprits) : this.selected;
    if (this.spots.has(rank)) this.show(rank);
    else frame.scrollTop = share * this.height - middle;
    this.draw();
  }

  // Scroll the frame so that the rank is in it.
  show(rank = this.selected) {
    const spot = this.spot(rank), frame = this.frame;
    if (!spot) return;
    const { scrollTop, clientHeight, scrollLeft, clientWidth } = frame;
    const below = spot.y + this.cell > scrollTop + clientHeight;
    if (spot.y < scrollTop || below) frame.scrollTop = spot.y - clientHeight / 2;
    const beyond = spot.x + this.cell > scrollLeft + clientWidth;
    if (spot.x < scrollLeft || beyond) frame.scrollLeft = spot.x - clientWidth / 2;
  }
}

// Lowest and highest of the values that are known.
function ends(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < 0) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
}
