// Paints the squares, signs and labels of the grid on its canvas, in the colours of the theme.

import { clip } from "./dom.js";
import { CAUSE, GLYPHS, STATES } from "./model.js";

const FONT = "system-ui, sans-serif";
const ROUND = 14; // smaller squares have sharp corners
export const WRITTEN = 9; // smaller ones have no sign
const STRIPED = 12, NUMBERED = 20, DETAILED = 40; // pixels for stripes, for the rank, the iteration
const SHADES = 50; // percent of the strong colour at most, so that numbers stay readable

export class Paint {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.recolour();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = STATES.map(value);
    this.inks = STATES.map((state) => value(`on-${state}`));
    const others = ["card", "ink", "dim", "line", "cause", "on-cause"];
    for (const name of others) this[name] = value(name);
    this.shades = Array.from({ length: SHADES + 1 }, (_, percent) =>
      `color-mix(in srgb, ${this.cause} ${percent}%, ${this.colours[0]})`);
  }

  size(wide, high) {
    const ratio = window.devicePixelRatio || 1, key = [wide, high, ratio].join();
    if (key === this.sized) return;
    this.sized = key;
    this.ratio = ratio;
    this.canvas.width = Math.round(wide * ratio);
    this.canvas.height = Math.round(high * ratio);
    this.canvas.style.width = `${wide}px`;
    this.canvas.style.height = `${high}px`;
  }

  // Empty; what is painted then is at x, y of the whole grid, of which the canvas shows a part.
  begin({ x, y }) {
    const c = this.context, ratio = this.ratio;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = this.card;
    c.fillRect(0, 0, this.canvas.width, this.canvas.height);
    c.setTransform(ratio, 0, 0, ratio, -x * ratio, -y * ratio);
    c.textBaseline = "middle";
  }

  label({ text, x, y, strong, align, room }) {
    const c = this.context;
    c.fillStyle = strong ? this.ink : this.dim;
    c.font = strong ? `600 12.5px ${FONT}` : `400 11px ${FONT}`;
    c.textAlign = align || "left";
    c.fillText(clip(text, Math.max(3, Math.floor(room / 6))), x, y);
  }

  // Of the strong colour, a share from 0 to 1.
  shade(strength) { return this.shades[Math.round(strength * SHADES)]; }

  square(x, y, cell, fill) {
    const c = this.context, side = cell - gapOf(cell);
    c.fillStyle = fill;
    if (cell < ROUND) {
      c.fillRect(x, y, side, side);
      return;
    }
    c.beginPath();
    c.roundRect(x, y, side, side, side >= 30 ? 6 : 3);
    c.fill();
  }

  // Of a node that does not answer: a frame, and stripes where there is room.
  hollow(x, y, cell) {
    const side = cell - gapOf(cell);
    if (side >= STRIPED) this.stripes(x, y, side);
    this.context.strokeStyle = this.dim;
    this.context.lineWidth = 1;
    this.context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
  }

  stripes(x, y, side) {
    const c = this.context;
    c.save();
    c.beginPath();
    c.rect(x, y, side, side);
    c.clip();
    c.strokeStyle = this.line;
    c.lineWidth = 2;
    c.beginPath();
    for (let i = -side; i < side; i += 6) {
      c.moveTo(x + i, y + side);
      c.lineTo(x + i + side, y);
    }
    c.stroke();
    c.restore();
  }

  // What is written on a square of at least WRITTEN pixels; `iteration` is "" for none.
  write({ x, y, cell, ink, rank, iteration, sign }) {
    const c = this.context, side = cell - gapOf(cell);
    c.fillStyle = ink;
    c.textAlign = "center";
    if (side < NUMBERED) this.sign(sign, x, y, side);
    else this.numbers({ x, y, side, sign, rank, iteration });
  }

  // A small square has its sign alone.
  sign(sign, x, y, side) {
    if (!sign) return;
    this.context.font = `700 ${Math.min(11, Math.round(side * 0.8))}px ${FONT}`;
    this.context.fillText(sign[0], x + side / 2, y + side / 2 + 0.5);
  }

  numbers({ x, y, side, sign, rank, iteration }) {
    const c = this.context, large = side >= DETAILED;
    const fits = Math.floor((side * 1.35) / Math.max(2.4, `${rank}`.length));
    c.font = `600 ${Math.min(15, fits, Math.floor(side * 0.42))}px ${FONT}`;
    c.fillText(`${rank}`, x + side / 2, y + side * (sign && !large ? 0.64 : 0.54));
    if (large && iteration) {
      c.font = `400 10px ${FONT}`;
      c.fillText(iteration, x + side / 2, y + side - 8, side - 4);
    }
    if (!sign) return;
    c.font = `700 ${large ? 11 : 9}px ${FONT}`;
    c.textAlign = "right";
    c.fillText(sign, x + side - 3, y + (large ? 9 : 7));
  }

  // A frame around a square.
  mark({ x, y, cell, colour, wide }) {
    const c = this.context, off = cell >= ROUND ? 2 : 1.5, side = cell - gapOf(cell) + 2 * off;
    c.strokeStyle = this[colour];
    c.lineWidth = wide;
    c.beginPath();
    c.roundRect(Math.max(1, x - off), Math.max(1, y - off), side, side, cell >= ROUND ? 5 : 0);
    c.stroke();
  }

  // 1: as it is; less: pale, for what a filter leaves out.
  strength(share) { this.context.globalAlpha = share; }
}

function gapOf(cell) {
  if (cell >= 36) return 5;
  if (cell >= 20) return 3;
  return cell >= 9 ? 2 : 1;
}

// What is written on a square besides its rank.
export function signOf(state, guilty) { return `${guilty ? CAUSE : ""}${GLYPHS[state]}`; }
