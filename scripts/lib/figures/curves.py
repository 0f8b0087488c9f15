"""Pictures of curves against the block or the step: what a picture shows is a Picture, and `plot` draws any of them."""

from collections import namedtuple

from lib.compare.groups import GEOMETRIC, MEAN, shared_settings
from lib.figures.drawing import drawing
from lib.figures.layout import (diverged_handles, facets, group_handles, line_handle, new_figure, scaled,
                                split_by_values)
from lib.figures.panels import (THICK, THIN, band, block_ticks, draw, end_mark, last_point, on_steps, set_panel_titles,
                                set_scale, whole_x, write_unit)
from lib.figures.scale import near, scale_of
from lib.logs import np
from lib.logs.sites import FIRST

# What a panel shows: `value`, the name of an attribute of what `read` returns (such as those of sites.py); it holds an
# array (steps, layers 0..L) or, without `blocks`, (steps). The series of a group of runs are one line, their mean,
# with a band from the least to the largest: many tensors of a run do not fit a Picture (plot_heatmap.py draws its own).
# `log`: whether the axis is logarithmic (None: if values span decades); `blocks`: those drawn against the step, the
# first one thick, a second one thin; −1 is the last. Panels of the same unit share a scale.
Measure = namedtuple("Measure", "name value unit log blocks", defaults=[()])
# `read(run)` gives the list of a run's series: objects with `run`, `steps` and the arrays that measures name, such as
# those of a subclass of LoggedSteps (sites.py), which has them by block; `first`: the first block with values;
# `by_measure`: the panels of a measure follow one another and share a scale (else panels of one step or training do).
# `steps`: of the panels by depth, unless others are asked for.
Picture = namedtuple("Picture", "title read measures first by_measure steps", defaults=[0, False, (None,)])
# A panel as data. `first`: where its x axis begins; `curves`: list of Curve; `thin`: the names of the thick and the
# thin line, if there are both; `extras`: list of Extra; `scale`: of the y axis.
Panel = namedtuple("Panel", "measure title by_step first curves thin extras scale", defaults=[(), (), None])
# The line of a group: `rows`, an array (series, x); `lost`, for each series whether its run diverged; `ends`: the last
# finite points of diverged runs.
Curve = namedtuple("Curve", "group x rows lost ends is_thin", defaults=[(), False])
# A line beside those of the runs: `values` at `x` (None: by block), or a level across the panel.
Extra = namedtuple("Extra", "values color dash x", defaults=[None])


def panels_of(picture, groups, steps, over_time=True, last=None):
    """The list of a picture's panels, in the order of reading: each measure by depth at each of `steps` for each of
    layout.facets and, `over_time`, during training, if more than one step was logged and there is one facet. `last`:
    the number of steps of the panels of training; None: all."""
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
            curves.append(Curve(group, np.arange(rows.shape[1]), rows, lost_among(series[group])))
        return Panel(measure, ", ".join([f"{measure.name} by depth", *filter(None, [facet]), *when]), False,
                     picture.first, curves)

    first = max(0, max(s.steps[-1] for s in every) - last) if last else 0
    rows = [(by_depth, facet, members, step) for facet, members in faceted for step in steps]
    if not picture.measures[0].blocks:
        rows = [(by_step, facet, {group: series[group] for group in members}, first) for facet, members in faceted]
    elif has_time:
        rows.append((by_step, "", series, first))
    if picture.by_measure:
        return [make(measure, *row) for measure in picture.measures for make, *row in rows]
    return [make(measure, *row) for make, *row in rows for measure in picture.measures]


def lost_among(series):
    """Which of the series are of runs that diverged, as a list."""
    return [s.run.diverged for s in series]


def by_step(measure, facet, series, first):
    """The panel of a measure against the step, after the step `first`. `series`: {group: its series}."""
    depths = {getattr(s, measure.value).shape[1] - 1 for s in sum(series.values(), [])} if measure.blocks else set()
    blocks = measure.blocks[:1] if depths == {1} else measure.blocks or (None,)
    last = f"block {max(depths, default=0)}" if len(depths) == 1 else "last block"
    names = [last if block == -1 else "block 1" for block in blocks]
    when = f" during training, {' and '.join(names)}" if measure.blocks else ""
    title = ", ".join(filter(None, [measure.name + when, facet]))
    curves = []
    for group, members in series.items():
        for block in blocks:
            values = [getattr(s, measure.value) for s in members]
            steps, rows = on_steps([s.steps for s in members],
                                   values if block is None else [layers[:, block] for layers in values])
            shown = steps > first if first else steps >= 0  # a probe logs step 0
            if not shown.any():
                continue
            ends = [last_point(steps[shown], band(rows[[s.run is run for s in members]])[0][shown])
                    for run in group.diverged]
            curves.append(Curve(group, steps[shown], rows[:, shown], lost_among(members), list(filter(None, ends)),
                                block is not blocks[0]))
    return Panel(measure, title, True, first, curves, names if len(blocks) > 1 else ())


def when_shown(series, step):
    """ "at step 200", "last step of each (180–200)", or "at initialisation" for step 0, that of probes: the steps that
    `step` (None: the last; FIRST) is in these series."""
    steps = sorted({int(s.steps[s.index(step)]) for s in series})
    if steps == [0]:
        return "at initialisation"
    if len(steps) == 1:
        return f"at step {steps[0]}"
    return f"{'first' if step == FIRST else 'last'} step of each ({steps[0]}–{steps[-1]})"


