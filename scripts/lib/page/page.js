"use strict";
// The player. It shows `state`, and every change of that ends in `redraw`. It uses no library and fetches nothing.

const page = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 58, right: 14, top: 14, bottom: 38 };  // pixels around a chart's plot
const LEVEL_NAMES = 96;  // pixels right of the loss
const state = { at: 0, site: "stream", axis: "step", boxes: [], playing: 0, saved: 0 };
const panels = [...new Set(page.groups.map(group => group.panel))];
const charts = { grad: [], rms: [], loss: [] };  // a chart a panel

// ---- data -----------------------------------------------------------------------------------------------------

const step = () => page.steps[state.at] ?? 0;
const on = group => state.boxes.every(({ what, name, box }) => group[what] !== name || box.checked);
const inPanel = panel => page.groups.map((group, i) => ({ ...group, runs: page.runs.filter(run => run.group === i) }))
  .filter(group => group.panel === panels[panel]);

// The row of a list of steps to show at step `at`: the last that is not after it, or the first.
function rowAt(steps, at) {
  let row = 0;
  while (row + 1 < steps.length && steps[row + 1] <= at) row++;
  return row;
}

// A site's value at a row of the run's steps and a layer; null if it is missing or not finite.
const value = (run, name, row, layer) => run.sites[state.site]?.[name][row]?.[layer] ?? null;

// [mean, least, most] of the finite values; nulls if there are none.
function spread(values) {
  const good = values.filter(v => v !== null);
  return good.length ? [good.reduce((a, b) => a + b) / good.length, Math.min(...good), Math.max(...good)] : [null, null, null];
}

// [[x, mean, least, most, step]] of runs' lists of losses, merged step by step; x is the mean over the runs.
function merged(lists) {
  const table = new Map();
  for (const row of lists.flat()) table.set(row[0], [...(table.get(row[0]) ?? []), row]);
  const column = AXES[state.axis].column;
  return [...table.keys()].sort((a, b) => a - b).map(at => {
    const rows = table.get(at);
    return [spread(rows.map(row => row[column]))[0], ...spread(rows.map(row => row[1])), at];
  });
}

// ---- charts ---------------------------------------------------------------------------------------------------

function add(parent, name, attributes = {}, content = "") {
  const made = document.createElementNS(parent.namespaceURI, name);
  for (const [key, v] of Object.entries(attributes)) made.setAttribute(key, v);
  made.textContent = content;
  parent.appendChild(made);
  return made;
}

const text = v => v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5) ? Number(v.toPrecision(3)).toExponential().replace("e+", "e") : String(Number(v.toPrecision(3)));

// A tick's text: powers of ten as in the pictures.
const tick = v => text(v).replace(/^1e(-?\d+)$/, (_, power) => "10" + [...power].map(c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join(""));

// The x axes of the loss: the index of the value in a row of a run's losses, and its text.
const short = v => v >= 1e6 ? `${text(v / 1e6)}M` : v >= 1e4 ? `${text(v / 1e3)}k` : text(v);
const AXES = {
  step: { column: 0, name: "step", tick: v => Number.isInteger(v) ? v : null, title: v => `step ${v}` },
  tokens: { column: 2, name: "tokens", tick: short, title: v => `${short(v)} tokens` },
  seconds: { column: 3, name: "seconds of training", tick: text, title: v => `${text(v)} seconds` },
};

function swatch(parent, group) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "key");
  svg.setAttribute("viewBox", "0 0 24 10");
  add(svg, "line", { x1: 0, x2: 24, y1: 5, y2: 5, "stroke-width": 3, stroke: group.color, "stroke-dasharray": group.dash });
  parent.appendChild(svg);
}

// Round numbers of an axis, at most about `most`: powers of ten of a logarithmic one, with 2 and 5 if they are few.
function ticks(low, high, log, most) {
  const out = [];
  if (log) {
    const decades = Math.log10(high / low), every = Math.ceil(decades / most);
    for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++)
      for (const factor of decades < 2.2 ? [1, 2, 5] : [1])
        if (factor * 10 ** e >= low && factor * 10 ** e <= high && e % every === 0) out.push(factor * 10 ** e);
    return out;
  }
  const rough = (high - low) / most, unit = 10 ** Math.floor(Math.log10(rough));
  const apart = unit * [1, 2, 5, 10].find(f => f * unit >= rough);
  for (let i = Math.ceil(low / apart - 1e-9); i * apart <= high + 1e-9 * apart; i++) out.push(i * apart);
  return out;
}

