"use strict";
// What the other scripts share: the data, making elements (text only, never markup), lists of ranks.
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const [RANK, STATE, CAUSE, NODE, PID, GPU, LOCAL, PROCESS, PLACE, THREADS, OPS, POSITION] = Array(12).keys();
const rows = new Map(D.rows.map((row) => [row[RANK], row]));

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function parseRanks(text) {
  const ranks = [];
  for (const part of text ? text.split(",") : []) {
    const [first, last] = part.split("-").map(Number);
    for (let rank = first; rank <= (last ?? first); rank++) ranks.push(rank);
  }
  return ranks;
}

function hasRank(text, rank) {
  if (text === "") return false;
  return text.split(",").some((part) => {
    const [first, last] = part.split("-").map(Number);
    return rank >= first && rank <= (last ?? first);
  });
}

// A name may have ten thousand characters: its beginning, and the whole behind a click.
function long(text, width = 240) {
  if (text.length <= width) return document.createTextNode(text);
  return make("details", { class: "long" }, make("summary", {}, text.slice(0, width) + "…"), text);
}

const cut = (text, width) => (text.length <= width ? text : text.slice(0, width - 1) + "…");
const fileOf = (frame) => D.files[frame[1]];
const library = /site-packages\/|dist-packages\/|\/lib\/python3|^<frozen |^<string>|\.so(\.\d+)*$|^$/;
const isLibrary = (frame) => library.test(fileOf(frame)[0]);
