// Draws the time axis as SVG: a staircase of the rate, bands for stalls and what was not watched.
// Colours are the style sheet's, so that both themes need no drawing of their own.

import { ticks } from "./time_axis_words.js";

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 120, TOP = 10, BOTTOM = 98, LEFT = 46, RIGHT = 12;
const LEAST_BAND = 3; // pixels: a short stall in a week must be seen

// From the largest rate down: what a rate is multiplied by, and how that is called.
const UNITS = [
  { least: 0.5, times: 1, short: "steps/s", title: "steps a second" },
  { least: 0.5 / 60, times: 60, short: "steps/min", title: "steps a minute" },
  { least: 0, times: 3600, short: "steps/h", title: "steps an hour" },
];
const SHARE = { times: 100, short: "%", title: "share of the time with progress, in percent" };

export function unitOf(history) {
  const most = Math.max(0, ...history.steps.filter((rate) => rate !== null));
  const moved = history.moved.map((share, i) => (history.alive[i] ? share : null));
  if (!most) return { ...SHARE, values: moved };
  return { ...UNITS.find((unit) => most >= unit.least), values: history.steps };
}

// The next of 1, 2, 2.5, 5, 10, 20, ...
function rounded(most) {
  const power = 10 ** Math.floor(Math.log10(most || 1));
  return [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= most * 0.999) || power * 10;
}

function width(svg) { return svg.parentElement.clientWidth; }

// Whether there is room to draw: not before the page has been laid out.
export function isWide(svg) { return width(svg) > 2 * (LEFT + RIGHT); }

// Pixels from the left edge of the picture.
export function place(svg, history, at) {
  const share = (at - history.begin) / (history.step_s * history.watched.length);
  return LEFT + share * (width(svg) - LEFT - RIGHT);
}

// The time of day under a point of the page.
export function timeAt(svg, history, clientX) {
  const share = (clientX - svg.getBoundingClientRect().left - LEFT) / (width(svg) - LEFT - RIGHT);
  return history.begin + share * history.step_s * history.watched.length;
}

function make(tag, className, attributes, text) {
  const made = document.createElementNS(NS, tag);
  if (className) made.setAttribute("class", className);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Draws it; { unit, shows } is how the rates are written, and which parts of the legend are needed.
export function draw(svg, history) {
  const unit = unitOf(history), wide = width(svg);
  const known = unit.values.filter((value) => value !== null);
  const most = rounded(Math.max(...known, unit.times === 100 ? 1 : 0) * unit.times);
  svg.setAttribute("viewBox", `0 0 ${wide} ${HEIGHT}`);
  svg.setAttribute("width", wide);
  svg.setAttribute("height", HEIGHT);
  const x = (at) => place(svg, history, at);
  const y = (value) => BOTTOM - ((value * unit.times) / most) * (BOTTOM - TOP);
  const away = bands(history, (i) => !history.watched[i]);
  const idle = bands(history, (i) => history.watched[i] && !history.alive[i]);
  svg.replaceChildren(
    hatch(),
    ...away.map((band) => bandRect("away", band, x)),
    ...idle.map((band) => bandRect("idle", band, x)),
    ...history.stalls.flatMap((stall) => stallRects(stall, history, x)),
    ...levels(most, wide, y, unit),
    ...curve(history, unit.values, x, y),
    ...times(history, wide, x),
    make("line", "cursor", { y1: TOP, y2: BOTTOM, x1: 0, x2: 0, visibility: "hidden" }),
  );
  const shows = {
    "key-stall": history.stalls.length,
    "key-away": away.length,
    "key-idle": idle.length,
    "key-capture": history.captures.length,
  };
  return { unit, shows };
}

function hatch() {
  const pattern = make("pattern", "", {
    id: "hatch",
    width: 6,
    height: 6,
    patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)",
  });
  pattern.append(make("line", "hatch", { x1: 0, y1: 0, x2: 0, y2: 6 }));
  const found = make("defs", "", {});
  found.append(pattern);
  return found;
}

// [first, end) of runs of buckets; the newest one has only begun and is as the one before.
function bands(history, fits) {
  const found = [], last = history.watched.length - 1;
  for (let i = 0; i < last; i++) {
    if (!fits(i)) continue;
    const first = i;
    while (i + 1 < last && fits(i + 1)) i++;
    found.push([first, i + 1]);
  }
  return found.map(([first, end]) => [first, end].map((n) => history.begin + n * history.step_s));
}

function bandRect(name, [begin, end], x) {
  const fill = name === "away" ? { fill: "url(#hatch)" } : {};
  const size = { x: x(begin), width: x(end) - x(begin), y: TOP, height: BOTTOM - TOP };
  return make("rect", name, { ...size, ...fill });
}

function stallRects(stall, history, x) {
  const left = x(Math.max(stall.begin, history.begin));
  const size = Math.max(LEAST_BAND, x(stall.end) - left);
  return [
    make("rect", "stall", { x: left, width: size, y: TOP, height: BOTTOM - TOP }),
    make("rect", "stall-edge", { x: left, width: size, y: TOP - 4, height: 4 }),
  ];
}

function levels(most, wide, y, unit) {
  return [0, most / 2, most].flatMap((level) => {
    const at = y(level / unit.times);
    const text = `${Number(level.toPrecision(3))}`;
    return [
      make("line", "level", { x1: LEFT, x2: wide - RIGHT, y1: at, y2: at }),
      make("text", "number", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, text),
    ];
  });
}

// A staircase with its area; it is interrupted where nothing is known.
function curve(history, values, x, y) {
  let line = "", area = "", open = false;
  const close = (at) => { if (open) area += `L${at} ${y(0)}Z`; open = false; };
  values.forEach((value, i) => {
    const left = x(history.begin + i * history.step_s).toFixed(1);
    const right = x(history.begin + (i + 1) * history.step_s).toFixed(1);
    if (value === null) { close(left); return; }
    const at = y(value).toFixed(1);
    line += `${open ? "L" : "M"}${left} ${at}H${right}`;
    area += `${open ? "L" : `M${left} ${y(0)}L`}${left} ${at}H${right}`;
    open = true;
  });
  close(x(history.begin + values.length * history.step_s).toFixed(1));
  return [make("path", "area", { d: area }), make("path", "line", { d: line })];
}

function times(history, wide, x) {
  return ticks(history, wide - LEFT - RIGHT).flatMap(({ at, text }) => [
    make("line", "tick", { x1: x(at), x2: x(at), y1: BOTTOM, y2: BOTTOM + 5 }),
    make("text", "number", { x: x(at), y: BOTTOM + 18, "text-anchor": "middle" }, text),
  ]);
}
