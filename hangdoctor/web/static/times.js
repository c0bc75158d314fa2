// Times of day and durations. All times of the page are of one zone, and each says which.

const KEY = "hangdoctor-times";
let local = false;
try {
  local = localStorage.getItem(KEY) === "local";
} catch { /* no storage: UTC, as in the reports */ }

let ahead = 0; // seconds that the collector's clock is ahead of this browser's

// All times that the page shows are by the collector's clock.
export function setClock(at) { ahead = at - Date.now() / 1000; }

export function now() { return Date.now() / 1000 + ahead; }

export function isLocal() { return local; }

export function switchZone() {
  local = !local;
  try {
    localStorage.setItem(KEY, local ? "local" : "UTC");
  } catch { /* for this page only */ }
}

// Seconds that the zone is ahead of UTC at a time of day; summer time is not all year.
export function offset(at) { return local ? -60 * new Date(at * 1000).getTimezoneOffset() : 0; }

// "UTC", "UTC+1", "UTC-3:30".
export function zone(at) {
  const minutes = Math.abs(offset(at)) / 60;
  if (!minutes) return "UTC";
  const rest = minutes % 60 ? `:${String(minutes % 60).padStart(2, "0")}` : "";
  return `UTC${offset(at) < 0 ? "-" : "+"}${Math.floor(minutes / 60)}${rest}`;
}

// { date: "2026-11-22", time: "07:04:05" } in the page's zone.
export function parts(at) {
  const text = new Date((at + offset(at)) * 1000).toISOString();
  return { date: text.slice(0, 10), time: text.slice(11, 19) };
}

// A time of day, with the date where that is not today's.
export function clock(at) {
  const { date, time } = parts(at);
  const today = parts(now()).date === date;
  return `${today ? "" : `${date} `}${time} ${zone(at)}`;
}

// As the reports write them (text/durations.py); below a second in milliseconds.
export function seconds(value) {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1).replace(".0", "")} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}
