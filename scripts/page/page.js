
"use strict";
// What the page shows is one `state`; every change of it ends in `redraw`. No library, nothing fetched, no style attributes:
// the page's policy allows neither.

const page = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const NAMES = { grad: "gradient rms", rms: "activation rms" };
const UNITS = { grad: "nats per unit", rms: "units" };
const MARGIN = { left: 58, right: 14, top: 14, bottom: 34 };  // pixels around a chart's plot
const state = { at: 0, site: "stream", show: "both", unit: "value", scale: "log", seeds: "band",
                off: new Set(), offSeeds: new Set(), playing: 0, saved: 0, hover: null };

// ---- data -----------------------------------------------------------------------------------------------------

// Numbers travel in 16 bits, as three significant digits and a power of ten (scripts/report_data.py).
function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0)), out = new Float64Array(bytes.length / 2);
  for (let i = 0; i < out.length; i++) {
    const code = bytes[2 * i] + 256 * bytes[2 * i + 1];
    out[i] = code < 3 ? [NaN, 0, Infinity][code] : Number(`${100 + (code - 3) % 900}e${Math.floor((code - 3) / 900) - 35}`);
  }
  return out;
}

for (const run of page.runs)
  for (const site of Object.values(run.sites))
    for (const name of ["rms", "grad"]) site[name] = unpacked(site[name]);

// The value of a site at a row of the run's steps and a layer, as the switches say.
function value(run, name, row, layer) {
  const site = run.sites[state.site], width = run.layers;
  if (!site || row < 0 || layer >= width) return NaN;
  const v = site[name][row * width + layer];
  return state.unit === "ratio" ? v / site[name][layer] : v;
}

// The row of a list of steps that shows `step`: the last not after it; a run's first before its start.
function rowAt(steps, step) {
  let row = 0;
  while (row + 1 < steps.length && steps[row + 1] <= step) row++;
  return steps.length ? row : -1;
}

const shown = run => !state.off.has(run.group) && !state.offSeeds.has(run.seed);
const step = () => page.steps[state.at] ?? 0;
const finite = values => values.filter(Number.isFinite);

// The shown runs by what is one line: a group, or each run where seeds are lines.
function lines() {
  const runs = page.runs.filter(shown);
  if (state.seeds === "lines") return runs.map(run => ({ group: page.groups[run.group], runs: [run], seed: run.seed }));
  return page.groups.map((group, i) => ({ group, runs: runs.filter(run => run.group === i) })).filter(line => line.runs.length);
}

const blockName = layer => layer ? `block ${layer}` : "embedding output";
const nameOf = line => line.group.label + (line.seed === undefined || line.group.seeds < 2 ? "" : ` seed ${line.seed}`);

// [mean, least, most] of what is finite.
function spread(values) {
  const good = finite(values);
  return good.length ? [good.reduce((a, b) => a + b) / good.length, Math.min(...good), Math.max(...good)] : [NaN, NaN, NaN];
}

function text(v) {
  if (!Number.isFinite(v)) return Number.isNaN(v) ? "not finite" : "∞";
  if (v === 0) return "0";
  const size = Math.abs(v);
  return size >= 1e-3 && size < 1e5 ? String(Number(v.toPrecision(3))) : v.toExponential(2).replace(/e\+?/, "e");
}

// ---- drawing --------------------------------------------------------------------------------------------------

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

// Names beside the right ends of lines, pushed apart; `nameRoom` is the width they take, 0 where they would not fit.
function nameRoom(svg, drawn) {
  const longest = Math.max(...drawn.map(line => nameOf(line).length));
  const fits = drawn.length > 1 && longest <= 24 && 15 * drawn.length < svg.clientHeight - 40 && svg.clientWidth > 150 + 8 * longest;
  return fits ? 8 * longest + 8 : 0;
}

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

// ---- layers ---------------------------------------------------------------------------------------------------

