"""Plots the mean cosine between the vectors of a sequence's tokens, layer by layer: at 1 all tokens have the same
vector, up to its length."""

from lib import curves
from lib.curves import Measure, Picture
from lib.sites import FIRST, TokenCosine

COSINE = Picture("Cosine between the tokens of a sequence", lambda run: [TokenCosine(run)], (
    Measure("Cosine", "cosine", "mean cosine of two tokens of a sequence", False, (1, -1)),), steps=(FIRST, None))


def plot(groups, **options):
    """The figure: the first and the last logged step by depth, and training. Options: those of curves.plot."""
    return curves.plot(COSINE, groups, **options)
