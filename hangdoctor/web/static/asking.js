// What the page asks of the collector: a capture, and call traces on or off.

import { $, clip, say } from "./dom.js";

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body || {}),
  }).catch(() => null);
  if (!answer) {
    note("The collector did not answer.", true);
    return null;
  }
  if (answer.status === 401) {
    location.assign("/login");
    return null;
  }
  const told = await answer.json();
  if (!answer.ok) note(`${told.error} ${told.help || ""}`, true);
  return answer.ok ? told : null;
}

function note(words, bad) {
  $("note").hidden = !words;
  $("note").className = bad ? "note bad" : "note";
  say($("note"), words);
}

// Whether a capture can be asked for now.
function canCapture({ status, size }, lostAt) {
  if (!status || lostAt || status.ended || !status.agents) return false;
  return size > (status.counts.unseen || 0);
}

export class Asking {
  constructor(model, stream) {
    this.model = model;
    this.stream = stream;
    this.asked = -1; // captures that were dealt with when one was asked for; -1: none is under way
    this.tracing = false;
  }

  // What may be asked for now, and whether a capture that was asked for has come.
  show() {
    const status = this.model.status;
    if (this.asked >= 0 && this.model.concluded > this.asked) this.captured();
    $("capture").disabled = this.asked >= 0 || !canCapture(this.model, this.stream.lostAt);
    $("trace").hidden = !status.can_trace || Boolean(status.ended);
  }

  captured() {
    this.asked = -1;
    const newest = this.model.incidents[0];
    const none = "Captured: no hang was found, no incident was saved.";
    note(newest ? `Captured: ${clip(newest.summary, 300)}` : none);
  }

  async capture() {
    if ($("capture").disabled) return;
    $("capture").disabled = true;
    note("Capturing all ranks …");
    const told = await post("/api/v1/capture");
    this.asked = told ? told.concluded : -1;
    if (!told && this.model.status) this.show();
  }

  async switchTrace() {
    const told = await post("/api/v1/trace", { on: !this.tracing });
    if (!told) return;
    this.tracing = told.on;
    say($("trace"), this.tracing ? "Trace off" : "Trace on");
    $("trace").setAttribute("aria-pressed", String(this.tracing));
    note(told.says);
  }
}