// An empty chart: grid, ticks, and the functions x and y from values to pixels; y stays within the plot. `marks`: the
// numbers of marks at its upper and at its lower edge.
function frame(kind, panel, xs, ys, log, xName, note = "", room = MARGIN.right, xTick = AXES.step.tick) {
  const figure = $(kind).querySelectorAll("figure")[panel], svg = figure.querySelector("svg");
  figure.hidden = state.boxes.some(({ what, name, box }) => what === "panel" && name === panels[panel] && !box.checked);
  const width = svg.clientWidth || 600, height = svg.clientHeight || 300;
  svg.replaceChildren();
  figure.querySelector("figcaption").textContent = [panels[panel], note].filter(Boolean).join(" · ");
  const [left, right, top, bottom] = [MARGIN.left, width - room, MARGIN.top, height - MARGIN.bottom];
  const scale = log ? Math.log10 : v => v, clamp = y => Math.min(bottom, Math.max(top, y));
  const chart = { svg, top, bottom, left, right, low: ys[0], high: ys[1], marks: [0, 0],
    x: v => left + (right - left) * (v - xs[0]) / (xs[1] - xs[0]),
    y: v => log && v <= 0 ? bottom : clamp(bottom - (bottom - top) * (scale(v) - scale(ys[0])) / (scale(ys[1]) - scale(ys[0]))) };
  for (const v of ticks(...ys, log, 6)) {
    add(svg, "line", { class: "grid", x1: left, x2: right, y1: chart.y(v), y2: chart.y(v) });
    add(svg, "text", { x: left - 7, y: chart.y(v) + 4, "text-anchor": "end" }, tick(v));
  }
  for (const v of ticks(...xs, false, Math.max(3, Math.min(10, (right - left) / 50))).filter(v => xTick(v) !== null)) {
    add(svg, "line", { class: "grid", x1: chart.x(v), x2: chart.x(v), y1: top, y2: bottom });
    add(svg, "text", { x: chart.x(v), y: bottom + 17, "text-anchor": "middle" }, xTick(v));
  }
  add(svg, "text", { x: right, y: height - 4, "text-anchor": "end" }, xName);
  return chart;
}

// A line through [x, mean, least, most] with the band of a group's seeds; gaps if nothing is finite.
function curve(chart, points, group) {
  const parts = [[]];
  for (const p of points) p[1] === null ? parts.push([]) : parts.at(-1).push(p);
  for (const part of parts.filter(p => p.length)) {
    const path = (k, list) => list.map(p => `${chart.x(p[0]).toFixed(1)},${chart.y(p[k]).toFixed(1)}`).join(" ");
    if (group.runs.length > 1) add(chart.svg, "polygon", { class: "band", fill: group.color, points: path(2, part) + " " + path(3, part.reverse()) });
    add(chart.svg, "polyline", { class: "curve", stroke: group.color, "stroke-dasharray": group.dash, points: path(1, part) });
    if (part.length === 1) add(chart.svg, "circle", { class: "point", r: 4, fill: group.color, cx: chart.x(part[0][0]), cy: chart.y(part[0][1]) });
  }
  markOutside(chart, points, group);
}

// An arrow at the edge has the largest or the smallest of a group's values outside the limits.
function markOutside(chart, points, group) {
  const good = points.filter(p => p[1] !== null);
  const mark = (list, column, sign, y) => {
    if (!list.length) return;
    const far = list.reduce((a, b) => sign * b[column] > sign * a[column] ? b : a);
    add(chart.svg, "text", { class: "outside", fill: group.color, x: Math.max(chart.left, chart.x(far[0]) - 5), y },
      `${sign > 0 ? "▲" : "▼"} ${text(far[column])}`);
  };
  const above = good.filter(p => p[3] > chart.high), below = good.filter(p => p[2] < chart.low);
  mark(above, 3, 1, chart.top + 11 + 14 * chart.marks[0]);
  mark(below, 2, -1, chart.bottom - 4 - 14 * chart.marks[1]);
  chart.marks = [chart.marks[0] + (above.length > 0), chart.marks[1] + (below.length > 0)];
}

// ---- the three charts -----------------------------------------------------------------------------------------

// The limits of an axis over all steps, so that they are the same at every step.
const limits = {};
function range(name) {
  const key = name + state.site;
  if (!limits[key]) {
    const values = page.runs.flatMap(run => run.sites[state.site]?.[name] ?? []).flat().filter(v => v > 0);
    const high = values.reduce((a, b) => Math.max(a, b), 0) || 1, low = Math.min(values.reduce((a, b) => Math.min(a, b), Infinity), high / 1.5);
    const pad = Math.max((high / low) ** 0.06, 1.08);
    limits[key] = [low / pad, high * pad];
  }
  return limits[key];
}

