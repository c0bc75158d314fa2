// The grid of ranks: pointing shows a rank, a click selects it, arrow keys move.
const cells = all(".grid .c");
const cellsOf = new Map();
for (const cell of cells) {
  const rank = Number(cell.dataset.r);
  cellsOf.set(rank, [...(cellsOf.get(rank) ?? []), cell]);
  const row = rows.get(rank);
  const node = D.nodes[row[NODE]];
  cell.setAttribute("aria-label", `rank ${rank}, ${stateWords(row)}${node ? `, node ${cut(node, 80)}` : ""}`);
}
let kept = null;

function look(rank) {
  showRank(rank);
  for (const cell of all(".c.peer")) cell.classList.remove("peer");
  for (const [, targets] of waitsOf(rank)) {
    for (const peer of parseRanks(targets)) for (const cell of cellsOf.get(peer) ?? []) cell.classList.add("peer");
  }
}

function keep(rank, focus) {
  kept = rank;
  for (const cell of all(".c.on")) { cell.classList.remove("on"); cell.tabIndex = -1; cell.removeAttribute("aria-selected"); }
  for (const cell of cellsOf.get(rank) ?? []) { cell.classList.add("on"); cell.tabIndex = 0; cell.setAttribute("aria-selected", "true"); }
  look(rank);
  if (focus) (cellsOf.get(rank) ?? []).find((cell) => cell.offsetParent)?.focus();
}

// The nearest cell in a direction, by what is on the screen: blocks are beside and below one another.
function neighbour(cell, dx, dy) {
  const from = cell.getBoundingClientRect();
  let best = null;
  let least = Infinity;
  for (const other of all(".c", cell.closest(".grid"))) {
    const to = other.getBoundingClientRect();
    const along = (to.left - from.left) * dx + (to.top - from.top) * dy;
    const aside = Math.abs((to.left - from.left) * dy) + Math.abs((to.top - from.top) * dx);
    const distance = along + 3 * aside;
    if (along > 1 && aside < along + from.width && distance < least) [best, least] = [other, distance];
  }
  return best;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
for (const grid of all(".grid")) {
  grid.addEventListener("click", (event) => { const cell = event.target.closest(".c"); if (cell) { keep(Number(cell.dataset.r), true); panel.classList.add("tapped"); } });
  grid.addEventListener("mouseover", (event) => { const cell = event.target.closest(".c"); if (cell) look(Number(cell.dataset.r)); });
  grid.addEventListener("mouseleave", () => { if (kept !== null) look(kept); });
  grid.addEventListener("keydown", (event) => {
    const here = all(".c", grid);
    let next = null;
    if (ARROWS[event.key]) next = neighbour(event.target, ...ARROWS[event.key]);
    else if (event.key === "Home") next = here[0];
    else if (event.key === "End") next = here[here.length - 1];
    else if (event.key === "c") next = nextCulprit(event.target, here);
    else return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (next) keep(Number(next.dataset.r), true);
  });
}

function nextCulprit(from, here) {
  const guilty = here.filter((cell) => cell.classList.contains("cause"));
  return guilty[(guilty.indexOf(from) + 1) % guilty.length] ?? null;
}

for (const group of all(".switch")) group.hidden = false;
for (const button of all("[data-arrange]")) {
  button.addEventListener("click", () => {
    for (const other of all("[data-arrange]")) other.setAttribute("aria-pressed", String(other === button));
    for (const grid of all(".grid")) grid.hidden = grid.dataset.by !== button.dataset.arrange;
  });
}

for (const element of all(".box[data-ranks]")) {
  const go = () => { keep(parseRanks(element.dataset.ranks)[0], false); $("ranks").scrollIntoView(); };
  element.addEventListener("click", go);
  element.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } });
}

if (cells.length) keep(D.causes.length && D.causes[0][1] ? parseRanks(D.causes[0][1])[0] : (D.rows.find((row) => row[STATE] !== "miss") ?? D.rows[0])[RANK], false);