// The limits of an axis over all steps, so that it stands still while they pass. A run far above the others may not stretch it
// for them: its curve is marked at the edge.
const limits = new Map();
function range(name) {
  const key = [name, state.site, state.unit, state.scale, [...state.off], [...state.offSeeds]].join("|");
  if (!limits.has(key)) {
    let low = Infinity;
    const tops = [];
    for (const run of page.runs.filter(shown)) {
      let top = 0;
      for (let row = 0; row < run.steps.length; row++)
        for (let layer = 0; layer < run.layers; layer++) {
          const v = value(run, name, row, layer);
          if (v > 0 && v < Infinity) { low = Math.min(low, v); top = Math.max(top, v); }
        }
      if (top) tops.push(top);
    }
    tops.sort((a, b) => a - b);
    const high = Math.min(tops.at(-1), (state.scale === "log" ? 1e3 : 5) * tops[(tops.length - 1) >> 1]) || 1;
    low = Math.min(low, high / 1.5);
    const pad = Math.max((high / low) ** 0.06, 1.08);
    limits.set(key, state.scale === "log" ? [low / pad, high * pad] : [0, 1.06 * high]);
  }
  return limits.get(key);
}

const charts = {};

function drawDepth(name) {
  const box = $(name), svg = box.querySelector("svg");
  box.hidden = state.show !== "both" && state.show !== name || !page.steps.length;
  if (box.hidden) return;
  const drawn = lines(), deepest = Math.max(1, ...page.runs.map(run => run.layers - 1));
  const chart = charts[name] = frame(svg, [0, deepest], range(name), state.scale === "log", "block (0: embedding output)", nameRoom(svg, drawn));
  const unit = state.unit === "ratio" ? "over that of the first row" : UNITS[name];
  const lost = drawn.some(line => line.runs.some(run => run.diverged && run.diverged <= step()));
  box.querySelector("figcaption").textContent = `${NAMES[name]} of ${state.site} (${unit}), by layer` +
    (lost ? "; of runs that have diverged: the last step logged" : "");
  svg.setAttribute("aria-label", `${NAMES[name]} of ${state.site} at each layer, step ${step()}; arrow keys read values`);
  const ends = [];
  chart.at = layer => drawn.map(line => [line, spread(line.runs.map(run => value(run, name, rowAt(run.steps, step()), layer)))[0]]);
  for (const line of drawn) {
    const points = [];
    for (let layer = 0; layer <= deepest; layer++)
      points.push([layer, ...spread(line.runs.map(run => value(run, name, rowAt(run.steps, step()), layer)))]);
    curve(chart, points, line.group, line.runs.length > 1);
    const last = points.filter(p => p[1] > 0).at(-1);
    if (last) ends.push({ x: chart.x(last[0]), y: chart.y(last[1]), name: nameOf(line), group: line.group });
  }
  if (nameRoom(svg, drawn)) names(chart, ends);
  chart.places = Array.from({ length: deepest + 1 }, (_, i) => i);
  chart.word = blockName;
}

// ---- loss -----------------------------------------------------------------------------------------------------

function merged(runs, pick) {
  const table = new Map();
  for (const run of runs)
    for (const [at, loss] of pick(run)) table.set(at, [...(table.get(at) ?? []), loss]);
  return [...table.keys()].sort((a, b) => a - b).map(at => [at, ...spread(table.get(at))]);
}

