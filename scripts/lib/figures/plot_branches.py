"""Plots the size of each sublayer's output, as added, over that of the residual stream that it joins."""

from lib.figures import curves
from lib.figures.curves import Measure, Picture
from lib.logs.sites import Branches

SHARE = "rms of the output, as added / rms of the stream"
BRANCHES = Picture("Size of each sublayer's output over that of the stream it joins", lambda run: [Branches(run)], (
    Measure("Attention", "attention", SHARE, None, (1, -1)), Measure("FFN", "ffn", SHARE, None, (1, -1))), first=1)


def plot(groups, **options):
    """The figure: depth above, training below. Options: those of curves.plot."""
    return curves.plot(BRANCHES, groups, **options)
