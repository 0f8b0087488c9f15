"""Plots the mean cosine between the vectors of a sequence's tokens, layer by layer: at 1 all tokens have the same
vector, up to its length."""

import math
from operator import attrgetter

from lib.drawing import drawing
from lib.figures import end_names, facets, group_handles, new_figure
from lib.groups import shared_settings
from lib.panels import depth_panel, first_and_last, name_ends, scale_y, set_panel_title, when_shown, write_unit
from lib.sites import FIRST, TokenCosine

UNIT = "mean cosine of two tokens of a sequence"


@drawing
def plot(groups, step=None):
    """The figure: the cosine by depth in a panel for each step of the list `step` (None: the first and the last that
    are logged) and each of `facets`; if more than one step was logged and there is one facet, a further panel of the
    first and the last block during training."""
    series = {group: [TokenCosine(run) for run in group.runs] for group in groups}
    every, faceted, names = sum(series.values(), []), facets(groups), end_names(groups)
    has_time = max(cosine.steps.size for cosine in every) > 1
    steps = step or ([FIRST, None] if has_time else [None])
    panels_by_depth = [(facet, members, at) for facet, members in faceted for at in steps]
    over_time = has_time and len(faceted) == 1
    count = len(panels_by_depth) + over_time
    deepest = max(cosine.cosine.shape[1] for cosine in every) - 1
    figure, axes = new_figure(math.ceil(count / 2), min(2, count), 3.45, "Cosine between the tokens of a sequence",
                              shared_settings(groups), group_handles(groups, deepest), names=names, panels=count)
    drawn = []
    for panel, (facet, members, at) in zip(axes, panels_by_depth):
        set_panel_title(panel, "Cosine by depth, " + (f"{facet}, " if facet else "") + when_shown(every, at))
        drawn += depth_panel(panel, members, [series[group] for group in members], attrgetter("cosine"), at)
    for panel in axes[:len(panels_by_depth)]:  # one scale for all
        scale_y(panel, drawn, log=False)
    if over_time:
        first_and_last([axes[count - 1]], ["Cosine"], groups, list(series.values()), [attrgetter("cosine")], log=False)
    for panel in axes[:count]:
        write_unit(panel, UNIT)
        name_ends(panel, names)
    for panel in axes[count:]:
        panel.remove()
    return figure
