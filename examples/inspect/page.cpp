// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

namespace programs {
namespace {

// The page draws everything from the report it carries, so that its numbers are the report's.
constexpr std::string_view head = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>fp8-inspect</title>
<style>
:root { --ground: #fbfbfa; --card: #fff; --ink: #1d2126; --soft: #626b76; --line: #dfe2e6; --bar: #2f6db5;
  --low: #c0392b; --good: #1e7d4f; --mark: #fff3c4; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171a; --card: #1c2024; --ink: #e4e7ea; --soft: #9aa4af; --line: #33393f; --bar: #6ea8e8;
    --low: #ef7d6e; --good: #6fcf97; --mark: #4a4220; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 .75rem; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .9rem;
  margin: 1rem 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; }
.facts div { border-left: 3px solid var(--line); padding-left: .6rem; min-width: 0; }
.facts .bad { border-color: var(--low); }
.facts b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.facts span { color: var(--soft); font-size: .85rem; }
.tags { display: flex; flex-wrap: wrap; gap: .35rem; }
.tags code { border: 1px solid var(--line); border-radius: 1rem; padding: .05rem .6rem; font-size: .85rem; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 11px; }
svg .axis { stroke: var(--line); }
svg .bar { fill: var(--bar); }
svg .bar.low { fill: var(--low); }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(13rem, 44%), 1fr)); gap: 1rem; }
figure { margin: 0; min-width: 0; }
canvas { width: 100%; aspect-ratio: 1; image-rendering: pixelated;
  border: 1px solid var(--line); border-radius: .25rem; display: block; }
figcaption { font-size: .8rem; color: var(--soft); overflow-wrap: anywhere; }
.key { height: .6rem; border-radius: .3rem; margin: .5rem 0 .1rem; max-width: 24rem; }
.ends { display: flex; justify-content: space-between; max-width: 24rem; font-size: .8rem; color: var(--soft); }
input { width: 100%; font: inherit; padding: .5rem .7rem; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--ground); color: var(--ink); }
.scroll { overflow-x: auto; margin-top: .6rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; cursor: pointer; }
th.n { text-align: right; white-space: normal; vertical-align: bottom; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 12rem; }
.broken { color: var(--low); font-weight: 600; }
.note { color: var(--soft); font-size: .82rem; }
@media (max-width: 40rem) {
  body { padding: .6rem; }
  thead { display: none; }
  tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .1rem 0; }
  td::before { content: attr(data-label); color: var(--soft); flex: none; }
  td.name { font-weight: 600; min-width: 0; display: block; }
  td.name::before { display: none; }
  td.n { text-align: right; }
}
</style>
</head>
<body>
<h1 id="title"></h1>
<p id="subtitle"></p>
<main id="main"></main>
<script type="application/json" id="report">
)html";

constexpr std::string_view tail = R"html(</script>
<script>
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const main = document.getElementById("main");
const SVG = "http://www.w3.org/2000/svg";
function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options))
    key === "class" ? node.className = value : node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function draw(parent, tag, options, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(options)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}
function section(title, text) {
  const node = make("section", {}, make("h2", {}, title));
  if (text) node.append(make("p", {}, text));
  main.append(node);
  return node;
}
// Names may break behind their dots.
const dotted = name => {
  const node = make("span");
  for (const part of name.split(/(?<=\.)/)) node.append(part, make("wbr"));
  return node;
};
const unbroken = text => text.replaceAll(", ", ",\u00a0");
const named = {name: "tensor", of: row => row.name, show: row => dotted(row.name)};
const number = value => value.toLocaleString("en-US");
const decibel = value => value === null || value === undefined ? "exact" : value.toFixed(2) + " dB";
const short = value => value === null ? "" : value === 0 ? "0" : value.toPrecision(4);
const fits = list => list.map(one => `${one.name} ${one.scale}${one.from.includes("BF16") ? "" : " from FP32"}`);
function facts(list) {
  const box = make("div", {class: "facts"});
  for (const [value, label, bad] of list)
    box.append(make("div", bad ? {class: "bad"} : {}, make("b", {}, String(value)), make("span", {}, label)));
  return box;
}
function tags(list) {
  const box = make("div", {class: "tags"});
  for (const one of list) box.append(make("code", {}, one));
  return box;
}

