"""Pictures of curves against the block or the step: what a picture shows is a Picture, and `plot` draws any of them."""

import math
from collections import namedtuple

from lib.base.command import ScriptError
from lib.compare.groups import shared_settings
from lib.figures.drawing import drawing
from lib.figures.layout import end_names, facets, group_handles, new_figure, split_by_values
from lib.figures.panels import (band, block_ticks, draw, end_mark, last_point, name_ends, scale_y, set_panel_titles,
                                style_legend, whole_x, write_unit)
from lib.logs import np
from lib.logs.sites import FIRST

# What a panel shows: `value`, the name of an attribute of what `read` returns (such as those of sites.py); it holds an
# array (steps, layers 0..L) or, without `blocks`, (steps). The series of a group of runs are one line, their mean,
# with a band from the least to the largest: many tensors of a run do not fit a Picture (plot_heatmap.py draws its own).
# `log`: whether the axis is logarithmic (None: if values span decades); `blocks`: those drawn against the step, the
# first one thick, a second one thin; −1 is the last.
Measure = namedtuple("Measure", "name value unit log blocks", defaults=[()])
# `read(run)` gives the list of a run's series; `first`: the first block with values; `by_measure`: the panels of a
# measure follow one another and share a scale (else panels of one step or training do).
# `steps`: of the panels by depth, unless others are asked for.
Picture = namedtuple("Picture", "title read measures first by_measure steps", defaults=[0, False, (None,)])
# A panel as data. `curves`: list of Curve; `thin`: the names of the thick and the thin line, if there are both.
Panel = namedtuple("Panel", "measure title by_step curves thin", defaults=[()])
# The line of a group: `rows`, an array (series, x); `ends`: the last finite points of diverged runs.
Curve = namedtuple("Curve", "group x rows ends is_thin", defaults=[(), False])


def panels_of(picture, groups, steps, over_time=True):
    """The list of a picture's panels, in the order of reading: each measure by depth at each of `steps` for each of
    layout.facets and, `over_time`, during training, if more than one step was logged and there is one facet."""
    series = {group: sum(map(picture.read, group.runs), []) for group in groups}
    every, faceted = sum(series.values(), []), facets(groups)
    has_several = max(s.steps.size for s in every) > 1
    has_time = over_time and len(faceted) == 1 and has_several
    steps = steps if has_several else steps[-1:]

    def by_depth(measure, facet, members, step):
        when = [] if len(faceted) > 1 and len(steps) == 1 else [when_shown(every, step)]  # else in the subtitle
        curves = []
        for group in members:
            rows = np.stack([getattr(s, measure.value)[s.index(step)] for s in series[group]])
            curves.append(Curve(group, np.arange(rows.shape[1]), rows))
        return Panel(measure, ", ".join([f"{measure.name} by depth", *filter(None, [facet]), *when]), False, curves)

    rows = [(by_depth, facet, members, step) for facet, members in faceted for step in steps]
    if not picture.measures[0].blocks:
        rows = [(by_step, facet, {group: series[group] for group in members}) for facet, members in faceted]
    elif has_time:
        rows.append((by_step, "", series))
    if picture.by_measure:
        return [make(measure, *row) for measure in picture.measures for make, *row in rows]
    return [make(measure, *row) for make, *row in rows for measure in picture.measures]


def by_step(measure, facet, series):
    """The panel of a measure against the step. `series`: {group: its series}."""
    depths = {getattr(s, measure.value).shape[1] - 1 for s in sum(series.values(), [])} if measure.blocks else set()
    blocks = measure.blocks[:1] if depths == {1} else measure.blocks or (None,)
    last = f"block {max(depths, default=0)}" if len(depths) == 1 else "last block"
    title = f"{measure.name}, {facet}" if facet else measure.name
    if measure.blocks:
        names = [last if block == -1 else "block 1" for block in blocks]
        words = names[0]
        if len(names) > 1:
            words = f"blocks 1 and {max(depths)}" if len(depths) == 1 else "first and last block"
        title = f"{measure.name} during training, {words}"
    curves = []
    for group, members in series.items():
        steps = np.unique(np.concatenate([s.steps for s in members]))
        for block in blocks:
            rows = np.full((len(members), steps.size), np.nan)  # as runs are logged at their own steps
            for row, s in zip(rows, members):
                values = getattr(s, measure.value)
                row[np.searchsorted(steps, s.steps)] = values if block is None else values[:, block]
            ends = [last_point(steps, band(rows[[s.run is run for s in members]])[0]) for run in group.diverged]
            curves.append(Curve(group, steps, rows, list(filter(None, ends)), block is not blocks[0]))
    return Panel(measure, title, True, curves, names if len(blocks) > 1 else ())


