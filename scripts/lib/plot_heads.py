"""Plots statistics of the attention heads of each block: the entropy of a query's weights, the share of the first token
in them, and the largest logit."""

import math
from operator import attrgetter

from lib.drawing import drawing
from lib.figures import DOTS, MUTED, end_names, facets, group_handles, new_figure, scaled
from lib.panels import depth_panels, layer_of, name_ends, scale_y, set_panel_title, step_panel, when_shown, write_unit
from lib.groups import shared_settings
from lib.runs import np
from lib.sites import UNLOGGED, LoggedSteps

# The panels' title and unit, and whether the axis is logarithmic (None: if values span decades).
MEASURES = {"entropy": ("Entropy", "entropy of weights (nats)", False),
            "first_share": ("Attention sink", "weight on the first token", False),
            "max_logit": ("Logits", "largest q·k / √D", None)}
# The value for a query with uniform weights on the t tokens that it sees.
UNIFORM = {"entropy": math.log, "first_share": lambda t: 1 / t}
NOTE = "Lines: mean over a block's heads; bands: from the smallest to the largest; dotted: uniform weights."


class Head(LoggedSteps):
    """One head of every block: each of MEASURES as an array (steps, layers 0..L), layer 0 NaN."""
    file = "heads.csv"

    def __init__(self, run, rows):
        values, _ = self.set_values(run, rows, MEASURES)
        self.is_finite = np.isfinite(values[:, :, 1:]).all(axis=(0, 2))


def heads(run):
    """The heads that a run has logged."""
    rows = run.rows("heads.csv", ("step", "layer", *MEASURES, "head"), UNLOGGED)
    return [Head(run, rows[rows[:, -1] == head]) for head in np.unique(rows[:, -1])]


def uniform_levels(measure, context):
    """[mean over queries of the measure of uniform weights]; empty if that is not known."""
    if not context or measure not in UNIFORM:
        return []
    return [np.mean([UNIFORM[measure](t) for t in range(1, context + 1)])]


@drawing
def plot(groups, step=None):
    """The figure: each of MEASURES against depth, at `step` (None: the last), for each of `facets`; right of it, if
    more than one step was logged and there is one facet, that of the last block against the step."""
    series = {group: sum(map(heads, group.runs), []) for group in groups}
    every, faceted, names = sum(series.values(), []), facets(groups), end_names(groups)
    over_time = max(head.steps.size for head in every) > 1 and len(faceted) == 1
    panels_each = len(faceted) + over_time  # panels of a measure
    count = len(MEASURES) * panels_each
    columns = 2 if len(faceted) % 3 else 3  # so that the panels of a measure begin a row
    deepest = max(head.entropy.shape[1] for head in every) - 1
    figure, axes = new_figure(math.ceil(count / columns), columns, 3.45, "What the attention heads do",
                              shared_settings(groups) + (f" · {when_shown(every, step)}" if len(faceted) > 1 else ""),
                              group_handles(groups, deepest), names=names, notes=[NOTE], panels=count)
    contexts = {group.runs[0].value("model.context") for group in groups}
    context = contexts.pop() if len(contexts) == 1 else None
    for number, (measure, (name, unit, log)) in enumerate(MEASURES.items()):
        panels, pick = axes[number * panels_each:(number + 1) * panels_each], attrgetter(measure)
        drawn = depth_panels(panels, faceted, name, series, pick, step, first=1)
        if over_time:
            set_panel_title(panels[-1], f"{name} during training, last block")
            drawn += step_panel(panels[-1], groups, list(series.values()), layer_of(pick, -1))
        uniform = uniform_levels(measure, context)
        for panel in panels:  # one scale for all panels of a measure
            for height in uniform:
                panel.axhline(height, color=MUTED, linewidth=scaled(1.2), linestyle=DOTS, zorder=1)
            scale_y(panel, uniform + drawn, log)
            write_unit(panel, unit)
            name_ends(panel, names)
    for panel in axes[count:]:
        panel.remove()
    return figure
