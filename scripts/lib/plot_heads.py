"""Plots what the attention heads of each block do: how widely a query attends, which share of its weight the first
token gets, and how large logits are."""

import math
from operator import attrgetter

from lib.figures import DOTS, MUTED, drawing, end_names, facets, group_handles, new_figure, points
from lib.panels import depth_panel, name_ends, say, scale_y, set_panel_title, step_panel, when_shown
from lib.groups import shared_settings
from lib.runs import np
from lib.sites import UNLOGGED, LoggedSteps, layer_count

# The panels' title and unit, and whether the axis is logarithmic (None: where values span decades).
MEASURES = {"entropy": ("Entropy", "entropy of weights (nats)", False),
         "first_share": ("Attention sink", "weight on the first token", False), "max_logit": ("Logits", "largest q·k / √D", None)}
# The value for a query with uniform weights on the t tokens that it sees.
UNIFORM = {"entropy": math.log, "first_share": lambda t: 1 / t}
NOTE = "Lines: mean over a block's heads; bands: from the smallest to the largest; dotted: uniform weights."


class Head(LoggedSteps):
    """One head of every block: each of MEASURES as an array (steps, layers 0..L), layer 0 NaN."""
    file = "heads.csv"

    def __init__(self, run, rows):
        self.run = run
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        values = np.full((len(MEASURES), self.steps.size, layer_count(run, layers)), np.nan)
        values[:, at, layers] = rows[:, 3:].T
        vars(self).update(zip(MEASURES, values))
        self.is_finite = np.isfinite(values[:, :, 1:]).all(axis=(0, 2))


def heads(run):
    """The heads that a run has logged."""
    rows = run.rows("heads.csv", ("step", "layer", "head", *MEASURES), UNLOGGED)
    return [Head(run, rows[rows[:, 2] == head]) for head in np.unique(rows[:, 2])]


def last_block(kind):
    return lambda head: getattr(head, kind)[:, -1]


@drawing
def plot(groups, step=None):
    """The figure: each of MEASURES against depth, at `step` (None: the last), for each of `facets`; beside it, where more
    than one step was logged and there is one facet, the last block's against the step."""
    series = {group: sum(map(heads, group.runs), []) for group in groups}
    every, parts, names = sum(series.values(), []), facets(groups), end_names(groups)
    over_time = max(head.steps.size for head in every) > 1 and len(parts) == 1
    when, count = when_shown(every, step), len(MEASURES) * (len(parts) + over_time)
    columns = 2 if len(parts) % 3 else 3  # a kind begins a row
    figure, axes = new_figure(math.ceil(count / columns), columns, 3.45, "What the attention heads do",
                              shared_settings(groups) + (f" · {when}" if len(parts) > 1 else ""),
                              group_handles(groups, max(head.entropy.shape[1] for head in every) - 1), names=names, notes=[NOTE],
                              panels=count)
    panels = iter(axes)
    contexts = {group.runs[0].value("model.context") for group in groups}
    context = contexts.pop() if len(contexts) == 1 else None
    for kind, (name, unit, log) in MEASURES.items():
        drawn = []  # (panel, the rows drawn in it)
        for title, members in parts:
            panel = next(panels)
            set_panel_title(panel, f"{name} by depth, {title or when}")
            drawn.append((panel, depth_panel(panel, members, [series[group] for group in members], attrgetter(kind), step, first=1)))
        if over_time:
            panel = next(panels)
            set_panel_title(panel, f"{name} during training, last block")
            drawn.append((panel, step_panel(panel, groups, list(series.values()), last_block(kind))))
        even = [np.mean([UNIFORM[kind](t) for t in range(1, context + 1)])] if context and kind in UNIFORM else []
        for panel, _ in drawn:  # one scale for all panels of a kind
            for height in even:
                panel.axhline(height, color=MUTED, linewidth=points(1.2), linestyle=DOTS, zorder=1)
            scale_y(panel, even + sum((rows for _, rows in drawn), []), log)
            say(panel, unit)
            name_ends(panel, names)
    for panel in panels:
        panel.remove()
    return figure