def with_scales(panels, by_measure, limits=None):
    """The panels with their scales: those of a unit share one, by depth and by step apart (`by_measure`: together).
    What a diverged run reached must not squash the other lines: it is drawn as far as near() says. `limits`: (low,
    high) of all."""
    alike = {}  # {what has one scale: its panels}
    for number, panel in enumerate(panels):
        own = panel.by_step and not by_measure if panel.measure.unit else panel.title
        alike.setdefault((panel.measure.unit, own), []).append(number)
    result = list(panels)
    for numbers in alike.values():
        curves = [curve for number in numbers for curve in panels[number].curves]
        extras = [extra for number in numbers for extra in panels[number].extras]
        sound = [curve.rows[~np.array(curve.lost)] for curve in curves]
        lost = [curve.rows[curve.lost] for curve in curves]
        starts = [curve.rows[curve.lost][:, :1] for curve in curves if panels[numbers[-1]].by_step]
        values = [*sound, *(near(rows, [*sound, *starts]) for rows in lost)]
        values += [extra.values for extra in extras]
        scale = scale_of(values, panels[numbers[0]].measure.log, limits)
        for number in numbers:
            result[number] = panels[number]._replace(scale=scale)
    return result


def is_log(panel):
    """Whether the panel's y axis is logarithmic: a mean is then the geometric one."""
    return bool(panel.scale) and panel.scale.kind == "log"


def statistic_of(panels):
    """What lines and bands show of the seeds, for the subtitle."""
    if not any(map(is_log, panels)):
        return MEAN
    return GEOMETRIC if all(map(is_log, panels)) else "mean, geometric on logarithmic axes, and range of"


# ---- drawing ----------------------------------------------------------------------------------------------------


@drawing
def plot(picture, groups, step=None, over_time=True, extras=None, handles=(), notes=(), ylim=None, last=None):
    """The figure of a Picture.

    step       the step or the list of steps of the panels by depth; None: those of the picture
    over_time  whether to draw panels of training
    extras     a function that gives a Panel's list of Extra
    handles    the legend's for these
    notes      lines below the panels
    ylim       (low, high) of the y axes; None: those that the values need
    last       the number of steps of the panels of training; None: all"""
    shown = panels_of(picture, groups, steps_asked(picture, step), over_time, last)
    columns = 3 if picture.by_measure and len(shown) % (3 * len(picture.measures)) == 0 else 2
    shown = [panel._replace(extras=extras(panel) if extras else ()) for panel in shown]
    shown = with_scales(shown, picture.by_measure, ylim)
    drawn, missing = split_by_values(groups, lambda group: any(
        np.isfinite(curve.rows).any() for panel in shown for curve in panel.curves if curve.group is group))
    statistic = statistic_of(shown)
    entries = [*group_handles(drawn, statistic), *handles, *width_handles(shown)]
    entries += diverged_handles(any(curve.ends for panel in shown for curve in panel.curves))
    figure, axes = new_figure(len(shown), columns, 3.45, picture.title, shared_settings(groups, statistic), entries,
                              notes=[*notes, *missing])
    for axis, panel in zip(axes, shown):
        draw_panel(axis, panel)
    set_panel_titles(axes, [panel.title for panel in shown])
    return figure


def width_handles(panels):
    """A legend's handles of the thick and the thin lines that panels of training have, the same ones in each."""
    names = next((panel.thin for panel in panels if panel.thin), ())
    return [line_handle(name, width=width) for name, width in zip(names, (THICK, THIN))]


def steps_asked(picture, step):
    """The list of steps of the panels by depth, as plot takes it."""
    if step is None:
        return picture.steps
    return step if isinstance(step, (list, tuple)) else [step]


def draw_panel(axes, panel):
    """Draws a panel's curves, and sets its axes."""
    for curve in panel.curves:
        draw(axes, curve.x, curve.rows, curve.group, curve.group.marker, curve.is_thin, is_log(panel))
    draw_extras(axes, panel.extras)
    set_scale(axes, panel.scale)
    write_unit(axes, panel.measure.unit)
    for curve in panel.curves:
        for end in curve.ends:
            end_mark(axes, end, curve.group.color)
    last = max(curve.x[-1] for curve in panel.curves)
    whole_x(axes, last, first=panel.first if panel.by_step else 0)
    if not panel.by_step:
        axes.set_xlim(left=panel.first - 0.02 * last - 0.05)
        axes.set_xticks(sorted({max(tick, panel.first) for tick in block_ticks(last)}))
    axes.set_xlabel("step" if panel.by_step else "block" if panel.first else "block (0 = embedding output)")


def draw_extras(axes, extras):
    """Draws the lines beside those of the runs."""
    for extra in extras:
        look = {"color": extra.color, "linewidth": scaled(1.2), "linestyle": extra.dash}
        if np.ndim(extra.values) == 0:
            axes.axhline(extra.values, zorder=1, **look)
            continue
        x = range(len(extra.values)) if extra.x is None else extra.x
        axes.plot(x, extra.values, zorder=3.5, **look)
