"""Plots gradients and activations of the residual stream of one or more runs, layer by layer."""

from matplotlib.patches import Patch

from lib.figures import curves
from lib.figures.curves import Extra, Measure, Picture
from lib.figures.layout import DASHES, Line2D, scaled, styled
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
    dashed lines for the values that theory predicts of fresh weights; groups that are alike there are drawn once. Other
    options: those of curves.plot."""
    if not theory:
        return curves.plot(LAYERS, groups, step, **options)
    step = FIRST if step is None else step
    expected, reasons = predictions(groups)
    kept, alike = unlike(groups, step)
    missing = [f"No prediction for {group.label}: {reasons[group]}" for group in groups if group in reasons]
    expected = {group.label: prediction for group, prediction in expected.items()}

    def lines(panel):
        return [Extra(expected[group.label][panel.measure.value], group.color, DASHES,
                      np.exp(expected[group.label]["limits"][panel.measure.value]) if len(group.runs) == 1 else 1.0)
                for group in (curve.group for curve in panel.curves) if group.label in expected]

    return curves.plot(LAYERS, kept, step, over_time=False, points=True, extras=lines,
                       subtitle="".join("\n" + line for line in missing), notes=alike,
                       handles=lambda handles: theory_handles(handles, kept), **options)


def unlike(groups, step):
    """(groups of which no two have the same values at the step, restyled if that leaves some out; notes on the others):
    runs that differ in the learning rate alone are one before their first update."""
    alike = {}  # {values: groups}
    for group in groups:
        sites = [Site(run) for run in group.runs]
        values = tuple((site.rms[site.index(step)].tobytes(), site.grad[site.index(step)].tobytes()) for site in sites)
        alike.setdefault(values, []).append(group)
    if len(alike) == len(groups):
        return groups, []
    notes = [f"Alike here, and drawn once: {', '.join(group.label for group in members)}."
             for members in alike.values() if len(members) > 1]
    return styled([members[0].restricted_to(members[0].runs) for members in alike.values()]), notes


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
