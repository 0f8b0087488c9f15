
// What the page shows is one `state`; every change of it ends in `redraw`. No library, nothing fetched, no style attributes:
// the page's policy allows neither. charts.js stands before it in the same script.

const page = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const NAMES = { grad: "gradient rms", rms: "activation rms" };
const UNITS = { grad: "nats per unit", rms: "units" };
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

// The width that names beside the right ends of lines take, 0 where they would not fit.
function nameRoom(svg, drawn) {
  const longest = Math.max(...drawn.map(line => nameOf(line).length));
  const fits = drawn.length > 1 && longest <= 24 && 15 * drawn.length < svg.clientHeight - 40 && svg.clientWidth > 150 + 8 * longest;
  return fits ? 8 * longest + 8 : 0;
}

// ---- layers ---------------------------------------------------------------------------------------------------

// The limits of an axis over all steps, so that it stands still while they pass.
const limits = new Map();
function range(name) {
  const key = [name, state.site, state.unit, state.scale, [...state.off], [...state.offSeeds]].join("|");
  if (!limits.has(key)) {
    let low = Infinity, high = 0;
    for (const run of page.runs.filter(shown))
      for (let row = 0; row < run.steps.length; row++)
        for (let layer = 0; layer < run.layers; layer++) {
          const v = value(run, name, row, layer);
          if (v > 0 && v < Infinity) { low = Math.min(low, v); high = Math.max(high, v); }
        }
    high ||= 1;
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
    if (stale) drawLoss();
    stale = false;
    const now = step();
    $("step").value = state.at;
    $("step").setAttribute("aria-valuetext", `step ${now}`);
    $("now").textContent = `step ${now}`;
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
  state.at = asked.has("step") ? Math.max(0, rowAt(page.steps, Number(asked.get("step")))) : 0;
  if (sites.includes(asked.get("site"))) state.site = $("site").value = asked.get("site");
  for (const name of ["grad", "rms", "loss"]) listen(name);
  addEventListener("resize", () => redraw(true));
  redraw(true);
}

start();
