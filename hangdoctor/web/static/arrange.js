// How ranks are laid out, as in the report: by the axes of the layout, by node, or by number.
// Blocks of lines of ranks.

const ROW = 16;

export function arrangements(model) {
  const found = [];
  const [dp, pp, tp] = model.status.layout || [];
  const several = Math.max(dp, pp, tp) < model.size;
  if (dp * pp * tp === model.size && several) found.push(["layout", "dp × pp × tp"]);
  if (model.columns.node.some((n) => n > 0)) found.push(["node", "node"]);
  found.push(["number", "number"]);
  return found;
}

export function arrange(model, name) {
  if (name === "layout") return byLayout(model.status.layout);
  if (name === "node") return byNode(model);
  return [{ title: "", columns: [], lines: lines(all(model.size), 0) }];
}

// A block for each stage: replicas downwards, tensor slices across; without slices, stages
// downwards.
function byLayout([dp, pp, tp]) {
  const rank = (p, d, t) => (p * dp + d) * tp + t;
  if (tp === 1) {
    const replicas = all(dp);
    const stage = (p) => ({ label: `pp ${p}`, ranks: replicas.map((d) => rank(p, d, 0)) });
    return [{ title: "", columns: replicas.map((d) => `dp ${d}`), lines: all(pp).map(stage) }];
  }
  const slices = all(tp);
  const replica = (p, d) => ({ label: `dp ${d}`, ranks: slices.map((t) => rank(p, d, t)) });
  return all(pp).map((p) => ({
    title: pp > 1 ? `pp ${p}` : "",
    columns: slices.map((t) => `tp ${t}`),
    lines: all(dp).map((d) => replica(p, d)),
  }));
}

function byNode(model) {
  const nodes = new Map();
  for (let rank = 0; rank < model.size; rank++) {
    const name = model.names.node[model.columns.node[rank]] || "node unknown";
    if (!nodes.has(name)) nodes.set(name, []);
    nodes.get(name).push(rank);
  }
  return [...nodes].map(([title, own]) => {
    const split = own.length > ROW ? lines(own, ROW) : [{ label: "", ranks: own }];
    return { title, columns: [], lines: split };
  });
}

// `wide` ranks in a line; 0: as many as there is room for, which the grid decides.
function lines(ranks, wide) {
  if (!wide) return [{ label: "", ranks, flows: true }];
  const found = [];
  for (let i = 0; i < ranks.length; i += wide) {
    found.push({ label: `${ranks[i]}`, ranks: ranks.slice(i, i + wide) });
  }
  return found;
}

function all(count) { return Array.from({ length: count }, (_, i) => i); }
