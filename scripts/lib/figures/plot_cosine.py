"""Plots the mean cosine between the vectors of a sequence's tokens, layer by layer: at 1 all tokens have the same
vector, up to its length."""

from lib.figures import curves
from lib.figures.curves import Measure, Picture
from lib.logs.sites import FIRST, ROUNDING, TokenCosine

UNIT = "mean cosine of two tokens of a sequence"
COSINE = Picture("Cosine between the tokens of a sequence", lambda run: [TokenCosine(run)],
                 [Measure("Cosine", "cosine", UNIT, False, (1, -1))], steps=(FIRST, None))
APART = COSINE._replace(title="What still sets the tokens of a sequence apart: 1 − cosine",
                        measures=[Measure("1 − cosine", "apart", "1 − " + UNIT, True, (1, -1))])
NOTE = f"Smaller values than {ROUNDING:.0e} are drawn there: float32 rounds such a cosine to 1."


def plot(groups, log=False, **options):
    """The figure: the first and the last logged step by depth, and training; `log`: 1 − cosine on a logarithmic axis.
    Other options: those of curves.plot."""
    return curves.plot(APART, groups, notes=[NOTE], **options) if log else curves.plot(COSINE, groups, **options)