// Bars over a row of labels; only as many labels as there is room for.
function bars(parent, items, {unit, low = () => false, label}) {
  const narrow = window.innerWidth < 640, width = narrow ? 360 : 1000, height = 220, left = 44, bottom = 22, top = 8;
  const svg = draw(parent, "svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
  const most = Math.max(...items.map(one => one.value), 0) || 1;
  const y = value => top + (height - top - bottom) * (1 - Math.max(value, 0) / most);
  // Lines at round numbers, three to six of them.
  const power = 10 ** Math.floor(Math.log10(most / 3)), mark = power * [5, 2, 1].find(one => most / (one * power) >= 3);
  for (let value = 0; value <= most; value += mark) {
    draw(svg, "line", {class: "axis", x1: left, x2: width, y1: y(value), y2: y(value)});
    draw(
        svg, "text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"},
        value.toLocaleString("en-US", {notation: "compact"}));
  }
  const step = (width - left) / items.length, thick = Math.min(step * .76, 56);
  const every = Math.ceil(items.length * 40 / (width - left));
  items.forEach((one, i) => {
    const bar = draw(svg, "rect", {
      class: low(one) ? "bar low" : "bar",
      x: left + step * (i + .5) - thick / 2,
      width: thick,
      y: y(one.value),
      height: Math.max(y(0) - y(one.value), one.value > 0 ? 1 : 0),
      rx: Math.min(2, step * .2)
    });
    draw(bar, "title", {}, `${one.name}: ${one.text ?? one.value}`);
    if (i % every === 0)
      draw(svg, "text", {x: left + step * (i + .5), y: height - 6, "text-anchor": "middle"}, one.tick);
  });
  if (unit) draw(svg, "text", {x: 0, y: 10}, unit);
}

const measured = pair => pair.error && !pair.error.problem;
function layers(pairs) {
  const groups = new Map();
  for (const pair of pairs.filter(measured)) {
    const match = /^(.*?\blayers?|.*?\bblocks|.*?\bh)\.(\d+)\./.exec(pair.name);
    const key = match ? match[0] : "other";
    if (!groups.has(key))
      groups.set(key, {
        name: match ? key.slice(0, -1) : "outside of layers",
        tick: !match ? "..." : key.startsWith("mtp.") ? "mtp " + match[2] : match[2],
        pairs: []
      });
    groups.get(key).pairs.push(pair);
  }
  const collator = new Intl.Collator("en", {numeric: true});
  return [...groups.values()].sort((a, b) => collator.compare(a.name, b.name));
}

// Violet to yellow: readable in the dark and for the colour-blind.
function colour(part) {
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const at = Math.min(Math.max(part, 0), .9999) * (stops.length - 1), i = Math.floor(at), rest = at - i;
  return stops[i].map((from, channel) => Math.round(from + (stops[i + 1][channel] - from) * rest));
}

function heat(parent, pair, from, to) {
  const {rows, cols, lowest_sqnr_db: cells} = pair.error.heat;
  const canvas =
      make("canvas", {width: cols, height: rows, role: "img", "aria-label": "SQNR of the blocks of " + pair.name});
  const context = canvas.getContext("2d"), image = context.createImageData(cols, rows);
  cells.forEach((cell, i) => {
    const [red, green, blue] = cell === null ? [128, 128, 128] : colour((cell - from) / (to - from));
    image.data.set([red, green, blue, cell === null ? 90 : 255], i * 4);
  });
  context.putImageData(image, 0, 0);
  const worst = pair.error.worst[0];
  const text = worst ? `worst block: ${worst.batch ? "matrix " + worst.batch + ", " : ""}row ${
                           worst.block_row}, column ${worst.block_col}, ${decibel(worst.sqnr_db)}` :
                       "";
  const all = `${decibel(pair.error.sqnr_db)} in all; ${text}`;
  parent.append(make(
      "figure", {}, canvas, make("figcaption", {}, make("b", {}, dotted(pair.name)), make("br"), all)));
}

function table(parent, columns, rows) {
  const search =
      make("input", {type: "search", placeholder: `Search ${number(rows.length)} rows`, "aria-label": "Search"});
  const body = make("tbody"), header = make("tr");
  let shown = rows, order = null;
  const fill = () => {
    body.replaceChildren();
    for (const row of shown.slice(0, 500)) {
      const line = make("tr");
      columns.forEach(column => {
        const value = column.of(row);
        if (value === null || value === undefined || value === "") {
          if (column.name !== "tensor") {
            line.append(make("td", {class: "n", "data-label": column.name}, ""));
            return;
          }
        }
        line.append(make(
            "td",
            {class: column.name === "tensor" ? "name" :
                 column.numeric              ? "n" :
                                               "",
             "data-label": column.name},
            column.show ? column.show(row) : String(value)));
      });
      body.append(line);
    }
    if (shown.length > 500)
      body.append(make(
          "tr", {},
          make("td", {colspan: columns.length, class: "note"}, `${number(shown.length - 500)} more: search for them`)));
  };
  columns.forEach(column => {
    const cell = make("th", column.numeric ? {class: "n"} : {}, column.name);
    cell.addEventListener("click", () => {
      const up = order !== column;
      order = up ? column : null;
      const weigh = row => column.of(row) ?? (column.numeric ? Infinity : "");
      rows.sort((a, b) => (weigh(a) < weigh(b) ? -1 : weigh(a) > weigh(b) ? 1 : 0) * (up ? 1 : -1));
      search.dispatchEvent(new Event("input"));
    });
    header.append(cell);
  });
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter(
        row => words.every(word => JSON.stringify(columns.map(column => column.of(row))).toLowerCase().includes(word)));
    fill();
  });
  fill();
  parent.append(search, make("div", {class: "scroll"}, make("table", {}, make("thead", {}, header), body)));
}

