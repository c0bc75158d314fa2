// The panel beside the grid: all details of one rank.
const panel = $("details");
const FIRST_FRAMES = 9;
const LETTERS = { R: "running", S: "sleeping", D: "in uninterruptible I/O", T: "stopped", t: "traced", Z: "a zombie", I: "idle" };
const MOTIONS = {
  still: "did not run between the two samples", stirred: "ran, but is at the same place", looping: "loops in the same functions",
  moved: "moved on to other functions", running: "uses the CPU",
};

function stackList(numbers) {
  // Innermost first: the top line is where the rank is.
  const frames = [...numbers].reverse().map((number) => D.frames[number]);
  const item = (frame) => {
    const [path, short] = fileOf(frame);
    const at = make("span", { class: "at", title: cut(path, 2000) }, ` ${cut(short, 160)}:${frame[2]}`);
    return make("li", { class: isLibrary(frame) ? "lib" : null }, long(frame[0]), at, frame[3] ? make("span", { class: "src" }, cut(frame[3], 200)) : null);
  };
  const list = make("ol", { class: "stack" }, ...frames.slice(0, FIRST_FRAMES).map(item));
  list.setAttribute("role", "list");
  if (frames.length <= FIRST_FRAMES) return [list];
  const more = make("button", { type: "button", click: () => { list.append(...frames.slice(FIRST_FRAMES).map(item)); more.remove(); } }, `All ${frames.length} frames`);
  return [list, more];
}

function ownStack(rank) {
  return D.own.find(([ranks]) => hasRank(ranks, rank));
}

function threadList(row) {
  const threads = D.threads[row[THREADS]];
  if (!threads.length) return null;
  const shown = threads.map(([name, state, wait, gil, stack]) => make("details", {},
    make("summary", {}, long(name || "unnamed", 80), ` ${[state, wait, gil ? "holds the GIL" : ""].filter(Boolean).join(", ")}`),
    ...stackList(D.stacks[stack])));
  return make("details", {}, make("summary", {}, threads.length === 1 ? "Its thread, with native frames" : `All ${threads.length} threads`), ...shown);
}

function waitsOf(rank) {
  return D.waits.filter(([ranks, targets]) => targets && hasRank(ranks, rank));
}

function coordinates(rank) {
  if (!D.layout) return "";
  const [dp, , tp] = D.layout;
  return `pp ${Math.floor(rank / (tp * dp))}, dp ${Math.floor(rank / tp) % dp}, tp ${rank % tp}`;
}

function facts(row) {
  const waits = waitsOf(row[RANK]).map(([, targets, op]) => `${cut(targets, 60)}${op ? ` in ${cut(op, 60)}` : ""}`);
  return [
    ["node", D.nodes[row[NODE]]], ["pid", row[PID] || ""], ["GPU", row[GPU]], ["local rank", row[LOCAL] >= 0 ? row[LOCAL] : ""],
    ["coordinates", coordinates(row[RANK])], ["process", processWords(row[PROCESS])], ["is in", D.places[row[PLACE]]], ["waits for", waits.slice(0, 4).join("; ")],
    ["training", row[POSITION]], ["missing", missingWords(row[RANK])], ...row[OPS].map((text, i) => [i ? "" : "operations", text]),
  ].filter(([, text]) => text !== "");
}

function missingWords(rank) {
  return D.missing.filter(([ranks]) => hasRank(ranks, rank)).map(([, why]) => why).join("; ");
}

function processWords(text) {
  const [letter, motion] = text.split(" ");
  return [LETTERS[letter] ?? letter, MOTIONS[motion]].filter(Boolean).join(", ");
}

function stateWords(row) {
  const words = D.states[row[STATE]];
  return row[CAUSE] >= 0 ? `culprit: ${D.causes[row[CAUSE]][0]}` : words;
}

function showRank(rank) {
  const row = rows.get(rank);
  const cause = row[CAUSE] >= 0;
  const own = ownStack(rank);
  panel.replaceChildren(
    make("h3", {}, make("span", { class: `c ${row[STATE]}${cause ? " cause" : ""}`, "aria-hidden": "true" }), `Rank ${rank}`),
    make("p", { class: "dim" }, stateWords(row), cause ? " · " : null, cause ? make("a", { href: `#cause-${row[CAUSE] + 1}` }, "why") : null),
    make("table", {}, make("tbody", {}, ...facts(row).map(([label, text]) => make("tr", {}, make("td", {}, label), make("td", {}, long(String(text))))))),
    make("div", { class: "stacked" },
      ...(own ? [make("h4", {}, `Stack${own[2] ? ` of ${cut(own[2], 60)}` : ""}, innermost first`), ...stackList(own[1])] : []),
      ...[threadList(row)].filter(Boolean)),
  );
}
