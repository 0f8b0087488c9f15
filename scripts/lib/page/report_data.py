"""The panels that the page's script draws: lines, bands, marks, limits and ticks, thinned so that a page of thirty runs
is small."""

import math

from lib.base.command import ScriptError
from lib.figures import plot_loss
from lib.figures.layout import with_diverged
from lib.figures.panels import band, block_ticks, last_point, on_steps, thinned
from lib.figures.scale import Scale, near, scale_between, scale_of
from lib.logs import np
from lib.logs.sites import every_site
from lib.page.report_page import css_dash

MOST_NUMBERS, MOST_LOSSES = 10_000, 300  # of a group: the values of its layers, the places of its training loss
QUANTITIES = ("grad", "rms")


def rounded(values, digits=3):
    """A number, or an array as lists of numbers, with the digits that the page needs; None for what is not finite,
    which JSON cannot hold."""
    if np.ndim(values):
        return [rounded(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None


def layers_of(group):
    """({"steps", "sites": {site: {quantity: for each step a list of the lines over the layers 0 … L: the mean and, of
    several seeds, the ends of their band}}}, {(site, quantity): array of all values}) of a group's runs; empty if none
    has logged its layers."""
    runs = []
    for run in group.runs:
        try:
            runs.append(every_site(run))
        except ScriptError:
            continue
    if not runs:
        return {"steps": [], "sites": {}}, {}
    names = [name for name, site in runs[0].items() if site.steps.size == runs[0]["stream"].steps.size]
    tables = {}
    for name in names:
        seeds = [sites[name] for sites in runs if name in sites]
        for quantity in QUANTITIES:
            steps, tables[name, quantity] = on_steps([s.steps for s in seeds], [getattr(s, quantity) for s in seeds])
    lines = 3 if len(group.runs) > 1 else 1
    shown = thinned(steps.size, MOST_NUMBERS // (2 * lines * tables["stream", "rms"].shape[2] * len(names)))
    sites = {name: {} for name in names}
    for (name, quantity), table in tables.items():
        sites[name][quantity] = rounded(np.stack(band(table[:, shown], log=True)[:lines], axis=1))
    return {"steps": steps[shown].tolist(), "sites": sites}, tables


def losses_of(group, tables, log):
    """{"train", "val": lists of the mean and the ends of its band; "x", "at": their steps; "ends": [(index in x, loss)]
    of diverged runs}. `tables`: {run: as loss_table has it}."""
    losses = plot_loss.losses_of(group, tables, log, MOST_LOSSES)
    ends = [last_point(np.arange(losses.x.size), row) for run, row in zip(group.runs, losses.rows) if run.diverged]
    return {"train": rounded([band(losses.rows, log)[0], losses.low, losses.high], 5),
            "val": rounded([losses.mean, losses.least, losses.most], 5),
            "ends": [(int(index), rounded(loss, 5)) for index, loss in filter(None, ends)],
            "x": losses.x.astype(int).tolist(), "at": losses.at.astype(int).tolist()}


def tables_of(groups):
    """{run: as loss_table has it} of the runs that train."""
    tables = {}
    for run in (run for group in groups for run in group.runs if not run.probe):
        try:
            tables[run] = plot_loss.loss_table(run)
        except ScriptError:
            continue
    return tables


def page_data(groups):
    """All that page.js reads: "groups", their labels, styles and lines; "steps", those of the lines, as many of the
    logged ones as MOST_NUMBERS allows; "blocks", "loss" and "x", scales of axes; "layers": {site:
    {quantity: scale}}; and "levels": [(text, loss)]."""
    layers = {group: layers_of(group) for group in groups}
    tables = tables_of(groups)
    levels = plot_loss.common_levels(tables)
    scale = plot_loss.scale_for(tables, levels)
    sites = {}
    for site, quantity in dict.fromkeys(key for _, values in layers.values() for key in values):
        having = [(group, values[site, quantity]) for group, (_, values) in layers.items()
                  if (site, quantity) in values]
        sound = [values[:, :1] if group.diverged else values for group, values in having]
        values = [near(values, sound) if group.diverged else values for group, values in having]
        sites.setdefault(site, {})[quantity] = (scale_of(values, log=True) or scale_between(0.1, 1, "log"))._asdict()
    deepest = max([1, *(run.value("model.n_layer") for group in groups for run in group.runs)])
    data = []
    for group in groups:
        training = group.restricted_to([run for run in group.runs if run in tables])
        data.append({"label": group.label, "color": group.color, "dash": css_dash(group.dash), "rest": group.rest,
                     "lead": with_diverged(group.lead, groups), "panel": group.panel, **layers[group][0],
                     "losses": losses_of(training, tables, scale.kind == "log") if training.runs else None})
    last = max([1.0, *(table[-1, plot_loss.STEP] for table in tables.values())])
    ticks = [(tick, str(tick)) for tick in block_ticks(deepest)]
    return {"groups": data, "steps": sorted({step for entry in data for step in entry["steps"]}), "layers": sites,
            "blocks": Scale(0, deepest, "linear", ticks)._asdict(), "loss": scale._asdict(),
            "x": scale_between(0, last)._asdict(),
            "levels": sorted(((f"{name} {level:.2f}", level) for name, level in levels.items()
                              if scale.low < level < scale.high), key=lambda pair: -pair[1])}
