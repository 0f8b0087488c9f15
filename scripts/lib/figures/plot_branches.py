"""Plots the size of each sublayer's output, as added, over that of the residual stream that it joins."""

from lib.base.command import ScriptError
from lib.figures import curves
from lib.figures.curves import Measure, Picture
from lib.logs.sites import Branches

SHARE = "rms as added / rms of what it is added to"
BRANCHES = Picture("Size of each sublayer's output over that of the stream it joins", lambda run: [Branches(run)], (
    Measure("Attention", "attention", SHARE, None, (1, -1)), Measure("FFN", "ffn", SHARE, None, (1, -1))), first=1)


def plot(groups, **options):
    """The figure: depth above, training below. Options: those of curves.plot."""
    joined = [group for group in groups if group.value("model.residual") is not False]
    if not joined:
        raise ScriptError(f"{groups[0].runs[0]}: model.residual is false: no branch joins a stream")
    left_out = [f"{group.label}: no branch joins a stream." for group in groups if group not in joined]
    return curves.plot(BRANCHES, joined, notes=left_out, **options)
