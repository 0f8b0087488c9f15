
"use strict";
// Charts in SVG: ticks, frames, curves and the names of lines. page.js, which follows in the same script, calls these.

const MARGIN = { left: 58, right: 14, top: 14, bottom: 34 };  // pixels around a chart's plot

function text(v) {
  if (!Number.isFinite(v)) return Number.isNaN(v) ? "not finite" : "∞";
  if (v === 0) return "0";
  const size = Math.abs(v);
  return size >= 1e-3 && size < 1e5 ? String(Number(v.toPrecision(3))) : v.toExponential(2).replace(/e\+?/, "e");
}

const SVG = document.querySelector("svg").namespaceURI;

function add(parent, name, attributes = {}, content) {
  const made = parent.namespaceURI === SVG ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, v] of Object.entries(attributes)) made.setAttribute(key, v);
  if (content !== undefined) made.textContent = content;
  parent.appendChild(made);
  return made;
}

const ink = group => ({ stroke: group.color, fill: group.color, "stroke-dasharray": group.dash });

function swatch(parent, group) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "key");
  svg.setAttribute("viewBox", "0 0 24 10");
  add(svg, "line", { x1: 0, x2: 24, y1: 5, y2: 5, "stroke-width": 3, ...ink(group) });
  parent.appendChild(svg);
}

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = e => "10" + String(e).replace("-", "⁻").replace(/\d/g, d => SUPERSCRIPT[d]);

// Ticks as [value, text]: whole powers of ten, with 2 and 5 where few; or round numbers.
function ticks(low, high, log, most) {
  if (!log) {
    const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
    const apart = unit * [1, 2, 5, 10].find(f => f * unit >= rough), out = [];
    for (let i = Math.ceil(low / apart - 1e-9); i * apart <= high + 1e-9 * apart; i++) out.push([i * apart, text(i * apart)]);
    return out;
  }
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high)), decades = Math.log10(high / low);
  const every = Math.ceil(decades / most), factors = decades < 1.1 ? [1, 2, 3, 5, 7] : decades < 2.2 ? [1, 2, 5] : [1], out = [];
  for (let e = from; e <= to; e++)
    for (const f of factors)
      if (f * 10 ** e >= low && f * 10 ** e <= high && e % every === 0)
        out.push([f * 10 ** e, Math.abs(e) < 4 ? text(f * 10 ** e) : (f > 1 ? f + "×" : "") + power(e)]);
  return out;
}

// An empty chart: grid, ticks, and the functions x and y from values to pixels; y stays within the plot, `beyond` says if it had to.
function frame(svg, xs, ys, log, xName, nameRoom = 0) {
  svg.replaceChildren();
  const width = svg.clientWidth || 600, height = svg.clientHeight || 300;
  const to = v => log ? Math.log10(v) : v, [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right - nameRoom, MARGIN.top, height - MARGIN.bottom];
  const chart = { svg, left, right, top, bottom, log,
    x: v => left + (right - left) * (v - xs[0]) / (xs[1] - xs[0] || 1),
    xBack: p => xs[0] + (xs[1] - xs[0]) * (p - left) / (right - left),
    raw: v => bottom - (bottom - top) * (to(v) - to(ys[0])) / (to(ys[1]) - to(ys[0]) || 1) };
  chart.y = v => Math.min(bottom, Math.max(top, log && v <= 0 ? bottom : chart.raw(v)));
  chart.beyond = v => v > ys[1] ? 1 : v < ys[0] ? -1 : 0;
  for (const [v, label] of ticks(ys[0], ys[1], log, 6)) {
    add(svg, "line", { class: "grid", x1: left, x2: right, y1: chart.y(v), y2: chart.y(v) });
    add(svg, "text", { x: left - 7, y: chart.y(v) + 4, "text-anchor": "end" }, label);
  }
  for (const [v, label] of ticks(xs[0], xs[1], false, Math.max(3, Math.min(10, (right - left) / 50))).filter(t => Number.isInteger(t[0]))) {
    add(svg, "line", { class: "grid", x1: chart.x(v), x2: chart.x(v), y1: top, y2: bottom });
    add(svg, "text", { x: chart.x(v), y: bottom + 17, "text-anchor": "middle" }, label);
  }
  add(svg, "text", { x: right, y: height - 4, "text-anchor": "end" }, xName);
  return chart;
}

// A line through [x, mean, least, most] with its band; gaps where nothing is finite, a triangle on the edge where it leaves.
function curve(chart, points, group, wide) {
  const parts = [[]];
  for (const p of points) Number.isFinite(p[1]) && !(chart.log && p[1] <= 0) ? parts.at(-1).push(p) : parts.push([]);
  for (const part of parts.filter(p => p.length)) {
    const path = (k, list) => list.map(p => `${chart.x(p[0]).toFixed(1)},${chart.y(p[k]).toFixed(1)}`).join(" ");
    if (wide) add(chart.svg, "polygon", { class: "band", fill: group.color, points: path(2, part) + " " + path(3, [...part].reverse()) });
    if (part.length > 1) add(chart.svg, "polyline", { class: "curve", stroke: group.color, "stroke-dasharray": group.dash, points: path(1, part) });
    else add(chart.svg, "circle", { class: "point", r: 4, fill: group.color, cx: chart.x(part[0][0]), cy: chart.y(part[0][1]) });
    const out = part.filter(p => chart.beyond(p[1]));
    if (out.length) edge(chart, out[Math.floor(out.length / 2)], group);
  }
}

function edge(chart, point, group) {
  const up = chart.beyond(point[1]), x = chart.x(point[0]), y = up > 0 ? chart.top : chart.bottom;
  add(chart.svg, "path", { class: "point edge", fill: group.color, d: `M${x - 6},${y + 9 * up}h12l-6,${-9 * up}z` });
}

// Names beside the right ends of lines, pushed apart.
function names(chart, ends) {
  const room = 14;
  let above = -room;
  for (const end of ends.sort((a, b) => a.y - b.y)) above = end.at = Math.max(end.y, above + room);
  let below = chart.bottom + room / 2;
  for (const end of ends.reverse()) below = end.at = Math.min(end.at, below - room);
  for (const { at, x, y, name, group } of ends) {
    add(chart.svg, "path", { d: `M${x + 2},${y}L${chart.right + 12},${at}`, stroke: group.color, "stroke-opacity": 0.6, fill: "none" });
    add(chart.svg, "text", { class: "name", x: chart.right + 15, y: at + 4 }, name);
  }
}
