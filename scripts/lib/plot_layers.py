"""Plots what happened in the layers of one or more runs: gradients and activations of the residual stream."""

import textwrap
from operator import attrgetter

from lib.figures import DASHES, Line2D, drawing, end_names, facets, group_handles, new_figure, points
from lib.panels import (depth_panel, entitle, mark_diverged, name_ends, say, scale_y, step_panel, style_legend,
                    when_shown)
from lib.groups import shared_settings
from lib.sites import FIRST, Site
from lib.mean_field import NoPrediction
from lib.theory import predicted

GRADIENT = "gradient rms of the stream (nats per unit)"
ACTIVATION = "activation rms of the stream (units)"
KINDS = {"grad": ("Gradient", GRADIENT, True), "rms": ("Activation", ACTIVATION, False)}  # name, unit, whether on a log axis
THEORY = "theory, before any training"
THEORY_WIDTH = 1.2


@drawing
def plot(groups, step=None, theory=False):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, where more than one step
    was logged and there is one facet. `theory`: depth alone, as points, at the first step if none is given, and the theory of
    first weights as dashed lines."""
    streams = {group: [Site(run) for run in group.runs] for group in groups}
    every, parts, names = sum(streams.values(), []), facets(groups), end_names(groups)
    if theory and step is None:
        step = FIRST
    over_time = not theory and max(s.steps.size for s in every) > 1 and len(parts) == 1
    deepest = max(s.rms.shape[1] for s in every) - 1
    subtitle, handles = shared_settings(groups), group_handles(groups, deepest)
    if len(parts) > 1:  # then titles say something else
        subtitle += " · " + when_shown(every, step)
    if theory:
        for label, why in without_prediction(groups).items():
            subtitle += "\n" + textwrap.fill(f"No prediction for {label}: {why}", 116)
        if any(len(group.runs) == 1 for group in groups):
            subtitle += "\nTheory is a mean over seeds, and a single seed may be off it by a third: probe --seeds 8"
        for handle in handles:  # there are points only
            handle.set_linestyle("" if handle.get_marker() else "-")
        handles.append(Line2D([], [], color="#555555", linewidth=points(THEORY_WIDTH), linestyle=DASHES, label=THEORY))
    figure, axes = new_figure(len(parts) + over_time, 2, 3.45, "Gradients and activations of the residual stream",
                              subtitle, handles, names=names)
    seen = {"grad": [], "rms": []}
    for row, (facet, members) in enumerate(parts):
        series = [streams[group] for group in members]
        for panel, (site, (name, unit, _)) in zip(axes[2 * row:], KINDS.items()):
            entitle(panel, f"{name} by depth, {facet or when_shown(every, step)}")
            say(panel, unit)
            drawn = depth_panel(panel, members, series, attrgetter(site), step, line=not theory)
            if theory:
                drawn += theory_lines(panel, members, site)
            seen[site] += drawn
    for panel, site in zip(axes[:2 * len(parts)], [*KINDS] * len(parts)):  # one scale for all facets
        scale_y(panel, seen[site], KINDS[site][2])
    if over_time:
        in_time(axes[2:], groups, list(streams.values()))
    for panel in axes:
        name_ends(panel, names)
    return figure


def in_time(panels, groups, streams):
    """Against the step, the gradient of the first and, where it is another, the last block; and the activation of the last."""

    def first(stream):
        return stream.grad[:, min(1, stream.grad.shape[1] - 1)]

    def final(stream):
        return stream.grad[:, -1]

    def activation(stream):
        return stream.rms[:, -1]

    depths = {s.rms.shape[1] - 1 for s in sum(streams, [])}
    last = f"block {depths.pop()}" if len(depths) == 1 else "last block"
    two = last != "block 1"
    which = last if not two else f"blocks 1 and {last.split()[1]}" if last != "last block" else "first and last block"
    entitle(panels[0], f"Gradient during training, {which}")
    say(panels[0], GRADIENT)
    scale_y(panels[0], step_panel(panels[0], groups, streams, first, final if two else None), log=True)
    if two:
        style_legend(panels[0], ("block 1", last))
        mark_diverged(panels[0], groups, streams, final)
    mark_diverged(panels[0], groups, streams, first)
    entitle(panels[1], f"Activation during training, {last}")
    say(panels[1], ACTIVATION)
    scale_y(panels[1], step_panel(panels[1], groups, streams, activation))
    mark_diverged(panels[1], groups, streams, activation)


def without_prediction(groups):
    """{label: why} of the groups of which the theory says nothing."""
    found = {}
    for group in groups:
        try:
            predicted(group.runs[0].folder)
        except NoPrediction as error:
            found[group.label] = error.why
    return found


def theory_lines(axes, groups, site):
    """Draws what theory expects of each group; returns the lines."""
    silent = without_prediction(groups)
    lines = {group: predicted(group.runs[0].folder)[site] for group in groups if group.label not in silent}  # seeds change nothing
    for group, line in lines.items():
        axes.plot(line, color=group.color, linewidth=points(THEORY_WIDTH), linestyle=DASHES, zorder=2.5)
    return list(lines.values())
