// The merged stacks: a box for each frame, as wide as its number of ranks; long runs are folded until opened.
const NS = "http://www.w3.org/2000/svg";
const ROW = 23;
const icicle = $("icicle");
const nodes = D.tree.map(([parent, ranks, frames], index) => {
  const list = parseRanks(ranks);
  return { index, parent, ranks, list, size: list.length, frames, children: [], open: false, left: 0, width: 0 };
});
for (const node of nodes) if (node.parent >= 0) nodes[node.parent].children.push(node);
const tops = nodes.filter((node) => node.parent < 0);
const everyone = tops.reduce((sum, node) => sum + node.size, 0);
const guilty = new Set(D.causes.flatMap(([, ranks]) => parseRanks(ranks)));
let zoomed = null;
let needle = "";
let unfolded = false;
let drawn = 0; // width in pixels

const SMALL = 0.035; // least share of its parent's width for a branch; one with a culprit gets more
const SMALL_GUILTY = 0.17;
const isGuilty = (node) => guilty.size < everyone && node.list.some((rank) => guilty.has(rank));

function spread(list, left, width, ranks) {
  const least = list.length > 14 ? 0 : SMALL;
  const shares = list.map((node) => Math.max(node.size / ranks, isGuilty(node) ? SMALL_GUILTY : least));
  const rest = Math.max(0, 1 - list.reduce((sum, node) => sum + node.size, 0) / ranks);
  const total = shares.reduce((sum, share) => sum + share, rest);
  list.forEach((node, i) => {
    node.left = left;
    node.width = (width * shares[i]) / total;
    left += node.width;
    spread(node.children, node.left, node.width, node.size);
  });
}
spread(tops, 0, 1, everyone);

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const textOf = (frame) => `${frame[0]} (${fileOf(frame)[0]}:${frame[2]})`;
const isHit = (frame) => needle !== "" && textOf(frame).toLowerCase().includes(needle);

// What is drawn of a node: its frames, or the first, a fold and the last.
function parts(node) {
  const shown = node.frames.map((number, at) => ({ number, at, frame: D.frames[number] }));
  const hidden = shown.slice(1, -1);
  if (unfolded || node.open || hidden.length < 2 || hidden.some(({ frame }) => isHit(frame))) return shown;
  return [shown[0], { fold: hidden.length, at: 1 }, shown[shown.length - 1]];
}

function ancestors(node) {
  const found = [];
  for (let at = node; at && at.parent >= 0; at = nodes[at.parent]) found.unshift(nodes[at.parent]);
  return found;
}

function label(part, node, pixels) {
  const room = Math.max(0, Math.floor((pixels - 12) / 7.25));
  if (room < 3) return [];
  if (part.fold) return [svg("tspan", {}, cut(`⋯ ${part.fold} frames`, room))];
  const name = cut(part.frame[0], room);
  const rest = `  ${fileOf(part.frame)[1]}:${part.frame[2]}`;
  return [svg("tspan", {}, name), ...(room - name.length > rest.length ? [svg("tspan", { class: "at" }, rest)] : [])];
}

function who(node) {
  return `${node.size === 1 ? "rank" : `${node.size} ranks`} ${cut(node.ranks, 200)}`;
}

function classOf(part, node, above) {
  const names = ["f"];
  if (part.fold) names.push("fold");
  else if (isHit(part.frame)) names.push("hit");
  else if (node.list.every((rank) => guilty.has(rank)) && guilty.size < everyone) names.push("guilty");
  else if (isLibrary(part.frame)) names.push("lib");
  if (above) names.push("above");
  return names.join(" ");
}

