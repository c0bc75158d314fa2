// Where every square and label of the grid goes. Pure: no canvas, no document.

import { arrange, arrangements } from "./arrange.js";

const SIZES = [58, 48, 36, 30, 27, 24, 20, 17, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4];
const LABELLED = 9; // beside smaller squares there is no room for the name of each node
const TITLED = 20; // nodes with smaller squares have their names beside them, to be more in a page
const MOST_PER_NODE = 16;
const TITLE_PX = 130; // room for the title of a block, where its squares have less
// Room for labels: of lines (more where these are long), of blocks, of columns.
const LEFT = 42, MOST_LEFT = 110, LETTER = 7, HEAD = 18, COLUMNS = 16;
const TEXT_PX = 11, COLUMN_PX = 34; // least distance between two labels of lines, of columns

// Which arrangement is shown, in squares of which size: the largest with which all ranks fit into
// the room, then larger by the zoom. `wish` has { wanted, zoom, width, room, least }; of the
// answer, `shown` is the name of the arrangement and `atMost` whether there are no larger squares.
export function fitted(model, wish) {
  const there = arrangements(model).map(([name]) => name);
  const shown = there.includes(wish.wanted) ? wish.wanted : there[0];
  const how = { ...wish, sizes: SIZES.filter((cell) => cell >= wish.least), per: perNode(model) };
  const found = largest(arrange(model, shown), how);
  if (shown !== "node" || (found.fits && found.cell >= TITLED)) return zoomed(found, shown, how);
  const stacked = largest(beside(arrange(model, shown)), how);
  const named = stacked.fits && stacked.cell >= LABELLED;
  if (wish.wanted || named) return zoomed(stacked, shown, how);
  return zoomed(largest(arrange(model, "number"), how), "number", how);
}

// Nodes of one line each: their names beside the lines, and these one below the other.
function beside(blocks) {
  if (blocks.some((block) => block.lines.length > 1)) return blocks;
  const lines = blocks.map(({ title, lines: [line] }) => ({ label: title, ranks: line.ranks }));
  return [{ title: "", columns: [], lines, stacked: true }];
}

function largest(blocks, { sizes, per, width, room }) {
  const fits = sizes.find((cell) => flow(blocks, { cell, width, per }).height <= room);
  return { blocks, cell: fits || sizes[sizes.length - 1], fits: fits !== undefined };
}

function zoomed({ blocks, cell }, shown, { sizes, per, zoom, width }) {
  const place = Math.max(0, sizes.indexOf(cell) - zoom);
  const size = sizes[place];
  return { shown, atMost: place === 0, cell: size, ...flow(blocks, { cell: size, width, per }) };
}

// Ranks of the first node, where it has several and not too many for a line; else 1.
export function perNode(model) {
  const nodes = model.columns.node;
  let n = 1;
  while (nodes[0] && n < nodes.length && n <= MOST_PER_NODE && nodes[n] === nodes[0]) n++;
  return n <= MOST_PER_NODE ? n : 1;
}

// Blocks side by side as long as there is room, then below: { runs, labels, width, height }.
// A run is a line of squares: { x, y, ranks }.
function flow(blocks, { cell, width, per }) {
  const found = { runs: [], labels: [], width: 0, height: 0 };
  const gap = cell >= 14 ? 22 : 14;
  let x = 0, y = 0, tallest = 0;
  for (const block of blocks.flatMap((one) => columns(one, { cell, width, gap }))) {
    const lines = linesOf(block, Math.max(1, Math.floor((width - LEFT - 6) / cell)), per);
    const size = sizeOf(block, lines, cell);
    if (x && x + size.wide > width) {
      x = 0;
      y += tallest + gap;
      tallest = 0;
    }
    putBlock(found, block, lines, { x, y, cell, ...size });
    tallest = Math.max(tallest, size.high);
    found.width = Math.max(found.width, x + size.wide);
    x += size.wide + gap;
  }
  found.height = y + tallest + 4;
  return found;
}

// A block of lines one below the other is as many blocks side by side as there is room for.
function columns(block, { cell, width, gap }) {
  if (!block.stacked) return [block];
  const { wide } = sizeOf(block, block.lines, cell);
  const count = Math.max(1, Math.floor((width + gap) / (wide + gap)));
  const high = Math.ceil(block.lines.length / count), found = [];
  for (let i = 0; i < block.lines.length; i += high) {
    found.push({ ...block, lines: block.lines.slice(i, i + high) });
  }
  return found;
}

function linesOf(block, most, per) {
  const flows = block.lines.some((line) => line.flows);
  return flows ? wrap(block.lines[0].ranks, most, per) : block.lines;
}

function sizeOf(block, lines, cell) {
  const letters = lines.reduce((most, line) => Math.max(most, line.label.length), 0);
  const left = letters ? Math.max(LEFT, Math.min(MOST_LEFT, letters * LETTER + 8)) : 0;
  const head = block.title ? HEAD : 0;
  const over = block.columns.length ? COLUMNS : 0;
  const across = lines.reduce((most, line) => Math.max(most, line.ranks.length), 0) * cell;
  const title = block.title ? Math.min(block.title.length * 7, TITLE_PX) : 0;
  const wide = left + Math.max(across, title), high = head + over + lines.length * cell;
  return { left, head, over, across, wide, high };
}

function putBlock({ runs, labels }, block, lines, at) {
  const { x, y, cell, left, head, over } = at;
  if (block.title) {
    const room = Math.max(at.across, TITLE_PX);
    labels.push({ text: block.title, x: x + left, y: y + 8, strong: true, room });
  }
  putColumns(labels, block.columns, { x: x + left, y: y + head + 8, cell });
  const every = Math.max(1, Math.ceil(TEXT_PX / cell));
  lines.forEach((line, i) => {
    const top = y + head + over + i * cell;
    if (line.label && i % every === 0) {
      const middle = top + Math.max(cell, 10) / 2;
      labels.push({ text: line.label, x: x + left - 6, y: middle, align: "right", room: left - 6 });
    }
    runs.push({ x: x + left, y: top, ranks: line.ranks });
  });
}

// A label over each column, or over every few where the squares are narrow.
function putColumns(labels, columns, { x, y, cell }) {
  const every = Math.max(1, Math.ceil(COLUMN_PX / cell));
  const align = every > 1 ? "left" : "center", off = every > 1 ? 0 : cell / 2;
  for (let i = 0; i < columns.length; i += every) {
    labels.push({ text: columns[i], x: x + i * cell + off, y, align, room: every * cell - 2 });
  }
}

// Lines as long as there is room for, whole nodes where that is possible, with the number of
// their first rank.
function wrap(ranks, most, per) {
  const wide = per > 1 && most >= per ? most - (most % per) : most;
  const found = [];
  for (let i = 0; i < ranks.length; i += wide) {
    found.push({ label: `${ranks[i]}`, ranks: ranks.slice(i, i + wide) });
  }
  return found;
}
