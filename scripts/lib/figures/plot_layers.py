"""Plots gradients and activations of the residual stream of one or more runs, layer by layer."""

from lib.figures import curves
from lib.figures.curves import Extra, Measure, Picture
from lib.figures.layout import DASHES, line_handle
from lib.logs.sites import FIRST, Site
from lib.theory.mean_field import NoPrediction, first_step_fault, predicted

LAYERS = Picture("Gradients and activations of the residual stream", lambda run: [Site(run)], (
    Measure("Gradient", "grad", "gradient rms of the stream (nats per unit)", True, (1, -1)),
    Measure("Activation", "rms", "activation rms of the stream (units)", None, (-1,))))


def plot(groups, step=None, theory=False, **options):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, if more than one
    step was logged and there is one facet. `theory`: depth alone, as points, at the first step if none is given, with
    dashed lines for the values that theory predicts of fresh weights; groups that are alike there are drawn once. Other
    options: those of curves.plot."""
    if not theory:
        return curves.plot(LAYERS, groups, step, **options)
    fresh = LAYERS._replace(steps=(FIRST,))
    kept, alike = unlike(groups, curves.steps_asked(fresh, step))
    expected, missing = predictions(kept)

    def lines(panel):
        return [Extra(expected[curve.group][panel.measure.value], curve.group.color, DASHES)
                for curve in panel.curves if curve.group in expected]

    handles = [line_handle("theory, before any training", dash=DASHES)]
    return curves.plot(fresh, kept, step, over_time=False, extras=lines, handles=handles, notes=[*missing, *alike],
                       **options)


def unlike(groups, steps):
    """(copies, to be drawn as points, of groups of which no two have the same values at the steps; notes on the
    others): runs that differ in the learning rate alone are one before their first update."""
    alike = {}  # {values: groups}
    for group in groups:
        values = tuple(values[site.index(step)].tobytes() for site in map(Site, group.runs) for step in steps
                       for values in (site.rms, site.grad))
        alike.setdefault(values, []).append(group)
    kept = [members[0].restricted_to(members[0].runs) for members in alike.values()]
    for group in kept:
        group.dash = ""
    return kept, [f"Alike here, and drawn once: {', '.join(group.label for group in members)}."
                  for members in alike.values() if len(members) > 1]


def predictions(groups):
    """({group: what mean_field.predicted returns}, notes on the groups that have no prediction)."""
    expected, notes = {}, []
    for group in groups:
        fault = first_step_fault(group.runs[0])
        try:
            if not fault:
                expected[group] = predicted(group.runs[0].folder)  # a prediction does not depend on the seed
        except NoPrediction as error:
            fault = error.why
        notes += [f"No prediction for {group.label}: {fault}"] if fault else []
    return expected, notes
