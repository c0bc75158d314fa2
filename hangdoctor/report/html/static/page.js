// The page around it: theme, copying, search, raw captures.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

function setTheme(name) {
  root.dataset.theme = name;
  try { localStorage.setItem("hangdoctor-theme", name); } catch { /* storage may be forbidden to files: the choice lasts as long as the page */ }
}
try {
  const chosen = localStorage.getItem("hangdoctor-theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
} catch { /* as above */ }
$("theme").hidden = false;
$("theme").addEventListener("click", () => setTheme((root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark"));

async function copy() {
  const area = $("chat");
  let done = false;
  try {
    await navigator.clipboard.writeText(area.value);
    done = true;
  } catch {
    area.closest("details").open = true;
    area.select();
    done = document.execCommand("copy");
  }
  $("copied").textContent = done ? "Copied" : "Press Ctrl-C: the text is selected";
}
$("copy").hidden = false;
$("copy").addEventListener("click", copy);

all(".find")[0].hidden = false;
const field = $("q");

function seek() {
  const text = field.value.trim().toLowerCase();
  const { frames, ranks } = seekFrames(text);
  let places = 0;
  for (const row of text ? D.rows : []) {
    const own = [D.nodes[row[NODE]], D.places[row[PLACE]], `rank ${row[RANK]}`, ...row[OPS]];
    if (own.some((word) => word.toLowerCase().includes(text)) || (/^\d+$/.test(text) && Number(text) === row[RANK])) { ranks.add(row[RANK]); places++; }
  }
  for (const [rank, some] of cellsOf) for (const cell of some) cell.classList.toggle("hit", ranks.has(rank));
  $("ranks").classList.toggle("seeking", text !== "" && ranks.size > 0);
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
  $("found").textContent = text === "" ? "" : ranks.size || frames ? `${count(frames, "frame")}, ${count(ranks.size, "rank")} match` : "no match";
  return [...ranks].sort((a, b) => a - b);
}
field.addEventListener("input", seek);
field.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { field.value = ""; seek(); field.blur(); event.preventDefault(); }
  if (event.key === "Enter") { const ranks = seek(); if (ranks.length) { keep(ranks[0], true); } }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA)$/.test(document.activeElement?.tagName)) return;
  event.preventDefault();
  field.focus();
  field.select();
});

// Raw captures: gzip in base64, unpacked when they are opened.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const plain = (text) => text.replace(hidden, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

async function unpack() {
  const bytes = Uint8Array.from(atob($("rawdata").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function showRaw(name, text, button) {
  for (const other of all("#rawlist button")) other.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
  $("rawname").textContent = name;
  $("rawtext").textContent = plain(text);
  const save = $("rawsave");
  if (save.href) URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  save.download = name.replaceAll("/", "_");
  save.hidden = false;
}

async function openRaw() {
  try {
    const files = await unpack();
    const buttons = Object.entries(files).map(([name, text]) => {
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", () => showRaw(name, text, button));
      return button;
    });
    $("rawlist").replaceChildren(...buttons.map((button) => make("li", {}, button)));
    buttons[0]?.click();
  } catch (error) {
    $("rawtext").textContent = `They could not be unpacked here (${error}). They are in the bundle's folder raw/.`;
  }
}
$("rawbox")?.addEventListener("toggle", openRaw, { once: true });

// On a narrow screen the culprits, on the right, are what to see first.
const waitbox = $("waitbox");
if (waitbox) waitbox.scrollLeft = waitbox.scrollWidth;
