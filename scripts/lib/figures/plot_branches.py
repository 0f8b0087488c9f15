"""Plots the size of each sublayer's output, as added, over that of the residual stream that it joins."""

from lib.base.command import ScriptError
from lib.base.keys import PLACEMENTS
from lib.figures import curves
from lib.figures.curves import Measure, Picture
from lib.logs.sites import Branches

SHARE = "rms of the output, as added / rms of the stream"
BRANCHES = Picture("Size of each sublayer's output over that of the stream it joins", lambda run: [Branches(run)], (
    Measure("Attention", "attention", SHARE, None, (1, -1)), Measure("FFN", "ffn", SHARE, None, (1, -1))), first=1)


def notes(branches):
    """Lines on the placements of these Branches that explain the curves."""
    rows = {name: PLACEMENTS[name] for run in branches for block in run.placements for name in block}
    lines = []
    for name, row in rows.items():
        if row["alpha"][1]:
            lines.append(f"{name}: the stream is multiplied by α before the sum, as `normscope explain` has it.")
        if row["learned_scale"]:
            lines.append(f"{name}: the sublayer's output is multiplied by its learned scale, 0 at the start.")
    return lines


def plot(groups, **options):
    """The figure: depth above, training below. Options: those of curves.plot."""
    joined = [group for group in groups if group.value("model.residual") is not False]
    if not joined:
        raise ScriptError(f"{groups[0].runs[0]}: model.residual is false: no branch joins a stream")
    left_out = [f"{group.label}: no branch joins a stream." for group in groups if group not in joined]
    branches = [Branches(run) for group in joined for run in group.runs]
    return curves.plot(BRANCHES, joined, notes=notes(branches) + left_out, **options)