function showCheckpoint() {
  const {summary, pairs, orphans} = report;
  document.getElementById("title").textContent = report.checkpoint;
  document.getElementById("subtitle").textContent = report.against ? "against " + report.against : "FP8 checkpoint";
  const top = section("What is in it");
  const list = [
    [number(summary.pairs), "pairs of codes and scales"], [number(summary.broken), "broken", summary.broken > 0],
    [number(summary.suspicious_scales), "suspicious scales", summary.suspicious_scales > 0],
    [number(summary.blocks), "blocks"], [number(summary.zero_blocks), "of them all zero"]
  ];
  if (summary.error)
    list.push(
        [decibel(summary.error.sqnr_db), "signal to noise"], [short(summary.error.max_abs_error), "largest error"],
        [number(summary.error.saturated), "cut off"]);
  top.append(facts(list));
  const could =
      section("Presets that could have made every pair", summary.presets.length ? "" : "None that this program knows.");
  could.append(tags(fits(summary.presets)));
  const {audit} = report;
  if (audit.skipped) {
    section("Layer audit", `None: ${audit.skipped}.`);
  } else {
    const box = section(
        "Layer audit",
        `What the rules of ${audit.family} say, what the tensors are, and what config.json makes an engine build.`);
    box.append(facts([
      [number(audit.in_fp8), `of ${number(audit.parameters)} parameters in FP8`],
      [number(audit.disagreements.length), "disagreements", audit.disagreements.length > 0]
    ]));
    if (audit.disagreements.length)
      table(box, [named, {name: "what", of: row => row.what}], audit.disagreements);
  }
  const groups = layers(pairs);
  if (groups.length) {
    const worst = group => Math.min(...group.pairs.map(pair => pair.error.sqnr_db ?? Infinity));
    const items = groups.map(
        group => ({
          name: group.name,
          tick: group.tick,
          value: Number.isFinite(worst(group)) ? worst(group) : 0,
          text: `${decibel(worst(group))} in ${
              group.pairs.reduce((a, b) => (a.error.sqnr_db ?? Infinity) <= (b.error.sqnr_db ?? Infinity) ? a : b)
                  .name}`
        }));
    const values = items.map(item => item.value).sort((a, b) => a - b), middle = values[values.length >> 1];
    bars(
        section(
            "Signal to quantization noise, layer by layer",
            "The worst tensor of every layer, in dB; more is better. Red: 3 dB below the middle layer."),
        items, {unit: "dB", low: item => item.value < middle - 3, label: "SQNR of every layer"});
  } else if (!report.against) {
    section(
        "Signal to quantization noise", "Run fp8-inspect with --against ORIGINAL to see the error of every tensor.");
  }
  const counts = new Map();
  for (const pair of pairs)
    for (const [exponent, count] of Object.entries(pair.exponents ?? {}))
      counts.set(+exponent, (counts.get(+exponent) ?? 0) + count);
  if (counts.size) {
    const from = Math.min(...counts.keys()), to = Math.max(...counts.keys()), items = [];
    // One far block must not squeeze the others together: gaps of more than eight exponents are left out.
    let last = from;
    for (let exponent = from; exponent <= to; ++exponent) {
      if (counts.has(exponent)) last = exponent;
      else {
        let next = exponent;
        while (!counts.has(next)) ++next;
        if (next - last > 8) {
          items.push({name: "nothing between", tick: "…", value: 0});
          exponent = next - 1;
          continue;
        }
      }
      items.push({
        name: "2^" + exponent,
        tick: String(exponent),
        value: counts.get(exponent) ?? 0,
        text: number(counts.get(exponent) ?? 0) + " blocks"
      });
    }
    bars(
        section("Exponents of the scales", "Blocks whose scale lies between 2^n and 2^(n+1)."), items,
        {unit: "", label: "Histogram of scale exponents"});
  }
  const ranked =
      pairs
          .filter(
              pair => measured(pair) && pair.error.sqnr_db !== null && pair.error.heat.rows * pair.error.heat.cols > 1)
          .sort((a, b) => a.error.sqnr_db - b.error.sqnr_db)
          .slice(0, 6);
  if (ranked.length) {
    const cells =
        ranked.flatMap(pair => pair.error.heat.lowest_sqnr_db).filter(cell => cell !== null).sort((a, b) => a - b);
    const from = cells[Math.floor(cells.length * .01)], to = Math.max(cells[Math.floor(cells.length * .99)], from + .1);
    const
        box = section(
            "Where the worst blocks lie",
            "The six tensors with the lowest SQNR, block by block; a batch's matrices stand below each other. " +
                "Grey: nothing lost."),
        maps = make("div", {class: "maps"});
    for (const pair of ranked) heat(maps, pair, from, to);
    const key = make("div", {class: "key"});
    key.style.background =
        `linear-gradient(to right, ${[0, .25, .5, .75, 1].map(part => `rgb(${colour(part)})`).join(", ")})`;
    box.append(maps, key, make("div", {class: "ends"}, make("span", {}, decibel(from)), make("span", {}, decibel(to))));
  }
  if (orphans.length) {
    const box = section("Alone", "Codes without scales, scales without codes.");
    table(box, [named, {name: "what", of: row => row.what}], orphans);
  }
  const columns = [
    {
      name: "tensor",
      of: pair => pair.name,
      show: pair => {
        const cell = dotted(pair.name);
        if (pair.problem) cell.append(make("div", {class: "broken"}, pair.problem));
        if (pair.note) cell.append(make("div", {class: "note"}, pair.note));
        return cell;
      }
    },
    {
      name: "codes",
      of: pair => `${pair.dtype} [${pair.shape.join(", ")}]`,
      show: pair => unbroken(`${pair.dtype} [${pair.shape.join(", ")}]`)
    },
    {
      name: "scales",
      of: pair => `${pair.scale_dtype} [${pair.scale_shape.join(", ")}]`,
      show: pair => unbroken(`${pair.scale_dtype} [${pair.scale_shape.join(", ")}]`)
    },
    {name: "encoding", of: pair => `${pair.encoding || "unknown"} ${pair.block}`},
    // Fused experts have no ".weight": what is added to their own name is enough.
    {
      name: "scale name",
      of: pair => pair.scale_name.startsWith(pair.name + "_") && !pair.name.endsWith(".weight") ?
          "\u2026" + pair.scale_name.slice(pair.name.length) :
          pair.scale_name.slice(pair.scale_name.lastIndexOf(".") + 1)
    },
    {name: "zero blocks", numeric: true, of: pair => pair.zero_blocks},
    {name: "smallest scale", numeric: true, of: pair => pair.scale_min, show: pair => short(pair.scale_min)},
    {name: "largest scale", numeric: true, of: pair => pair.scale_max, show: pair => short(pair.scale_max)},
  ];
  if (report.against)
    columns.push(
        {
          name: "SQNR",
          numeric: true,
          of: pair => measured(pair) ? pair.error.sqnr_db : null,
          show: pair => measured(pair) ? decibel(pair.error.sqnr_db) : ""
        },
        {
          name: "largest error",
          numeric: true,
          of: pair => measured(pair) ? pair.error.max_abs_error : null,
          show: pair => measured(pair) ? short(pair.error.max_abs_error) : ""
        });
  table(section("Pairs and encodings"), columns, pairs.slice());
}

