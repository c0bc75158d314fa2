// What the stream has sent: one array of numbers for each column of ranks, and the names that they
// stand for.

import { STATES } from "./states.js";
export { CAUSE, GLYPHS, SAYS, STATES, SUSPECT, WORST } from "./states.js";
const COLUMNS = ["state", "iteration", "phase", "op", "seq", "since", "node", "lag"];

export class Model {
  constructor() {
    this.size = 0;
    this.columns = {};
    for (const name of COLUMNS) this.columns[name] = new Float64Array(0);
    this.names = { op: [""], phase: [""], node: [""] };
    this.incidents = [];
    this.events = [];
    this.status = null;
    this.standings = [];
    this.at = 0;
    this.seenAt = 0;
  }

  apply(frame, full) {
    if (full || frame.size !== this.size) this.resize(frame.size, full);
    for (const [table, [first, texts]] of Object.entries(frame.names)) {
      if (full) this.names[table] = [];
      for (let i = 0; i < texts.length; i++) this.names[table][first + i] = texts[i];
    }
    for (const [name, runs] of Object.entries(frame.columns)) {
      const column = this.columns[name];
      if (!column) continue;
      for (let i = 0; i + 2 < runs.length; i += 3) {
        column.fill(runs[i + 2], runs[i], runs[i] + runs[i + 1]);
      }
    }
    if (frame.incidents) this.incidents = frame.incidents;
    if (frame.events) this.events = frame.events;
    this.status = frame.status;
    this.standings = frame.standings;
    this.more = frame.more;
    this.concluded = frame.concluded;
    this.at = frame.at;
    this.seenAt = performance.now();
  }

  resize(size, clear) {
    for (const name of COLUMNS) {
      const old = this.columns[name];
      const fresh = new Float64Array(size);
      if (!clear) fresh.set(old.subarray(0, Math.min(old.length, size)));
      this.columns[name] = fresh;
    }
    this.size = size;
  }

  now() { return this.at + (performance.now() - this.seenAt) / 1000; }

  rank(i) {
    const c = this.columns;
    return {
      rank: i,
      state: STATES[c.state[i]],
      iteration: c.iteration[i],
      phase: this.names.phase[c.phase[i]] || "",
      op: this.names.op[c.op[i]] || "",
      seq: c.seq[i],
      node: this.names.node[c.node[i]] || "",
      for_s: c.since[i] ? Math.max(0, this.now() - c.since[i] / 10) : 0,
      lag_s: c.lag[i] / 1000,
    };
  }
}

// "0-3,8" of sorted numbers; no more than that number of parts.
export function rangesText(numbers, most = 12) {
  const parts = [];
  for (let i = 0; i < numbers.length; i++) {
    const first = numbers[i];
    while (numbers[i + 1] === numbers[i] + 1) i++;
    parts.push(first === numbers[i] ? `${first}` : `${first}-${numbers[i]}`);
  }
  return parts.length > most ? `${parts.slice(0, most).join(",")},…` : parts.join(",");
}

// Ranks as ranges, "0-3,8", as a predicate; null where the text is none.
export function rangesOf(text) {
  if (!/^\d+(-\d+)?(,\d+(-\d+)?)*,?$/.test(text)) return null;
  const spans = text.split(",").filter(Boolean).map((p) => p.split("-").map(Number));
  return (rank) => spans.some(([a, b]) => rank >= a && rank <= (b === undefined ? a : b));
}