function drawDepth(name, panel) {
  const all = inPanel(panel), groups = all.filter(on), deepest = Math.max(1, ...all.flatMap(group => group.runs.map(run => run.layers - 1)));
  const lost = groups.some(group => group.runs.some(run => run.diverged && run.diverged <= step()));
  const chart = charts[name][panel] = frame(name, panel, [0, deepest], range(name), true, "block (0: embedding output)",
    lost ? "of runs that have diverged: the last step logged" : "");
  const at = (group, layer) => spread(group.runs.map(run => value(run, name, rowAt(run.steps, step()), layer)));
  chart.places = Array.from({ length: deepest + 1 }, (_, layer) => layer);
  chart.title = layer => `${layer ? `block ${layer}` : "embedding output"}, step ${step()}`;
  chart.values = layer => groups.map(group => [group, "", at(group, layer)[0]]);
  for (const group of groups) curve(chart, chart.places.map(layer => [layer, ...at(group, layer)]), group);
}

function drawLoss(panel) {
  const axis = AXES[state.axis], [low, high, log] = page.loss;
  const last = page.runs.flatMap(run => run.train.map(row => row[axis.column])).reduce((a, b) => Math.max(a, b), 0) || 1;
  const levels = Object.entries(page.levels).filter(([, v]) => v > low && v < high).sort((a, b) => b[1] - a[1]);
  const chart = charts.loss[panel] = frame("loss", panel, [0, last], [low, high], log, axis.name, "", levels.length ? LEVEL_NAMES : MARGIN.right,
    axis.tick);
  const { svg } = chart;
  let free = 0;  // the height from which no name is written yet
  for (const [name, level] of levels) {
    add(svg, "line", { class: "level", x1: chart.left, x2: chart.right, y1: chart.y(level), y2: chart.y(level) });
    free = Math.max(chart.y(level) + 4, free);
    add(svg, "text", { x: chart.right + 8, y: free }, `${name} ${level.toFixed(2)}`);
    free += 14;
  }
  const drawn = inPanel(panel).filter(on).map(group => [group, merged(group.runs.map(run => run.train)), merged(group.runs.map(run => run.val))]);
  for (const [group, train, val] of drawn) {
    curve(chart, train, group);
    markOutside(chart, val, group);
    for (const [at, loss] of val.filter(p => p[1] !== null))
      add(svg, "path", { class: "point", fill: group.color, d: `M${chart.x(at) - 5},${chart.y(loss)}l5,-5l5,5l-5,5z` });
    for (const run of group.runs.filter(run => run.diverged)) {
      const end = run.train.findLast(p => p[1] !== null);
      if (end) add(svg, "text", { class: "name", x: chart.x(end[axis.column]), y: chart.y(end[1]) + 5, "text-anchor": "middle" }, "✕");
    }
  }
  const points = drawn.flatMap(([, ...lists]) => lists.flat());
  if (state.axis === "step")  // on other axes a step has several x
    add(svg, "line", { class: "cursor", x1: chart.x(step()), x2: chart.x(step()), y1: chart.top, y2: chart.bottom });
  chart.places = [...new Set(points.map(p => p[0]))].sort((a, b) => a - b);
  chart.stepAt = x => points.find(p => p[0] === x)?.[4] ?? step();
  chart.title = axis.title;
  chart.values = at => drawn.flatMap(([group, ...lists]) => lists.map((list, i) => {
    const before = list.findLast(p => p[0] <= at);
    return [group, i ? " (validation)" : "", before ? before[1] : null];
  }));
}

// ---- values under the pointer ---------------------------------------------------------------------------------

function nearest(chart, event) {
  const x = event.clientX - chart.svg.getBoundingClientRect().left;
  return chart.places.reduce((best, p) => Math.abs(chart.x(p) - x) < Math.abs(chart.x(best) - x) ? p : best, chart.places[0]);
}

function hover(chart, event) {
  const x = nearest(chart, event), tip = $("tip");
  const rows = chart.values(x).filter(row => row[2] !== null).sort((a, b) => b[2] - a[2]);
  tip.replaceChildren();
  tip.hidden = !rows.length;
  add(tip, "div", { class: "soft" }, chart.title(x));
  const table = add(tip, "table");
  for (const [group, what, v] of rows.slice(0, 14)) {
    const row = add(table, "tr"), name = add(row, "td");
    swatch(name, group);
    add(name, "span", {}, group.label + what);
    add(row, "td", {}, text(v));
  }
  tip.style.left = `${Math.max(4, Math.min(event.pageX + 16, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${event.pageY + 14}px`;
}

