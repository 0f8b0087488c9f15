"""Plots the final validation loss of runs, or another number of their summaries, against a key in which they differ,
such as the learning rate."""

import itertools
import json
import math

from lib.base.command import ScriptError
from lib.compare.groups import shared_settings
from lib.compare.labels import joined, value_text
from lib.figures.drawing import drawing
from lib.figures.layout import (NAME_LETTER, diverged_handles, facets, group_handles, literal, new_figure, scaled,
                                styled, text_size)
from lib.figures.panels import THICK, band, set_panel_titles, set_scale, write_unit
from lib.figures.plot_loss import common_levels, draw_levels, loss_scale
from lib.figures.scale import scale_of
from lib.logs import np
from lib.logs.runs import PLACEMENT

LOSS, UNIT = "final_val_loss", "final validation loss (nats per character)"
NAMES = {LOSS: "Final validation loss"}


def numeric_keys(groups):
    """The keys in which the groups differ by numbers, those with most values first."""
    values = {key: {json.dumps(group.value(key)) for group in groups if group.value(key) is not None}
              for group in groups for key in group.varied}
    numeric = [key for key, texts in values.items()
               if len(texts) > 1 and all(type(json.loads(text)) in (int, float) for text in texts)]
    return sorted(numeric, key=lambda key: -len(values[key]))


def final_value(run, name=LOSS):
    """A number of a run's summary, infinity if it diverged. ScriptError: it has none."""
    value = run.record.get(name)
    if run.diverged:
        return math.inf
    if value is None or name == "status":
        raise ScriptError(f"{run}: no validation loss yet" if name == LOSS else f"--y: {run} has no number {name}")
    return value


def has_a_curve(groups):
    """Whether the ended of these groups have a line of at least three points."""
    ended = [group for group in groups if any(run.diverged or LOSS in run.record for run in group.runs)]
    keys = numeric_keys(ended)[:1]
    return any(len(points) > 2 for key in keys for points in lines_of(ended, key).values())


def lines_of(groups, key):
    """{a group that stands for a line: {value of the key: its Group}}: the groups of a line differ by choice in the key
    alone, or in a grid entry whose names stand for it."""
    causes = {key, *(name for group in groups for name, keys in group.config.named_keys.items() if key in keys)}
    lines = []  # {value: Group}
    for group in groups:
        value = group.value(key)
        fits = [line for line in lines if value not in line
                and causes.issuperset(group.config.minus([*line.values()][0].config).choices)]
        if not fits:
            lines.append({})
        (fits or lines)[-1][value] = group
    return {standing_for([*line.values()]): line for line in lines}


def standing_for(groups):
    """A group with the runs of all these, whose label has what theirs share."""
    line = groups[0].restricted_to([run for group in groups for run in group.runs])
    line.labelled = {key: value for key, value in line.labelled.items()
                     if all(group.labelled.get(key) == value for group in groups)} or {PLACEMENT: line.value(PLACEMENT)}
    line.run_name = line.run_name if len({group.run_name for group in groups}) == 1 else ""
    line.label = joined(line)
    return line


@drawing
def plot(groups, x=None, y=LOSS, ylim=None):
    """The figure: the number `y` of the summaries against the key `x` (None: the number in which the groups have most
    values), a panel for each of layout.facets, all on one scale; `ylim`: (low, high) of it."""
    key = x or next(iter(numeric_keys(groups)), None)
    having = [group for group in groups if key and group.value(key) is not None]
    lines = {line: points for line, points in lines_of(having, key).items() if len(points) > 1}
    if not lines:
        varied = ", ".join(dict.fromkeys(name for group in groups for name in group.varied))
        raise ScriptError(f"--x: no two runs differ in {key or 'a number'} alone; they differ in {varied}")
    drawn = [group for points in lines.values() for group in points.values()]
    notes = [f"No other run differs in {key} alone: {group.label}." for group in having if not any(
        set(group.runs) <= set(other.runs) for other in drawn)]
    faceted, runs = facets(styled(list(lines))), [run for group in drawn for run in group.runs]
    values = [np.array([final_value(run, y) for run in group.runs]) for group in drawn]
    levels = common_levels(runs) if y == LOSS else {}
    scale = loss_scale(runs, [], values, levels, ylim) if y == LOSS else scale_of(values, limits=ylim)
    handles = group_handles(list(lines), None) if len(lines) > 1 else []
    handles += diverged_handles(any(run.diverged for run in runs))
    figure, panels = new_figure(len(faceted), 2, 4.5 if len(faceted) == 1 else 3.45,
                                f"{NAMES.get(y, y)} against {key}", shared_settings(drawn), handles, notes=notes,
                                beside="unigram")
    for axes, (_, members) in zip(panels, faceted):
        draw_by_key(axes, key, scale, UNIT if y == LOSS else y, {
            line: {value: [final_value(run, y) for run in group.runs] for value, group in lines[line].items()}
            for line in members})
        draw_levels(axes, levels)
    set_panel_titles(panels, [facet for facet, _ in faceted])
    return figure


