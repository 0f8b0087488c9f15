"""Plots statistics of the attention heads of each block: the entropy of a query's weights, the share of the first token
in them, and the largest logit."""

import math

from lib.figures import curves
from lib.figures.curves import Extra, Measure, Picture
from lib.figures.layout import DOTS, MUTED
from lib.logs import np
from lib.logs.sites import UNLOGGED, LoggedSteps

VALUES = ("entropy", "first_share", "max_logit")
# The value for a query with uniform weights on the t tokens that it sees.
UNIFORM = {"entropy": math.log, "first_share": lambda t: 1 / t}
NOTE = "Lines: mean over a block's heads; bands: from the smallest to the largest; dotted: uniform weights."


class Head(LoggedSteps):
    """One head of every block: each of VALUES as an array (steps, layers 0..L), layer 0 NaN."""
    file = "heads.csv"

    def __init__(self, run, rows):
        values, _ = self.set_values(run, rows, VALUES)
        self.is_finite = np.isfinite(values[:, :, 1:]).all(axis=(0, 2))


def heads(run):
    """The heads that a run has logged."""
    rows = run.rows("heads.csv", ("step", "layer", *VALUES, "head"), UNLOGGED)
    return [Head(run, rows[rows[:, -1] == head]) for head in np.unique(rows[:, -1])]


HEADS = Picture("What the attention heads do", heads, (
    Measure("Entropy", "entropy", "entropy of weights (nats)", False, (-1,)),
    Measure("Attention sink", "first_share", "weight on the first token", False, (-1,)),
    Measure("Logits", "max_logit", "largest q·k / √D", None, (-1,))), first=1, by_measure=True)


def plot(groups, **options):
    """The figure: each measure against depth and, right of it, that of the last block against the step. Options: those
    of curves.plot."""
    contexts = {group.runs[0].value("model.context") for group in groups}
    context = contexts.pop() if len(contexts) == 1 else None

    def uniform_level(panel):
        if not context or panel.measure.value not in UNIFORM:
            return []
        height = np.mean([UNIFORM[panel.measure.value](t) for t in range(1, context + 1)])
        return [Extra(height, MUTED, DOTS)]

    return curves.plot(HEADS, groups, extras=uniform_level, notes=[NOTE], **options)