// ---- switches -------------------------------------------------------------------------------------------------

function redraw() {
  for (const panel of panels.keys()) {
    if (page.steps.length) ["grad", "rms"].forEach(name => drawDepth(name, panel));
    if (!$("loss").hidden) drawLoss(panel);
  }
  $("step").value = state.at;
  $("now").textContent = `step ${step()}`;
  clearTimeout(state.saved);  // the address keeps the step for a reload; browsers forbid writing it at every frame
  state.saved = setTimeout(() => location.replace(`#step=${step()}&site=${state.site}`
    + (state.axis === "step" ? "" : `&axis=${state.axis}`)), 500);
}

function goTo(at) {
  state.at = page.steps.length ? rowAt(page.steps, at) : 0;
  redraw();
}

function play(start) {
  clearInterval(state.playing);
  if (start && state.at === page.steps.length - 1) state.at = 0;
  state.playing = start && setInterval(() => state.at < page.steps.length - 1 ? goTo(page.steps[state.at + 1]) : play(false),
    Math.max(40, Math.min(250, 8000 / page.steps.length)));
  $("play").textContent = start ? "❚❚ pause" : "▶ play";
  redraw();
}

// A row of switches for what colours, dashes or panels mean, with "all" and "none" if they are many.
function switches(what) {
  const names = new Map(page.groups.map(group => [group[what], group])), dashed = new Set(page.groups.map(group => group.rest)).size > 1;
  if (names.size < 2) return;
  const row = add($("switches"), "fieldset");
  for (const [word, checked] of names.size > 2 ? [["all", true], ["none", false]] : [])
    add(row, "button", { type: "button" }, word).addEventListener("click", () => {
      row.querySelectorAll("input").forEach(box => { box.checked = checked; });
      redraw();
    });
  for (const [name, group] of names) {
    const label = add(row, "label"), box = add(label, "input", { type: "checkbox", checked: "" });
    if (what === "lead") swatch(label, dashed ? { ...group, dash: "none" } : group);
    if (what === "rest") swatch(label, { ...group, color: "currentColor" });
    add(label, "span", {}, name || "others");
    box.addEventListener("change", redraw);
    state.boxes.push({ what, name, box });
  }
}

// A panel's chart, with the values under the pointer.
function chartOf(kind, panel) {
  const figure = add($(kind), "figure");
  add(figure, "figcaption");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "chart");
  figure.appendChild(svg);
  svg.addEventListener("pointermove", event => hover(charts[kind][panel], event));
  svg.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  if (kind === "loss") svg.addEventListener("pointerdown", event => {
    play(false);
    goTo(charts.loss[panel].stepAt(nearest(charts.loss[panel], event)));
  });
}

function start() {
  $("player").hidden = false;
  document.querySelectorAll("details.still").forEach(still => { still.open = false; });
  for (const site of new Set(page.runs.flatMap(run => Object.keys(run.sites)))) add($("site"), "option", {}, site);
  ["lead", "rest", "panel"].forEach(switches);
  for (const kind of Object.keys(charts)) {
    $(kind).classList.toggle("several", panels.length > 1);
    for (const panel of panels.keys()) chartOf(kind, panel);
  }
  $("grad").hidden = $("rms").hidden = !page.steps.length;
  $("steps").hidden = page.steps.length < 2;
  $("loss").hidden = page.runs.every(run => !run.train.length);
  $("step").max = page.steps.length - 1;
  $("step").addEventListener("input", () => {
    state.at = Number($("step").value);
    play(false);
  });
  $("site").addEventListener("change", () => { state.site = $("site").value; redraw(); });
  $("axis").addEventListener("change", () => { state.axis = $("axis").value; redraw(); });
  $("axis").parentElement.hidden = $("loss").hidden;
  for (const option of $("axis").options)  // an axis that some run did not log is no choice
    option.disabled = page.runs.some(run => run.train.some(row => row[AXES[option.value].column] === null));
  $("play").addEventListener("click", () => play(!state.playing));
  document.addEventListener("keydown", event => {
    if (event.key !== " " || /^(INPUT|SELECT|BUTTON|SUMMARY)$/.test(event.target.tagName)) return;
    event.preventDefault();
    play(!state.playing);
  });
  addEventListener("resize", redraw);
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has("site")) state.site = $("site").value = asked.get("site");
  if ([...$("axis").options].some(option => option.value === asked.get("axis") && !option.disabled))
    state.axis = $("axis").value = asked.get("axis");
  goTo(Number(asked.get("step")));
  play(!asked.has("step") && page.steps.length > 1 && !matchMedia("(prefers-reduced-motion: reduce)").matches);
}

start();
