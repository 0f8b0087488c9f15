"""Plots gradients and activations of the residual stream of one or more runs, layer by layer."""

import textwrap
from operator import attrgetter

from lib.drawing import drawing
from lib.figures import DASHES, Line2D, end_names, facets, group_handles, new_figure, scaled
from lib.panels import (depth_panels, first_and_last, layer_of, mark_diverged, name_ends, scale_y, set_panel_title,
                        step_panel, when_shown, write_unit)
from lib.groups import shared_settings
from lib.runs import np
from matplotlib.patches import Patch  # after runs, which finds a Python that has it
from lib.sites import FIRST, Site
from lib.mean_field import NoPrediction, predicted

GRADIENT = "gradient rms of the stream (nats per unit)"
ACTIVATION = "activation rms of the stream (units)"
# {member of Site: name, unit, whether the axis is logarithmic (None: if values span decades)}
QUANTITIES = {"grad": ("Gradient", GRADIENT, True), "rms": ("Activation", ACTIVATION, None)}
THEORY = "theory, before any training"
ONE_SEED = "what predict.py --against accepts of one seed"
THEORY_WIDTH = 1.2


@drawing
def plot(groups, step=None, theory=False):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, if more than one
    step was logged and there is one facet. `theory`: depth alone, as points, at the first step if none is given, with
    dashed lines for the values that theory predicts of fresh weights."""
    streams = {group: [Site(run) for run in group.runs] for group in groups}
    every, faceted, names = sum(streams.values(), []), facets(groups), end_names(groups)
    if theory and step is None:
        step = FIRST
    over_time = not theory and max(s.steps.size for s in every) > 1 and len(faceted) == 1
    deepest = max(s.rms.shape[1] for s in every) - 1
    subtitle, handles = shared_settings(groups), group_handles(groups, deepest)
    if len(faceted) > 1:  # then the titles of panels name the facet instead
        subtitle += " · " + when_shown(every, step)
    if theory:
        for group, why in predictions(groups)[1].items():
            subtitle += "\n" + textwrap.fill(f"No prediction for {group.label}: {why}", 116)
        handles = theory_handles(handles, groups)
    figure, axes = new_figure(len(faceted) + over_time, 2, 3.45, "Gradients and activations of the residual stream",
                              subtitle, handles, names=names)
    for column, (quantity, (name, unit, log)) in enumerate(QUANTITIES.items()):
        panels = axes[column:2 * len(faceted):2]
        drawn = depth_panels(panels, faceted, name, streams, attrgetter(quantity), step, line=not theory)
        if theory:
            for panel, (_, members) in zip(panels, faceted):
                drawn += theory_lines(panel, members, quantity)
        for panel in panels:  # one scale for all facets
            scale_y(panel, drawn, log)
            write_unit(panel, unit)
    if over_time:
        in_time(axes[2:], groups, list(streams.values()))
    for panel in axes:
        name_ends(panel, names)
    return figure


def in_time(panels, groups, streams):
    """Draws against the step the gradient of the first block and of the last, and the activation of the last."""
    last = first_and_last(panels[:1], ["Gradient"], groups, streams, [attrgetter("grad")], log=True)
    activation = layer_of(attrgetter("rms"), -1)
    write_unit(panels[0], GRADIENT)
    set_panel_title(panels[1], f"Activation during training, {last}")
    write_unit(panels[1], ACTIVATION)
    scale_y(panels[1], step_panel(panels[1], groups, streams, activation))
    mark_diverged(panels[1], groups, streams, activation)


def theory_handles(handles, groups):
    """The legend's handles as points, with those of the theory."""
    for handle in handles:
        handle.set_linestyle("" if handle.get_marker() else "-")
    line = Line2D([], [], color="#555555", linewidth=scaled(THEORY_WIDTH), linestyle=DASHES, label=THEORY)
    tolerance = Patch(color="#555555", alpha=0.16, linewidth=0, label=ONE_SEED)
    return [*handles, line] + [tolerance] * any(len(group.runs) == 1 for group in groups)


def predictions(groups):
    """({group: what mean_field.predicted returns}, {group: the reason why it has no prediction})."""
    expected, reasons = {}, {}
    for group in groups:
        try:
            expected[group] = predicted(group.runs[0].folder)  # a prediction does not depend on the seed
        except NoPrediction as error:
            reasons[group] = error.why
    return expected, reasons


def theory_lines(axes, groups, quantity):
    """Draws the predicted values of each group and, for a single seed, their tolerance; returns the values drawn."""
    drawn = []
    for group, expected in predictions(groups)[0].items():
        line, factor = expected[quantity], np.exp(expected["limits"][quantity])
        axes.plot(line, color=group.color, linewidth=scaled(THEORY_WIDTH), linestyle=DASHES, zorder=2.5)
        drawn.append(line)
        if len(group.runs) == 1:
            axes.fill_between(range(len(line)), line / factor, line * factor, color=group.color, alpha=0.16,
                              linewidth=0)
            drawn += [line / factor, line * factor]
    return drawn
