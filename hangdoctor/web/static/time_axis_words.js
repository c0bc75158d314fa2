// What the time axis says in words: one bucket, the whole span, a table, and the times below it.

import { element } from "./dom.js";
import { clock, offset, parts, seconds, zone } from "./times.js";

const STEPS = [60, 120, 300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800];
const ROOM = 62; // pixels for the text of one tick
const TABLE_ROWS = 12;
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

// Round times of the page's zone: [{ at, text }], no more than there is room for.
export function ticks(history, room) {
  const span = history.step_s * history.watched.length;
  const step = STEPS.find((s) => (span / s) * ROOM <= room) || span;
  const found = [], shift = offset(history.begin);
  const first = Math.ceil((history.begin + shift) / step) * step - shift;
  const end = history.begin + span;
  for (let at = first; at < end; at += step) found.push({ at, text: tickText(at) });
  const edge = (span / room) * (ROOM / 3); // half a text must not stick out
  return found.filter(({ at }) => at > history.begin + edge && at < end - edge);
}

function tickText(at) {
  const { date, time } = parts(at);
  if (time !== "00:00:00") return time.slice(0, 5);
  return `${MONTHS[Number(date.slice(5, 7)) - 1]} ${Number(date.slice(8))}`;
}

function rate(value, unit) {
  return `${Number((value * unit.times).toPrecision(3))} ${unit.short}`;
}

function overlaps(stall, begin, end) { return stall.begin < end && stall.end > begin; }

// "07:04:10 to 07:04:20 UTC", with the date where it is not today's.
function fromTo(begin, end) {
  const from = clock(begin).replace(` ${zone(begin)}`, "");
  return `${from} to ${parts(end).time} ${zone(end)}`;
}

function captured(one) { return `captured ${clock(one.at)}: ${one.status.toUpperCase()}`; }

// Of captures that share one mark.
export function capturesSay(all) {
  if (all.length === 1) return captured(all[0]);
  const times = all.slice(0, 3).map((one) => `${one.status.toUpperCase()} ${clock(one.at)}`);
  return `${all.length} captures: ${times.join(", ")}${all.length > 3 ? ", …" : ""}`;
}

function inside(history, begin, end) {
  return history.captures.filter((one) => one.at >= begin && one.at < end);
}

export function readout(history, number, unit) {
  const begin = history.begin + number * history.step_s;
  const end = Math.min(begin + history.step_s, Math.max(history.at, begin + 1));
  const words = [];
  if (!history.watched[number]) words.push("not watched");
  else if (!history.alive[number]) words.push("no rank of the job was running");
  else words.push(progress(unit.values[number], unit));
  for (const stall of history.stalls.filter((one) => overlaps(one, begin, end))) {
    const took = seconds(stall.end - stall.begin);
    const since = `stalled since ${clock(stall.begin)} (${took})`;
    words.push(stall.goes_on ? since : `stalled for ${took}`);
  }
  words.push(...inside(history, begin, begin + history.step_s).slice(0, 2).map(captured));
  return `${fromTo(begin, end)}: ${words.join("; ")}`;
}

function progress(value, unit) {
  if (value === null) return "running, steps not known";
  if (unit.short === "%") return `progress in ${rate(value, unit)} of the time`;
  return value > 0 ? `${rate(value, unit)} (${seconds(1 / value)} a step)` : "no step";
}

function middle(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

function count(number, one) { return `${number} ${one}${number === 1 ? "" : "s"}`; }

// `waits` is since when ranks have been waiting now, 0 where none is.
export function summary(history, name, unit, waits) {
  const { begin: first, step_s } = history;
  const stuck = (at) => {
    const of_now = waits > 0 && at + step_s > waits;
    return of_now || history.stalls.some((one) => overlaps(one, at, at + step_s));
  };
  const usual = (value, i) => value !== null && history.watched[i] && !stuck(first + i * step_s);
  const known = unit.values.filter(usual);
  const words = [];
  if (known.length) words.push(`usually ${rate(middle(known), unit)}`);
  const { stalls, captures, begin } = history;
  const long = stalls.reduce((sum, one) => sum + one.end - Math.max(one.begin, begin), 0);
  const stalled = `${count(stalls.length, "stall")}, ${seconds(long)} in all`;
  words.push(stalls.length ? stalled : "no stall");
  if (waits > 0 && !stalls.some((one) => one.goes_on)) {
    words.push(`ranks have been waiting since ${clock(waits)}, which is not yet a stall`);
  }
  words.push(captures.length ? count(captures.length, "capture") : "no capture");
  return `In ${name}: ${words.join("; ")}. Times are ${zone(history.at)}.`;
}

export function fillTable(body, history, unit) {
  const each = Math.ceil(history.watched.length / TABLE_ROWS), rows = [];
  for (let first = 0; first < history.watched.length; first += each) {
    const end = Math.min(history.watched.length, first + each);
    const row = element("tr");
    for (const text of cells(history, first, end, unit)) row.append(element("td", text));
    rows.unshift(row);
  }
  body.replaceChildren(...rows);
}

// Of the buckets first to end: the time, lowest to highest rate, and what happened.
function cells(history, first, end, unit) {
  const begin = history.begin + first * history.step_s;
  const until = history.begin + end * history.step_s;
  const known = unit.values.slice(first, end).filter((value) => value !== null);
  let progress = history.watched.slice(first, end).some(Boolean) ? "not known" : "not watched";
  if (known.length) progress = range(Math.min(...known), Math.max(...known), unit);
  const stalls = history.stalls.filter((one) => overlaps(one, begin, until)).map(stalled);
  const events = [...stalls, ...inside(history, begin, until).map(captured)];
  return [fromTo(begin, until), progress, events.slice(0, 6).join("; ") || "–"];
}

function range(least, most, unit) {
  return most === least ? rate(most, unit) : `${rate(least, unit)} to ${rate(most, unit)}`;
}

function stalled(one) {
  return `stalled ${clock(one.begin)} to ${one.goes_on ? "now" : clock(one.end)}`;
}
