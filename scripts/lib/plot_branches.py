"""Plots the size of each sublayer's output, as added, over that of the residual stream that it joins."""

from operator import attrgetter

from lib.command import ScriptError
from lib.drawing import drawing
from lib.figures import end_names, facets, group_handles, new_figure
from lib.keys import PLACEMENTS
from lib.panels import depth_panels, first_and_last, name_ends, scale_y, when_shown, write_unit
from lib.groups import shared_settings
from lib.sites import Branches

TITLE = "Size of each sublayer's output over that of the stream it joins"
SHARE = "rms of the output, as added / rms of the stream"
PANEL_TITLES = {"attention": "Attention", "ffn": "FFN"}
POWERS = {0.25: "¼", 0.5: "½", -0.25: "-¼", -0.5: "-½"}


def power_text(base, exponent, log=""):
    """ "(2L)^¼", "(ln 2L)^½": a factor that depends on the depth L, from its row in configs/schema.json."""
    raised = f"^{POWERS.get(exponent, f'{exponent:g}')}" if exponent != 1 else ""
    return f"({'ln ' if log else ''}{base:g}L){raised}"


def notes(branches):
    """Lines on the placements of these Branches that explain the curves."""
    rows = {name: PLACEMENTS[name] for run in branches for block in run.placements for name in block}
    lines = []
    for name, row in rows.items():
        if row["alpha"][1]:
            lines.append(f"{name}: the stream is multiplied by α = {power_text(*row['alpha'])} before the sum.")
        if row["learned_scale"]:
            lines.append(f"{name}: the sublayer's output is multiplied by its learned scale, 0 at the start.")
    return lines


@drawing
def plot(groups, step=None):
    """The figure: depth above, at `step` (None: the last), a row for each of `facets`; training below, if more than one
    step was logged and there is one facet."""
    joined = [group for group in groups if group.value("model.residual") is not False]
    if not joined:
        raise ScriptError(f"{groups[0].runs[0]}: model.residual is false: no branch joins a stream")
    left_out = [f"{group.label}: no branch joins a stream." for group in groups if group not in joined]
    groups = joined
    branches = {group: [Branches(run) for run in group.runs] for group in groups}
    every, faceted = sum(branches.values(), []), facets(groups)
    over_time = max(b.steps.size for b in every) > 1 and len(faceted) == 1
    deepest = max(b.ffn.shape[1] - 1 for b in every)
    figure, axes = new_figure(len(faceted) + over_time, 2, 3.45, TITLE,
                              shared_settings(groups) + (f" · {when_shown(every, step)}" if len(faceted) > 1 else ""),
                              group_handles(groups, deepest), notes=notes(every) + left_out, names=end_names(groups))
    drawn = []
    for column, (name, title) in enumerate(PANEL_TITLES.items()):
        panels = axes[column:2 * len(faceted):2]
        drawn += depth_panels(panels, faceted, title, branches, attrgetter(name), step, first=1)
    for panel in axes[:2 * len(faceted)]:  # one scale for all, as below
        scale_y(panel, drawn)
    if over_time:
        picks = [attrgetter(name) for name in PANEL_TITLES]
        first_and_last(axes[2:], PANEL_TITLES.values(), groups, list(branches.values()), picks)
    for panel in axes:
        write_unit(panel, SHARE)
        name_ends(panel, end_names(groups))
    return figure