function showComparison() {
  document.getElementById("title").textContent = `${report.a} and ${report.b}`;
  document.getElementById("subtitle").textContent =
      report.equal ? "The same tensors with the same bytes." : "They differ.";
  const top = section("What is in them");
  top.append(facts([
    [number(report.same_tensors), "tensors are the same"],
    [number(report.differences.length), "differ", report.differences.length > 0],
    [number(report.only_in_a.length), "only in the first", report.only_in_a.length > 0],
    [number(report.only_in_b.length), "only in the second", report.only_in_b.length > 0]
  ]));
  section("Presets that could have made both", report.presets_of_both.length ? "" : "None that this program knows.")
      .append(tags(fits(report.presets_of_both)));
  const rows = [
    ...report.differences, ...report.only_in_a.map(name => ({name, what: "only in the first"})),
    ...report.only_in_b.map(name => ({name, what: "only in the second"}))
  ];
  if (rows.length)
    table(
        section("Differences"),
        [
          named, {name: "what", of: row => row.what},
          {name: "differ", numeric: true, of: row => row.differ}, {name: "of", numeric: true, of: row => row.of},
          {name: "by at most", numeric: true, of: row => row.largest, show: row => short(row.largest)}
        ],
        rows);
}

"checkpoint" in report ? showCheckpoint() : showComparison();
</script>
</body>
</html>
)html";

}  // namespace

std::string page_of(const fp8wire::json::value& report) {
  std::string page(head);
  // The report must not end its own element; in JSON "<" stands in strings alone, where an escape says the same.
  for (const char c : fp8wire::json::write(report)) {
    if (c == '<') page.append("\\u003c");
    else page.push_back(c);
  }
  return page.append(tail);
}

}  // namespace programs
