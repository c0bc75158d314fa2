// One rank: a line while it is pointed at, and a panel when it is opened.

import { $, clip, say, sayFacts } from "./dom.js";
import { SAYS } from "./model.js";
import { calledOne } from "./overview.js";
import { seconds } from "./times.js";

export class Detail {
  constructor(model, grid) {
    this.model = model;
    this.grid = grid;
    this.opened = -1;
  }

  open(rank) {
    this.opened = rank;
    this.grid.selected = rank;
    $("rank").hidden = false;
    this.grid.draw();
    this.show();
  }

  close() {
    this.opened = -1;
    $("rank").hidden = true;
    $("grid").focus();
  }

  show() {
    if (this.opened < 0 || this.opened >= this.model.size) return;
    const told = this.model.rank(this.opened);
    const last = told.op ? `${told.op}${told.seq ? ` #${told.seq}` : ""}` : "–";
    const facts = [
      ["node", told.node || "–"],
      ["iteration", told.iteration < 0 ? "–" : `${told.iteration}`],
      ["phase", told.phase || "–"],
      [told.state === "waiting" ? "waits in" : "last operation", last],
      ["for", told.for_s ? seconds(told.for_s) : "it is moving"],
      ["arrival lag", told.lag_s ? seconds(told.lag_s) : "none"],
    ];
    say($("rank-title"), `Rank ${this.opened}: ${SAYS[told.state]}`);
    sayFacts($("rank-facts"), facts.map(([name, value]) => [name, clip(value, 200)]));
  }

  // In a line of its own below the grid, so that it covers nothing.
  tip(rank) {
    const inside = rank >= 0 && rank < this.model.size;
    say($("tip"), inside ? this.sentence(rank) : "");
  }

  sentence(rank) {
    const told = this.model.rank(rank);
    const node = told.node ? ` on ${clip(told.node, 40)}` : "";
    const cause = this.grid.culprits.has(rank) ? `${calledOne()}, ` : "";
    const words = [`Rank ${rank}${node}: ${cause}${SAYS[told.state]}`];
    const step = [told.iteration >= 0 && `iteration ${told.iteration}`, clip(told.phase, 40)];
    if (step.some(Boolean)) words.push(step.filter(Boolean).join(", "));
    if (told.op) {
      const since = told.for_s ? `, ${seconds(told.for_s)}` : "";
      words.push(`${told.state === "waiting" ? "in" : "last"} ${clip(told.op, 40)}${since}`);
    }
    return words.join("; ");
  }
}
