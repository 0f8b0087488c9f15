"""Plots gradients and activations of the residual stream of one or more runs, layer by layer."""

import textwrap

from matplotlib.patches import Patch

from lib.figures import curves
from lib.figures.curves import Measure, Picture
from lib.figures.layout import DASHES, Line2D, scaled
from lib.logs import np
from lib.logs.sites import FIRST, Site
from lib.theory.mean_field import NoPrediction, first_step_fault, predicted

LAYERS = Picture("Gradients and activations of the residual stream", lambda run: [Site(run)], (
    Measure("Gradient", "grad", "gradient rms of the stream (nats per unit)", True, (1, -1)),
    Measure("Activation", "rms", "activation rms of the stream (units)", None, (-1,))))
THEORY = "theory, before any training"
ONE_SEED = "what predict.py --against accepts of one seed"
THEORY_WIDTH = 1.2


def plot(groups, step=None, theory=False, **options):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, if more than one
    step was logged and there is one facet. `theory`: depth alone, as points, at the first step if none is given, with
    dashed lines for the values that theory predicts of fresh weights. Other options: those of curves.plot."""
    if not theory:
        return curves.plot(LAYERS, groups, step, **options)
    expected, reasons = predictions(groups)
    missing = [textwrap.fill(f"No prediction for {group.label}: {why}", 116) for group, why in reasons.items()]

    def overlay(axes, panel):
        return theory_lines(axes, {curve.group: expected[curve.group] for curve in panel.curves
                                   if curve.group in expected}, panel.measure.value)

    return curves.plot(LAYERS, groups, FIRST if step is None else step, over_time=False, points=True, overlay=overlay,
                       subtitle="".join("\n" + line for line in missing),
                       handles=lambda handles: theory_handles(handles, groups), **options)


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
        if fault := first_step_fault(group.runs[0]):
            reasons[group] = fault
            continue
        try:
            expected[group] = predicted(group.runs[0].folder)  # a prediction does not depend on the seed
        except NoPrediction as error:
            reasons[group] = error.why
    return expected, reasons


def theory_lines(axes, expected, quantity):
    """Draws the predicted values of each group ({group: prediction}) and, for a single seed, their tolerance; returns
    the values drawn."""
    drawn = []
    for group, prediction in expected.items():
        line, factor = prediction[quantity], np.exp(prediction["limits"][quantity])
        axes.plot(line, color=group.color, linewidth=scaled(THEORY_WIDTH), linestyle=DASHES, zorder=2.5)
        drawn.append(line)
        if len(group.runs) == 1:
            axes.fill_between(range(len(line)), line / factor, line * factor, color=group.color, alpha=0.16,
                              linewidth=0)
            drawn += [line / factor, line * factor]
    return drawn
