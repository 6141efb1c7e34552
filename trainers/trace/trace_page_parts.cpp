#include "trainers/trace/trace_page_parts.h"

namespace quire {

const char* const kTracePageStyle =
    R"(:root { color-scheme: light dark; --text: #1d2430; --soft: #5a6474; --page: #ffffff; --line: #d9dee6;
  --shade: #f4f6f9; --read: 214, 120, 0; --here: #0b57d0; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e8ee; --soft: #9aa5b5; --page: #14181f; --line: #323a46; --shade: #1c222b; --read: 255, 170, 50;
    --here: #8ab4ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
header { padding: 1rem 1rem .5rem; }
h1 { font-size: 1.2rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: 0 0 .4rem; color: var(--soft); overflow-wrap: anywhere; }
label { margin-right: .8rem; white-space: nowrap; color: var(--soft); }
select { font: inherit; max-width: 16rem; color: var(--text); background: var(--shade); border: 1px solid var(--line);
  border-radius: 4px; }
main { display: grid; grid-template-columns: minmax(0, 1fr) 26rem; gap: 1rem; padding: 0 1rem 2rem; }
#text { font: .95rem/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; outline-offset: 4px; }
#text div { content-visibility: auto; contain-intrinsic-size: auto 30rem; }
#text i { font-style: normal; cursor: pointer; border-radius: 2px; scroll-margin: 4rem 0; }
#text i.special { color: var(--soft); }
#text i.cut { box-shadow: -2px 0 0 var(--soft); }
#text i:hover { outline: 1px solid var(--soft); }
#text i.here { outline: 2px solid var(--here); background: var(--shade); }
aside { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow: auto; padding: .8rem;
  border: 1px solid var(--line); border-radius: 6px; background: var(--page); }
table { border-collapse: collapse; width: 100%; font-size: .85rem; font-variant-numeric: tabular-nums;
  margin: .25rem 0 .75rem; }
th, td { padding: .15rem .35rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; background: var(--shade); white-space: nowrap; }
th:first-child, td:first-child { width: 5rem; }
th:last-child, td.span { text-align: left; overflow-wrap: anywhere; }
td.span code { white-space: pre-wrap; }
button { font: inherit; color: var(--here); background: none; border: 0; padding: 0; cursor: pointer; }
@media (max-width: 48rem) {
  main { display: block; padding: 0 .75rem 55vh; }
  header { padding: .75rem .75rem .5rem; }
  #text i { scroll-margin-bottom: 48vh; }
  aside { position: fixed; left: 0; right: 0; bottom: 0; top: auto; max-height: 45vh; border-radius: 0;
    border-width: 2px 0 0; }
}
)";

const char* const kTracePageBody =
    R"(<header><h1 id="title"></h1><p id="about"></p>
<label>layer <select id="layer"></select></label><label>head <select id="head"></select></label>
<p>A click on a token shows what it has read: darker is more. The arrow keys go to the next token and the next line, Home
and End to the first and last. A bar to the left of a token marks the beginning of a subsequence.</p></header>
<main><div id="text" tabindex="0" role="application" aria-label="the text, token by token"></div>
<aside aria-live="polite" id="panel"><p>No token is chosen.</p></aside></main>
)";

// reads: for each token layer, head, local, number of spans, then distance to the begin, length and weight of each;
// shares are in units of 1 / 10000.
const char* const kTracePageScript =
    R"js("use strict";