def set_values(axes, key, values):
    """Sets an x axis with a tick at each of these values of a key, but where ticks would touch, and returns {value:
    its place}: numbers, on a logarithmic axis if they span a factor of eight, or 0, 1, 2, … for words."""
    is_number = all(type(value) in (int, float) for value in values)
    places = values if is_number else list(range(len(values)))
    low, high = min(places), max(places)
    if is_number and low > 0 and high > 7.99 * low:
        axes.set_xscale("log")
        axes.set_xlim(low * (low / high) ** 0.06, high * (high / low) ** 0.06)
    else:
        axes.set_xlim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    axes.minorticks_off()
    shown, width = {}, axes.get_position().width * axes.figure.get_figwidth()
    for place, value in sorted(zip(places, values), key=lambda pair: pair[0]):
        text = f"{value:g}" if is_number else value_text(key, value)
        at = width * (axes.transData + axes.transAxes.inverted()).transform((place, 1))[0]  # inches
        if not shown or at - max(end for _, end in shown.values()) > scaled(0.05 + NAME_LETTER * len(text) / 2):
            shown[place] = text, at + scaled(0.05 + NAME_LETTER * len(text) / 2)
    axes.set_xlabel(key)
    axes.set_xticks(list(shown), [literal(text) for text, _ in shown.values()])
    return dict(zip(values, places))


def draw_by_key(axes, key, scale, unit, lines, log=False):
    """Draws a panel against the values of a key. `lines`: {an object with color, dash and marker: {value: the numbers
    of its seeds}}; infinite ones are of diverged runs. `log`: as in panels.band."""
    set_scale(axes, scale)
    places = set_values(axes, key, list(dict.fromkeys(value for points in lines.values() for value in points)))
    rows = itertools.count()
    for line, points in lines.items():
        losses = {places[value]: numbers for value, numbers in points.items()}
        draw_losses(axes, losses, line, next(rows) if math.inf in sum(losses.values(), []) else 0,
                    list(places) == list(places.values()), log)
    write_unit(axes, unit)


def draw_losses(axes, losses, line, row, joined, log):
    """Draws a line through the means of losses, {x: those of the seeds}, with bars from the smallest to the largest.
    Infinite ones, of diverged runs, are crosses at the upper edge, `row` rows below it."""
    xs, seeds = sorted(losses), max(map(len, losses.values()))
    mean, low, high = band(np.array([losses[x] + [np.nan] * (seeds - len(losses[x])) for x in xs]).T, log)
    axes.plot(xs, mean, color=line.color, linestyle=line.dash if joined else "", marker=line.marker,
              markersize=scaled(5), linewidth=scaled(THICK), zorder=3)
    good = np.isfinite(mean)
    if good.any():
        axes.errorbar(np.array(xs)[good], mean[good], yerr=[(mean - low)[good], (high - mean)[good]], linestyle="",
                      color=line.color, elinewidth=scaled(1.2), capsize=scaled(2.5), zorder=3)
    height = 1 - scaled(0.16) * row / (axes.get_position().height * axes.figure.get_figheight())
    for x in xs:
        if lost := sum(map(math.isinf, losses[x])):
            axes.plot(x, height, transform=axes.get_xaxis_transform(), marker="X", markersize=scaled(10),
                      color=line.color, markeredgecolor="white", clip_on=False, zorder=6)
            if lost < len(losses[x]):
                axes.annotate(f"{lost} of {len(losses[x])}", (x, height), (scaled(7), 0), va="center",
                              xycoords=("data", "axes fraction"), textcoords="offset points", size=text_size(10))
