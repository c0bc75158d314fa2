// The stream of frames from the server, and whether it still comes.

import { $, say } from "./dom.js";
import { now, setClock } from "./times.js";

const QUIET_MS = 10_000; // without a frame for this long the connection counts as lost
const AGAIN_MS = 3000;

export class Stream {
  // `taken` is called after each frame, `lost` when the connection is.
  constructor(model, taken, lost) {
    this.model = model;
    this.taken = taken;
    this.told = lost;
    this.lostAt = 0; // a time of day; 0 while it is connected
    setInterval(() => {
      const quiet = performance.now() - model.seenAt > QUIET_MS;
      if (model.status && quiet) this.lost();
    }, 2000);
  }

  listen() {
    const source = new EventSource("/api/v1/stream");
    source.addEventListener("full", (event) => this.take(event, true));
    source.addEventListener("delta", (event) => this.take(event, false));
    source.onerror = () => this.failed(source);
  }

  take(event, full) {
    this.model.apply(JSON.parse(event.data), full);
    setClock(this.model.status.time);
    this.lostAt = 0;
    link("live", "live");
    this.taken();
  }

  async failed(source) {
    this.lost();
    if (source.readyState !== EventSource.CLOSED) return;
    const answer = await fetch("/api/v1/status").catch(() => null);
    if (answer && answer.status === 401) location.assign("/login");
    else setTimeout(() => this.listen(), AGAIN_MS);
  }

  lost() {
    this.lostAt = this.lostAt || now();
    link("lost", "connection lost, reconnecting");
    this.told();
  }
}

function link(state, words) {
  $("link").className = `link ${state}`;
  say($("link"), words);
  document.body.classList.toggle("stale", state === "lost");
}
