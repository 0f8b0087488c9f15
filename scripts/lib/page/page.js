"use strict";
// The player. It shows `state`, and every change of that ends in `redraw`. It uses no library and fetches nothing.

const page = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 58, right: 14, top: 14, bottom: 38 };  // pixels around a chart's plot
const LEVEL_NAMES = 96;  // pixels right of the loss
const state = { at: 0, site: "stream", boxes: [], playing: 0, saved: 0 };
const panels = [...new Set(page.groups.map(group => group.panel))];
const charts = { grad: [], rms: [], loss: [] };  // a chart a panel

// ---- data -----------------------------------------------------------------------------------------------------

const step = () => page.steps[state.at] ?? 0;
const shown = panel => page.groups.filter(group => group.panel === panels[panel] && state.boxes.every(({ what, name, box }) => group[what] !== name || box.checked));

// The row of a list of steps to show at step `at`: the last that is not after it, or the first.
const rowAt = (steps, at) => Math.max(0, steps.findLastIndex(step => step <= at));

// A group's lines over the layers, [mean, least, most] or [mean], of a quantity at the step; none if it lacks the site.
const layersOf = (group, name) => group.sites[state.site]?.[name][rowAt(group.steps, step())] ?? [[]];

// ---- charts ---------------------------------------------------------------------------------------------------

function add(parent, name, attributes = {}, content = "") {
  const made = document.createElementNS(name === "svg" ? SVG : parent.namespaceURI, name);
  for (const [key, v] of Object.entries(attributes)) made.setAttribute(key, v);
  made.textContent = content;
  parent.appendChild(made);
  return made;
}

const text = v => v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5) ? Number(v.toPrecision(3)).toExponential().replace("e+", "e") : String(Number(v.toPrecision(3)));

function swatch(parent, group) {
  const svg = add(parent, "svg", { class: "key", viewBox: "0 0 24 10" });
  add(svg, "line", { x1: 0, x2: 24, y1: 5, y2: 5, "stroke-width": 3, stroke: group.color, "stroke-dasharray": group.dash });
}

// An empty chart: grid, ticks, and the functions x and y from values to pixels; y stays within the plot. `marks`: the
// numbers of marks at its upper and at its lower edge.
function frame(kind, panel, xAxis, yAxis, xName, room = MARGIN.right) {
  const figure = $(kind).querySelectorAll("figure")[panel], svg = figure.querySelector("svg");
  const width = svg.clientWidth || 600, height = svg.clientHeight || 300;
  svg.replaceChildren();
  figure.querySelector("figcaption").textContent = panels[panel];
  const [left, right, top, bottom] = [MARGIN.left, width - room, MARGIN.top, height - MARGIN.bottom];
  const log = yAxis.kind === "log", scale = log ? Math.log10 : v => v, clamp = y => Math.min(bottom, Math.max(top, y));
  const chart = { svg, top, bottom, left, right, marks: [0, 0], low: yAxis.low, high: yAxis.high,
    x: v => left + (right - left) * (v - xAxis.low) / (xAxis.high - xAxis.low),
    y: v => log && v <= 0 ? bottom : clamp(bottom - (bottom - top) * (scale(v) - scale(yAxis.low)) / (scale(yAxis.high) - scale(yAxis.low))) };
  for (const [v, words] of yAxis.ticks) {
    add(svg, "line", { class: "grid", x1: left, x2: right, y1: chart.y(v), y2: chart.y(v) });
    add(svg, "text", { x: left - 7, y: chart.y(v) + 4, "text-anchor": "end" }, words);
  }
  for (const [v, words] of xAxis.ticks) {
    add(svg, "line", { class: "grid", x1: chart.x(v), x2: chart.x(v), y1: top, y2: bottom });
    add(svg, "text", { x: chart.x(v), y: bottom + 17, "text-anchor": "middle" }, words);
  }
  add(svg, "text", { x: right, y: height - 4, "text-anchor": "end" }, xName);
  return chart;
}

// A line through the means at these places, the band between the two other lists, and marks of what lies beyond the axis;
// gaps if nothing is finite.
function curve(chart, places, [means, least, most], group) {
  const parts = [[]];
  markBeyond(chart, places, least ? [means, least, most] : [means], group);
  means.forEach((v, i) => v === null ? parts.push([]) : parts.at(-1).push(i));
  const path = (values, part) => part.map(i => `${chart.x(places[i]).toFixed(1)},${chart.y(values[i]).toFixed(1)}`).join(" ");
  for (const part of parts.filter(part => part.length)) {
    if (least) add(chart.svg, "polygon", { class: "band", fill: group.color, stroke: group.color, points: path(least, part) + " " + path(most, [...part].reverse()) });
    add(chart.svg, "polyline", { class: "curve", stroke: group.color, "stroke-dasharray": group.dash, points: path(means, part) });
    if (part.length === 1) add(chart.svg, "circle", { class: "point", r: 4, fill: group.color, cx: chart.x(places[part[0]]), cy: chart.y(means[part[0]]) });
  }
}