function drawLoss() {
  const box = $("loss"), svg = box.querySelector("svg"), runs = page.runs.filter(run => run.train.length);
  box.hidden = !runs.length;
  if (box.hidden) return;
  const last = Math.max(1, ...runs.map(run => run.train.at(-1)[0])), [low, high, log] = page.loss;
  const chart = charts.loss = frame(svg, [0, last], [low, high], log, "step");
  box.querySelector("figcaption").textContent = "loss (nats per character): training as lines, validation as diamonds" +
    (Object.keys(page.levels).length ? "; dotted: what counting characters achieves" : "");
  svg.setAttribute("aria-label", "loss against the step; arrow keys move the step");
  for (const [name, level] of Object.entries(page.levels).filter(([, v]) => v > low && v < high)) {
    add(svg, "line", { class: "level", x1: chart.left, x2: chart.right, y1: chart.y(level), y2: chart.y(level) });
    add(svg, "text", { x: chart.right - 4, y: chart.y(level) - 4, "text-anchor": "end" }, `${name} ${level.toFixed(2)}`);
  }
  const drawn = lines().map(line => [line, merged(line.runs, run => run.train), merged(line.runs, run => run.val)]);
  for (const [line, train, val] of drawn) {
    curve(chart, train, line.group, line.runs.length > 1);
    for (const p of val.filter(p => Number.isFinite(p[1]))) {
      const [x, y] = [chart.x(p[0]), chart.y(p[1])];
      if (!chart.beyond(p[1])) add(svg, "path", { class: "point", fill: line.group.color, d: `M${x - 5},${y}l5,-5l5,5l-5,5z` });
    }
    for (const run of line.runs.filter(run => run.diverged)) {
      const end = run.train.filter(p => Number.isFinite(p[1])).at(-1);
      if (end) add(svg, "text", { class: "name", x: chart.x(end[0]), y: chart.y(end[1]) + 5, "text-anchor": "middle" }, "✕");
    }
  }
  chart.cursor = add(svg, "line", { class: "cursor", y1: chart.top, y2: chart.bottom });
  chart.at = at => drawn.flatMap(([line, ...both]) => both.map((list, i) => {
    const near = list[rowAt(list.map(p => p[0]), at)];
    return [line, near && near[0] <= at ? near[1] : NaN, ["", " (validation)"][i]];
  })).filter(row => Number.isFinite(row[1]));
  chart.places = page.steps.length ? page.steps : [...new Set(runs.flatMap(run => run.train.map(p => p[0])))].sort((a, b) => a - b);
  chart.word = at => `step ${at}`;
}

// ---- maps -----------------------------------------------------------------------------------------------------

const rgb = (colors, share) => {  // between two stops
  const at = Math.max(0, Math.min(1, share)) * (colors.length - 1), i = Math.min(colors.length - 2, Math.floor(at));
  return `rgb(${colors[i].map((c, k) => Math.round(c + (colors[i + 1][k] - c) * (at - i))).join(",")})`;
};

function drawMaps() {
  const box = $("maps"), drawn = lines().filter(line => line.runs.some(run => run.steps.length > 1));
  box.replaceChildren();
  for (const name of ["grad", "rms"].filter(n => state.show === "both" || state.show === n)) {
    const [low, high] = range(name).map((v, i) => i || v ? v : range(name)[1] / 1e3), colors = page.maps[name];
    if (drawn.length) {
      const key = add(box, "div", { class: "scale" });
      add(key, "span", {}, `every layer at every step: ${NAMES[name]} of ${state.site}, ${text(low)}`);
      const bar = add(key, "canvas", { width: 64, height: 1 }).getContext("2d");
      for (let i = 0; i < 64; i++) { bar.fillStyle = rgb(colors, i / 63); bar.fillRect(i, 0, 1, 1); }
      add(key, "span", {}, `${text(high)} (logarithmic)`);
    }
    const grid = add(box, "div", { class: drawn.length > 4 ? "many" : "few" });
    for (const line of drawn) drawMap(grid, line, name, low, high, colors);
  }
}