const trace = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id), count = trace.text.length, pieces = [];
const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};
const percent = x => (x / 100).toFixed(x < 1000 ? 2 : 1) + " %";
const nats = x => x === null ? "none" : x.toFixed(3);
const position = token => token + trace.from;
at("title").textContent = trace.title;
at("about").textContent = trace.about;
for (const [name] of [["all layers"], ...trace.layers]) at("layer").append(make("option", name));
const max_heads = trace.layers.reduce((max, layer) => Math.max(max, layer[1]), 0);
at("head").append(make("option", "all heads"));
for (let head = 0; head < max_heads; ++head) at("head").append(make("option", head));
const cuts = new Set(trace.cuts);
// Parts end with lines where they can, since the browser lays out only those in sight.
for (let token = 0, part = null, size = 0; token < count; ++token, ++size) {
  const text = trace.text[token], piece = make("i", text === "" ? "\u00b7" : text.replace(/\n$/, "\u21b5\n"));
  if (part === null || size > 4000 || size > 1000 && trace.text[token - 1].endsWith("\n")) {
    part = make("div");
    at("text").append(part);
    size = 0;
  }
  if (text === "") piece.className = "special";
  if (cuts.has(position(token))) piece.classList.add("cut");
  piece.dataset.token = token;
  pieces.push(piece);
  part.append(piece);
}
// The reads of a token that the choice of layer and head selects.
function reads_of(token) {
  const numbers = trace.reads[token], found = [];
  const layer = at("layer").selectedIndex - 1, head = at("head").selectedIndex - 1;
  for (let i = 0; i < numbers.length;) {
    const read = {layer: numbers[i], head: numbers[i + 1], local: numbers[i + 2], spans: []};
    let left = 10000 - read.local;
    const end = i + 4 + 3 * numbers[i + 3];
    for (i += 4; i < end; i += 3) {
      const begin = position(token) - numbers[i];
      read.spans.push([begin, begin + numbers[i + 1], numbers[i + 2]]);
      left -= numbers[i + 2];
    }
    read.left = Math.max(left, 0);
    if ((layer < 0 || layer === read.layer) && (head < 0 || read.head < 0 || head === read.head)) found.push(read);
  }
  return found;
}
const last_of = (begin, end) => Math.max(end, begin + 1) - 1;
function excerpt(begin, end) {
  let text = "";
  for (let i = begin - trace.from; i <= last_of(begin, end) - trace.from && text.length <= 60; ++i) {
    text += i < 0 || i >= count ? "" : trace.text[i];
  }
  return (text.length > 60 ? text.slice(0, 60) + "..." : text).replace(/\n/g, "\u21b5");
}
let chosen = -1, shaded = [];
function shade(reads) {
  for (const piece of shaded) piece.style.background = "";
  shaded = [];
  const weights = new Map();
  for (const read of reads) {
    for (const [begin, end, weight] of read.spans) {
      for (let i = begin; i <= last_of(begin, end); ++i) weights.set(i, (weights.get(i) || 0) + weight);
    }
  }
  let largest = 1;
  for (const weight of weights.values()) largest = Math.max(largest, weight);
  for (const [place, weight] of weights) {
    const piece = pieces[place - trace.from];
    if (!piece) continue;
    piece.style.background = "rgba(var(--read)," + (.08 + .6 * weight / largest).toFixed(3) + ")";
    shaded.push(piece);
  }
}
function table_of(read) {
  const table = make("table"), head = make("tr");
  for (const title of ["weight", "tokens"]) head.append(make("th", title));
  table.append(head);
  for (const [begin, end, weight] of read.spans) {
    const row = make("tr"), cell = make("td", undefined, "span");
    const name = begin === end ? "before " + begin : end - begin === 1 ? begin : begin + " to " + (end - 1);
    const go = make("button", name);
    go.onclick = () => choose(begin - trace.from);
    go.disabled = !pieces[begin - trace.from];
    cell.append(go, " ", make("code", excerpt(begin, end)));
    row.append(make("td", percent(weight)), cell);
    table.append(row);
  }
  return table;
}
function show() {
  if (chosen < 0) return;
  const panel = at("panel"), reads = reads_of(chosen), text = trace.text[chosen];
  panel.replaceChildren(make("h2", "token " + position(chosen) + (text === "" ? "" : " " + JSON.stringify(text))));
  panel.append(make("p", "loss " + nats(trace.nll[chosen]) + " nats; " + nats(trace.without[chosen]) +
    " where every subsequence begins with empty state"));
  if (reads.length === 0) panel.append(make("p", "Nothing that it has retrieved is on this page."));
  for (const read of reads) {
    const rounded = read.left <= read.spans.length;
    panel.append(make("h2", trace.layers[read.layer][0] + (read.head < 0 ? ", all heads" : ", head " + read.head)));
    panel.append(make("p", "local " + percent(read.local) + (rounded ? "" : ", left out " + percent(read.left))));
    panel.append(table_of(read));
  }
  panel.scrollTop = 0;
  shade(reads);
}
function choose(token) {
  if (token < 0 || token >= count) return;
  if (chosen >= 0) pieces[chosen].classList.remove("here");
  chosen = token;
  pieces[token].classList.add("here");
  pieces[token].scrollIntoView({block: "nearest"});
  show();
}
// The token in the next line, above or below, that lies nearest to the chosen one.
function in_line(step) {
  const from = pieces[chosen].getBoundingClientRect();
  let line = null, best = chosen, distance = Infinity;
  for (let i = chosen + step; i >= 0 && i < count; i += step) {
    const box = pieces[i].getBoundingClientRect();
    if (Math.abs(box.top - from.top) < 3) continue;
    if (line === null) line = box.top;
    if (Math.abs(box.top - line) >= 3) break;
    if (Math.abs(box.left - from.left) < distance) {
      best = i;
      distance = Math.abs(box.left - from.left);
    }
  }
  return best;
}
at("text").onclick = event => {
  if (event.target.dataset.token !== undefined) choose(Number(event.target.dataset.token));
};
document.onkeydown = event => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") return;
  const steps = {ArrowRight: () => chosen + 1, ArrowLeft: () => chosen - 1, ArrowDown: () => in_line(1),
    ArrowUp: () => in_line(-1), Home: () => 0, End: () => count - 1};
  if (!(event.key in steps)) return;
  event.preventDefault();
  choose(chosen < 0 ? 0 : steps[event.key]());
};
at("layer").onchange = show;
at("head").onchange = show;
const asked = /^#token=([0-9]+)$/.exec(location.hash);
if (asked) choose(Number(asked[1]) - trace.from);
)js";

}  // namespace quire
