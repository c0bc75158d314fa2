// Which ranks a filter lets through.

import { STATES, rangesOf } from "./model.js";

// A predicate on ranks: by ranges ("0-7,12"), or by a text in node, operation, phase or state;
// null where the filter is empty.
export function matching(model, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const ranges = rangesOf(wanted.replace(/\s/g, "").replace(/,?\.\.\.$/, ""));
  if (ranges) return ranges;
  const { columns, names } = model;
  const has = remembered((name) => name.toLowerCase().includes(wanted));
  return (rank) =>
    has(names.node[columns.node[rank]]) ||
    has(names.op[columns.op[rank]]) ||
    has(names.phase[columns.phase[rank]]) ||
    has(STATES[columns.state[rank]]);
}

// Of many ranks few names differ, and each is looked at once.
function remembered(fits) {
  const known = new Map();
  return (name = "") => {
    let found = known.get(name);
    if (found === undefined) {
      found = fits(name);
      known.set(name, found);
    }
    return found;
  };
}