function draw(focusOn) {
  drawn = icicle.clientWidth;
  const width = drawn || 1000;
  const [left, share] = zoomed ? [zoomed.left, zoomed.width] : [0, 1];
  const over = new Set(zoomed ? ancestors(zoomed) : []);
  const canvas = svg("svg", { width: "100%" });
  let bottom = 0;
  const visit = (node, y) => {
    const from = Math.max(0, (node.left - left) / share);
    const to = Math.min(1, (node.left + node.width - left) / share);
    if ((to - from) * width < 2) return;
    for (const part of parts(node)) {
      const inner = (to - from) * width;
      const words = part.fold ? `${part.fold} frames are folded; ${who(node)}` : `${textOf(part.frame)}\n${who(node)}`;
      canvas.append(svg("svg", {
        class: classOf(part, node, over.has(node)), x: `${from * 100}%`, y, width: `${(to - from) * 100}%`, height: ROW, tabindex: -1,
        role: "treeitem", "aria-label": cut(words, 400), "data-n": node.index, "data-at": part.at,
      }, svg("title", {}, words), svg("rect", { width: "100%", height: ROW, rx: 3 }), svg("text", { x: 6, y: 15.5 }, ...label(part, node, inner))));
      y += ROW;
    }
    bottom = Math.max(bottom, y);
    for (const child of node.children) visit(child, y);
  };
  for (const node of tops) visit(node, 0);
  canvas.setAttribute("height", bottom + 2);
  icicle.replaceChildren(canvas);
  const boxes = all("svg.f", icicle);
  const target = boxes.find((box) => focusOn && box.dataset.n === String(focusOn.index)) ?? boxes[0];
  if (target) target.setAttribute("tabindex", 0);
  if (focusOn) target?.focus({ preventScroll: true });
  $("out").disabled = zoomed === null;
  return boxes;
}

function zoom(node, focus) {
  zoomed = node;
  draw(focus ? node ?? tops[0] : null);
}

function act(box) {
  const node = nodes[box.dataset.n];
  if (box.classList.contains("fold")) { node.open = true; draw(node); return; }
  zoom(zoomed === node ? (node.parent >= 0 ? nodes[node.parent] : null) : node, true);
}

// Left and right within a row, up and down to the box above or below.
function beside(box, key) {
  const number = (element, name) => parseFloat(element.getAttribute(name));
  const [x, y, w] = ["x", "y", "width"].map((name) => number(box, name));
  const boxes = all("svg.f", icicle);
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const same = boxes.filter((other) => number(other, "y") === y).sort((a, b) => number(a, "x") - number(b, "x"));
    return same[same.indexOf(box) + (key === "ArrowRight" ? 1 : -1)];
  }
  const wanted = key === "ArrowDown" ? y + ROW : y - ROW;
  const meets = (other) => number(other, "x") < x + w - 0.001 && number(other, "x") + number(other, "width") > x + 0.001;
  return boxes.find((other) => number(other, "y") === wanted && meets(other));
}

function seekFrames(text) {
  needle = text.toLowerCase();
  if (icicle && tops.length) draw(null);
  const ranks = new Set();
  let frames = 0;
  if (needle === "") return { frames, ranks };
  for (const node of nodes) {
    const hits = node.frames.filter((number) => isHit(D.frames[number])).length;
    frames += hits;
    if (hits) for (const rank of node.list) ranks.add(rank);
  }
  return { frames, ranks };
}

if (icicle && tops.length) {
  all(".tools")[0].hidden = false;
  icicle.addEventListener("click", (event) => { const box = event.target.closest("svg.f"); if (box) act(box); });
  icicle.addEventListener("mouseover", (event) => { const box = event.target.closest("svg.f"); if (box) tell(box); });
  icicle.addEventListener("focusin", (event) => { const box = event.target.closest("svg.f"); if (box) tell(box); });
  icicle.addEventListener("keydown", (event) => {
    const box = event.target.closest("svg.f");
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") act(box);
    else if (event.key === "Escape" && zoomed) zoom(zoomed.parent >= 0 ? nodes[zoomed.parent] : null, true);
    else if (event.key in ARROWS) { const next = beside(box, event.key); if (next) { box.setAttribute("tabindex", -1); next.setAttribute("tabindex", 0); next.focus(); } }
    else return;
    event.preventDefault();
  });
  $("out").addEventListener("click", () => zoom(null, false));
  $("unfold").addEventListener("click", () => { unfolded = !unfolded; $("unfold").setAttribute("aria-pressed", String(unfolded)); draw(null); });
  // Only another width changes what fits; drawing itself changes the height.
  new ResizeObserver(() => { if (icicle.clientWidth !== drawn && !icicle.contains(document.activeElement)) draw(null); }).observe(icicle);
  draw(null);
}

function tell(box) {
  const node = nodes[box.dataset.n];
  const number = node.frames[box.dataset.at];
  $("crumb").textContent = box.classList.contains("fold") ? `${node.frames.length - 2} frames are folded here` : `${cut(textOf(D.frames[number]), 220)} · ${who(node)}`;
}