// A line's map, the geometric mean of its seeds: steps to the right, layers upward.
function drawMap(box, line, name, low, high, colors) {
  const figure = add(box, "figure"), caption = add(figure, "figcaption");
  swatch(caption, line.group);
  add(caption, "span", {}, nameOf(line));
  const holder = add(figure, "div", { class: "map" }), canvas = add(holder, "canvas", { width: 480, height: 120 });
  const runs = line.runs.filter(run => run.steps.length > 1), layers = runs[0].layers, brush = canvas.getContext("2d");
  const steps = [...new Set(runs.flatMap(run => run.steps))].sort((a, b) => a - b);
  const [from, to] = [steps[0], steps.at(-1)], x = at => canvas.width * (at - from) / (to - from);
  const cell = (row, layer) => {
    const there = runs.filter(run => steps[row] <= run.steps.at(-1));  // the others have diverged by then
    const good = there.map(run => value(run, name, rowAt(run.steps, steps[row]), layer)).filter(v => v >= 0 && v < Infinity);
    return good.length ? Math.exp(good.reduce((sum, v) => sum + Math.log(v), 0) / good.length) : NaN;
  };
  steps.forEach((at, row) => {
    const left = row ? x((at + steps[row - 1]) / 2) : 0, right = row + 1 < steps.length ? x((at + steps[row + 1]) / 2) : canvas.width;
    for (let layer = 0; layer < layers; layer++) {
      const v = cell(row, layer), top = canvas.height * (1 - (layer + 1) / layers);
      if (Number.isNaN(v)) continue;
      brush.fillStyle = rgb(colors, Math.log(Math.max(v, low) / low) / Math.log(high / low));
      brush.fillRect(Math.floor(left), Math.floor(top), Math.ceil(right) - Math.floor(left), Math.ceil(canvas.height / layers) + 1);
    }
  });
  const cursor = add(holder, "i");
  cursor.move = at => { cursor.style.left = `${100 * Math.min(1, Math.max(0, (at - from) / (to - from)))}%`; };
  const place = event => {
    const room = holder.getBoundingClientRect(), at = from + (to - from) * (event.clientX - room.left) / room.width;
    const row = steps.reduce((best, s, i) => Math.abs(s - at) < Math.abs(steps[best] - at) ? i : best, 0);
    return [row, Math.max(0, Math.min(layers - 1, Math.floor(layers * (1 - (event.clientY - room.top) / room.height))))];
  };
  holder.addEventListener("pointermove", event => {
    const [row, layer] = place(event);
    tip(event.pageX, event.pageY, `${blockName(layer)}, step ${steps[row]}`, [[line, cell(row, layer)]]);
  });
  holder.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  holder.addEventListener("pointerdown", event => goTo(steps[place(event)[0]]));
}

// ---- values under the pointer ---------------------------------------------------------------------------------

function tip(x, y, title, rows) {
  const box = $("tip"), most = 14;
  box.replaceChildren();
  add(box, "div", { class: "soft" }, title);
  const table = add(box, "table");
  for (const [line, v, what = ""] of rows.slice(0, most)) {
    const row = add(table, "tr"), name = add(row, "td");
    swatch(name, line.group);
    add(name, "span", {}, nameOf(line) + what);
    add(row, "td", {}, text(v));
  }
  if (rows.length > most) add(box, "div", { class: "soft" }, `and ${rows.length - most} more`);
  box.hidden = false;
  const room = document.documentElement.clientWidth, { width, height } = box.getBoundingClientRect();
  box.style.left = `${Math.max(4, x + 16 + width > room ? x - width - 16 : x + 16)}px`;
  box.style.top = `${Math.max(scrollY + 4, Math.min(y + 14, scrollY + innerHeight - height - 6))}px`;
}

// Marks and says what stands at one place of a chart.
function hover(name, place) {
  const chart = charts[name];
  chart.svg.querySelectorAll(".mark").forEach(mark => mark.remove());
  state.hover = place === null ? null : { name, place };
  if (place === null) { $("tip").hidden = true; return; }
  const x = chart.x(place), rows = chart.at(place).sort((a, b) => b[1] - a[1]), room = chart.svg.getBoundingClientRect();
  add(chart.svg, "line", { class: "cursor mark", x1: x, x2: x, y1: chart.top, y2: chart.bottom });
  for (const [line, v] of rows)
    if (Number.isFinite(v)) add(chart.svg, "circle", { class: "point mark", r: 4.5, fill: line.group.color, cx: x, cy: chart.y(v) });
  tip(room.left + scrollX + x, room.top + scrollY + chart.top, chart.word(place) + (name === "loss" ? "" : `, step ${step()}`), rows);
}

function listen(name) {
  const svg = $(name).querySelector("svg");
  const place = event => {
    const at = charts[name].xBack(event.clientX - svg.getBoundingClientRect().left);
    return charts[name].places.reduce((best, p) => Math.abs(p - at) < Math.abs(best - at) ? p : best);
  };
  svg.addEventListener("pointermove", event => {
    hover(name, place(event));
    if (name === "loss" && event.buttons) goTo(place(event));
  });
  svg.addEventListener("pointerleave", () => hover(name, null));
  svg.addEventListener("blur", () => hover(name, null));
  svg.addEventListener("pointerdown", event => name === "loss" ? goTo(place(event)) : hover(name, place(event)));
  svg.addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], { places } = charts[name];
    if (event.key === "Escape") hover(name, null);
    if (!by) return;
    event.preventDefault();
    const now = name === "loss" ? rowAt(places, step()) : state.hover?.name === name ? places.indexOf(state.hover.place) : -by;
    const next = places[Math.max(0, Math.min(places.length - 1, now + by))];
    if (name === "loss") goTo(next);
    hover(name, next);
  });
}

