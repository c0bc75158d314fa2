// What the training said of itself, such as a spike of its loss; nothing where it said nothing.

import { $, clip, element } from "./dom.js";
import { clock } from "./times.js";

const MOST = 20;
let shown = null;

// Once for each new list; `again` where its times are to be written anew.
export function events(model, again) {
  if (shown === model.events && !again) return;
  shown = model.events;
  $("events-card").hidden = !shown.length;
  $("events").replaceChildren(...shown.slice(0, MOST).map(item));
}

function item(one) {
  const made = element("li"), meta = element("div", undefined, "meta");
  const where = one.iteration < 0 ? "" : `iteration ${one.iteration}, `;
  meta.append(
    element("span", clip(one.kind || "event", 30).toUpperCase(), "pill"),
    element("span", clock(one.at)),
    element("span", `${where}rank ${one.rank} (${clip(one.node, 80)})`),
  );
  made.append(meta, element("div", clip(one.text, 300)));
  for (const line of one.actions.split("\n").filter(Boolean)) {
    made.append(element("div", clip(`action ${line}`, 300), "times"));
  }
  return made;
}