// Arrows at the edges, with the largest and the smallest of the values at these places that lie beyond the axis.
function markBeyond(chart, places, lines, group) {
  const values = lines.flat(), finite = values.filter(v => v !== null), most = Math.max(...finite), least = Math.min(...finite);
  const write = (v, y, arrow) => add(chart.svg, "text", { class: "outside", fill: group.color, y,
    x: Math.max(chart.left, chart.x(places[values.indexOf(v) % lines[0].length]) - 5) }, `${arrow} ${text(v)}`);
  if (most > chart.high) write(most, chart.top + 11 + 14 * chart.marks[0]++, "▲");
  if (least < chart.low) write(least, chart.bottom - 4 - 14 * chart.marks[1]++, "▼");
}

function drawDepth(name, panel) {
  const groups = shown(panel);
  const chart = charts[name][panel] = frame(name, panel, page.blocks, page.layers[state.site][name], "block (0: embedding output)");
  chart.places = Array.from({ length: page.blocks.high + 1 }, (_, layer) => layer);
  chart.title = layer => `${layer ? `block ${layer}` : "embedding output"}, step ${step()}`;
  chart.values = layer => groups.map(group => [group, "", layersOf(group, name)[0][layer] ?? null]);
  for (const group of groups) curve(chart, chart.places, layersOf(group, name), group);
}

function drawLoss(panel) {
  const groups = shown(panel).filter(group => group.losses);
  const chart = charts.loss[panel] = frame("loss", panel, page.x, page.loss, "step", page.levels.length ? LEVEL_NAMES : MARGIN.right);
  const { svg } = chart;
  let free = 0;  // the height from which no name is written yet
  for (const [name, level] of page.levels) {
    add(svg, "line", { class: "level", x1: chart.left, x2: chart.right, y1: chart.y(level), y2: chart.y(level) });
    free = Math.max(chart.y(level) + 4, free);
    add(svg, "text", { x: chart.right + 8, y: free }, name);
    free += 14;
  }
  for (const { losses, ...group } of groups) {
    curve(chart, losses.x, losses.train, group);
    markBeyond(chart, losses.at, losses.val, group);
    losses.at.forEach((place, i) => add(svg, "path", { class: "point", fill: group.color, d: `M${chart.x(place) - 5},${chart.y(losses.val[0][i])}l5,-5l5,5l-5,5z` }));
    for (const [index, loss] of losses.ends)
      add(svg, "text", { class: "name", x: chart.x(losses.x[index]), y: chart.y(loss) + 5, "text-anchor": "middle" }, "✕");
  }
  add(svg, "line", { class: "cursor", x1: chart.x(step()), x2: chart.x(step()), y1: chart.top, y2: chart.bottom });
  chart.places = groups.flatMap(({ losses }) => [...losses.x, ...losses.at]);
  chart.title = place => `step ${place}`;
  chart.values = place => groups.flatMap(group => [["x", "train", ""], ["at", "val", " (validation)"]].map(([steps, kind, what]) =>
    [group, what, group.losses[kind][0][group.losses[steps].findLastIndex(at => at <= place)] ?? null]));
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
  $("step").setAttribute("aria-valuetext", $("now").textContent);
  clearTimeout(state.saved);  // the address keeps the step for a reload; browsers forbid writing it at every frame
  state.saved = setTimeout(() => location.replace(`#step=${step()}&site=${state.site}`), 500);
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

// A row of switches for what colours or dashes mean, with "all" and "none" if they are many.
function switches(what) {
  const names = new Map(page.groups.map(group => [group[what], group])), dashed = new Set(page.groups.map(group => group.rest)).size > 1;
  if (names.size < 2) return;
  const row = add($("switches"), "fieldset");
  for (const [word, checked] of names.size > 2 ? [["all", true], ["none", false]] : [])
    add(row, "button", { type: "button", "aria-label": `${word}: ${[...names.keys()].join(", ")}` }, word).addEventListener("click", () => {
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
  const subject = { grad: "gradient by layer", rms: "activation by layer", loss: "loss" }[kind];
  const svg = add(figure, "svg", { class: "chart", role: "img", "aria-label": [subject, panels[panel]].filter(Boolean).join(", ") });
  svg.addEventListener("pointermove", event => hover(charts[kind][panel], event));
  svg.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  if (kind === "loss") svg.addEventListener("pointerdown", event => {
    play(false);
    goTo(nearest(charts.loss[panel], event));
  });
}

function start() {
  $("player").hidden = false;
  for (const site of Object.keys(page.layers)) add($("site"), "option", {}, site);
  ["lead", "rest"].forEach(switches);
  for (const kind of Object.keys(charts)) {
    $(kind).classList.toggle("several", panels.length > 1);
    for (const panel of panels.keys()) chartOf(kind, panel);
  }
  $("grad").hidden = $("rms").hidden = !page.steps.length;
  $("steps").hidden = page.steps.length < 2;
  $("loss").hidden = page.groups.every(group => !group.losses);
  $("step").max = page.steps.length - 1;
  $("step").addEventListener("input", () => {
    state.at = Number($("step").value);
    play(false);
  });
  $("play").addEventListener("click", () => play(!state.playing));
  addEventListener("resize", redraw);
  const asked = new URLSearchParams(location.hash.slice(1));
  $("site").addEventListener("change", () => { state.site = $("site").value; redraw(); });
  if (asked.get("site") in page.layers) state.site = $("site").value = asked.get("site");
  goTo(Number(asked.get("step")));
  play(!asked.has("step") && page.steps.length > 1 && !matchMedia("(prefers-reduced-motion: reduce)").matches);
}

start();
