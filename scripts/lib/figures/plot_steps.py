"""Plots the norm of the whole gradient before clipping, and the factor of clipping, against the step."""

from lib.figures import curves
from lib.figures.curves import Measure, Picture


class Steps:
    """The rows of a run's metrics.csv: `steps`, `norm` (nats per unit) and `clip`, the factor min(1, c/norm)."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("metrics.csv", ("step", "grad_norm", "clip_factor"), "a probe does not train")
        self.steps, self.norm, self.clip = rows[:, 0].astype(int), rows[:, 1], rows[:, 2]


STEPS = Picture("Gradient norm and clipping", lambda run: [Steps(run)], (
    Measure("Norm of the gradient", "norm", "before clipping (nats per unit)", True),
    Measure("Clipping", "clip", "factor on the gradient; 1: none", None)))


def plot(groups, **options):
    """The figure: norm and clip factor, a row for each of layout.facets. Options: those of curves.plot."""
    return curves.plot(STEPS, groups, **options)
