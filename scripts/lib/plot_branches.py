"""Plots how large what each sublayer adds is beside the residual stream it joins, for one or more runs."""

from lib.figures import drawing, end_names, facets, group_handles, new_figure
from lib.keys import PLACEMENTS
from lib.panels import (depth_panel, entitle, mark_diverged, name_ends, say, scale_y, step_panel, style_legend,
                    when_shown)
from lib.groups import shared_settings
from lib.runs import PlotError
from lib.sites import Branches

SHARE = "rms of what is added / rms of the stream it joins"
TITLES = {"attention": "Attention", "ffn": "FFN"}
POWERS = {0.25: "¼", 0.5: "½", -0.25: "-¼", -0.5: "-½"}


def notes(branches):
    """What must be known of the placements of these runs to read their curves."""
    found = {name: PLACEMENTS[name] for b in branches for block in b.placements for name in block}
    said = []
    for name, row in found.items():
        base, exponent = row["alpha"]
        if exponent:
            raised = f"^{POWERS.get(exponent, f'{exponent:g}')}" if exponent != 1 else ""
            said.append(f"{name}: the stream is taken times α = ({base:g}L){raised}, as it enters the sum.")
        if row["learned_scale"]:
            said.append(f"{name}: the sublayer's output is taken times its learned scale, 0 at the start.")
    return said


@drawing
def plot(groups, step=None):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, where more than one step
    was logged and there is one facet."""
    branches = {group: [Branches(run) for run in group.runs] for group in groups}
    every, parts = sum(branches.values(), []), facets(groups)
    if all(run.config.get("model", {}).get("residual", True) is False for group in groups for run in group.runs):
        raise PlotError(f"{groups[0].runs[0]}: model.residual is false: no branch joins a stream")
    over_time = max(b.steps.size for b in every) > 1 and len(parts) == 1
    depths = {b.ffn.shape[1] - 1 for b in every}
    when = when_shown(every, step)
    figure, axes = new_figure(len(parts) + over_time, 2, 3.45, "What a sublayer adds, beside the stream it joins",
                              shared_settings(groups) + (f" · {when}" if len(parts) > 1 else ""), group_handles(groups, max(depths)), notes=notes(every),
                              names=end_names(groups))
    drawn = []
    for row, (facet, members) in enumerate(parts):
        for panel, name in zip(axes[2 * row:], TITLES):
            entitle(panel, f"{TITLES[name]} by depth, {facet or when}")
            drawn += depth_panel(panel, members, [branches[group] for group in members],
                                 lambda b, name=name: getattr(b, name), step, first=1)
    for panel in axes[:2 * len(parts)]:  # one scale for all, as below
        scale_y(panel, drawn)
    if over_time:
        in_time(axes[2:], groups, list(branches.values()), f"block {depths.pop()}" if len(depths) == 1 else "last block")
    for panel in axes:
        say(panel, SHARE)
        name_ends(panel, end_names(groups))
    return figure


def in_time(panels, groups, branches, last):
    """Both sublayers of the first and, where it is another, the last block against the step."""
    two_blocks = last != "block 1"
    which = (last if not two_blocks else f"blocks 1 and {last.split()[1]}" if last != "last block"
             else "first and last block")
    picks = [(lambda b, name=name: getattr(b, name)[:, 1], lambda b, name=name: getattr(b, name)[:, -1])
             for name in TITLES]
    drawn = []
    for panel, (first, final), title in zip(panels, picks, TITLES.values()):
        entitle(panel, f"{title} during training, {which}")
        drawn += step_panel(panel, groups, branches, first, final if two_blocks else None)
    for panel, (first, final) in zip(panels, picks):
        scale_y(panel, drawn)
        if two_blocks:
            style_legend(panel, ("block 1", last))
            mark_diverged(panel, groups, branches, final)
        mark_diverged(panel, groups, branches, first)