def when_shown(series, step):
    """ "at step 200", "last step of each (180–200)", or "at initialisation" for step 0, that of probes: the steps that
    `step` (None: the last; FIRST) is in these series."""
    steps = sorted({int(s.steps[s.index(step)]) for s in series})
    if steps == [0]:
        return "at initialisation"
    if len(steps) == 1:
        return f"at step {steps[0]}"
    return f"{'first' if step == FIRST else 'last'} step of each ({steps[0]}–{steps[-1]})"


# ---- drawing ----------------------------------------------------------------------------------------------------


@drawing
def plot(picture, groups, step=None, panels=None, over_time=True, points=False, overlay=None, subtitle="", handles=None,
         notes=()):
    """The figure of a Picture.

    step       the step or the list of steps of the panels by depth; None: those of the picture
    panels     the numbers of the panels to draw, counted from 1 in the order of reading; None: all
    over_time  whether to draw panels of training
    points     draw points instead of lines by depth
    overlay    a function (axes, Panel) that draws more, and returns the list of the values drawn
    subtitle   text to add to the subtitle
    handles    a function that changes the list of the legend's handles
    notes      lines below the panels"""
    steps = step if isinstance(step, (list, tuple)) else picture.steps if step is None else [step]
    shown = panels_of(picture, groups, steps, over_time)
    columns = 3 if picture.by_measure and len(shown) % (3 * len(picture.measures)) == 0 else 2
    shown = chosen(shown, panels)
    columns = min(columns, len(shown))
    drawn, missing = split_by_values(groups, lambda group: any(
        np.isfinite(curve.rows).any() for panel in shown for curve in panel.curves if curve.group is group))
    names, entries = end_names(groups), group_handles(drawn)
    figure, axes = new_figure(math.ceil(len(shown) / columns), columns, 3.45, picture.title,
                              shared_settings(groups) + subtitle, handles(entries) if handles else entries, names=names,
                              notes=[*notes, *missing], panels=len(shown))
    for axis, panel in zip(axes, shown):
        draw_curves(axis, panel, picture.first, points)
    scales = {}  # {what has one scale: its panels}
    for axis, panel in zip(axes, shown):
        scales.setdefault((panel.measure.unit, panel.by_step and not picture.by_measure), []).append((axis, panel))
    for alike in scales.values():
        values = [curve.rows for _, panel in alike for curve in panel.curves]
        values += [more for axis, panel in alike if overlay for more in overlay(axis, panel)]
        for axis, panel in alike:
            scale_y(axis, values, panel.measure.log)
            if panel.thin:
                style_legend(axis, panel.thin)
            for curve in panel.curves:
                for end in curve.ends:
                    end_mark(axis, end, curve.group.color)
            write_unit(axis, panel.measure.unit)
            name_ends(axis, names)
    set_panel_titles(axes, [panel.title for panel in shown])
    for axis in axes[len(shown):]:
        axis.remove()
    return figure


def chosen(panels, numbers):
    """The panels of these numbers, counted from 1; all for None."""
    if numbers is None:
        return panels
    if not numbers or not all(1 <= number <= len(panels) for number in numbers):
        titles = "; ".join(f"{i} {panel.title}" for i, panel in enumerate(panels, start=1))
        raise ScriptError(f"--panels: got {','.join(map(str, numbers))}; expected numbers of {titles}")
    return [panels[number - 1] for number in numbers]


def draw_curves(axes, panel, first, points):
    """Draws the curves of a panel, and sets its x axis."""
    for curve in panel.curves:
        draw(axes, curve.x, curve.rows, curve.group, curve.group.marker, second=curve.is_thin,
             line=panel.by_step or not points)
    last = max(curve.x[-1] for curve in panel.curves)
    whole_x(axes, last)
    if not panel.by_step:
        axes.set_xlim(left=first - 0.02 * last - 0.05)
        axes.set_xticks(sorted({max(tick, first) for tick in block_ticks(last)}))
    axes.set_xlabel("step" if panel.by_step else "block" if first else "block (0 = embedding output)")