// ---- switches -------------------------------------------------------------------------------------------------

let waiting = 0, stale = false;
function redraw(all) {
  stale ||= all;
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    drawDepth("grad");
    drawDepth("rms");
    if (stale) { drawLoss(); drawMaps(); }
    stale = false;
    const now = step();
    $("step").value = state.at;
    $("step").setAttribute("aria-valuetext", `step ${now}`);
    $("now").textContent = `step ${now}`;
    document.querySelectorAll(".map i").forEach(cursor => cursor.move(now));
    if (charts.loss?.cursor) for (const end of ["x1", "x2"]) charts.loss.cursor.setAttribute(end, charts.loss.x(now));
    if (state.hover && !$(state.hover.name).hidden) hover(state.hover.name, state.hover.place);
    clearTimeout(state.saved);  // the address keeps the step for a reload; browsers forbid writing it at every frame
    state.saved = setTimeout(() => location.replace(`#step=${now}&site=${state.site}`), 500);
  });
}

function goTo(at) {
  if (page.steps.length) state.at = rowAt(page.steps, at);
  redraw(false);
}

function play(on) {
  clearInterval(state.playing);
  state.playing = on ? setInterval(() => {
    if (state.at === page.steps.length - 1) return play(false);
    state.at++;
    redraw(false);
  }, Math.max(40, Math.min(250, 8000 / page.steps.length))) : 0;
  if (on && state.at === page.steps.length - 1) state.at = 0;
  $("play").textContent = on ? "❚❚ pause" : "▶ play";
  $("play").setAttribute("aria-pressed", on);
  redraw(false);
}

function checkbox(parent, label, set, entry, group) {
  const outer = add(parent, "label"), box = add(outer, "input", { type: "checkbox" });
  box.checked = true;
  if (group) swatch(outer, group);
  add(outer, "span", {}, label);
  box.addEventListener("change", () => { box.checked ? set.delete(entry) : set.add(entry); redraw(true); });
}

function start() {
  $("player").hidden = false;
  document.querySelectorAll("details.still").forEach(still => { still.open = false; });
  const sites = [...new Set(page.runs.flatMap(run => Object.keys(run.sites)))], seeds = [...new Set(page.runs.map(run => run.seed))];
  for (const site of sites) add($("site"), "option", {}, site);
  page.groups.forEach((group, i) => checkbox($("runs"), group.legend, state.off, i, group));
  if (seeds.length > 1) for (const seed of seeds) checkbox($("runs"), `seed ${seed}`, state.offSeeds, seed);
  $("seeds").parentNode.hidden = !page.groups.some(group => group.seeds > 1);
  $("steps").hidden = page.steps.length < 2;
  for (const name of ["site", "show", "unit", "scale", "seeds"])
    $(name).addEventListener("change", () => { state[name] = $(name).value; redraw(true); });
  $("step").max = page.steps.length - 1;
  $("step").addEventListener("input", () => { state.at = Number($("step").value); redraw(false); });
  $("play").addEventListener("click", () => play(!state.playing));
  document.addEventListener("keydown", event => {
    if (event.key !== " " || /^(INPUT|SELECT|BUTTON|SUMMARY)$/.test(event.target.tagName)) return;
    event.preventDefault();
    play(!state.playing);
  });
  const asked = new URLSearchParams(location.hash.slice(1));
  state.at = asked.has("step") ? rowAt(page.steps, Number(asked.get("step"))) : Math.max(0, page.steps.length - 1);
  if (sites.includes(asked.get("site"))) state.site = $("site").value = asked.get("site");
  for (const name of ["grad", "rms", "loss"]) listen(name);
  addEventListener("resize", () => redraw(true));
  redraw(true);
}

start();
