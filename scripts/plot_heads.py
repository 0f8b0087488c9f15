#!/usr/bin/env python3
"""Plots what the attention heads of each block do: how widely a query attends, how much of it goes to the first token, and how
large logits and queries are."""

import math
from operator import attrgetter

from lib.figures import DOTS, MUTED, drawing, end_names, facets, group_handles, new_figure, points
from lib.panels import band, depth_panel, end_mark, entitle, mark_beyond, name_ends, say, scale_y, step_panel, when_shown
from lib.plot_command import command, loader
from lib.runs import main, np, shared_settings
from lib.sites import UNLOGGED, Steps

EXAMPLES = """examples:
  scripts/plot_heads.py                                    the newest run and its kin
  scripts/plot_heads.py runs/quickstart/pre runs/quickstart/post -o heads.png
  scripts/plot_heads.py runs/deep_pre-probe                at initialisation
"""
KINDS = {"entropy": ("Entropy", "entropy of a query's weights (nats)"), "first_share": ("Attention sink", "weight on the first token"),
         "max_logit": ("Logits", "largest q·k / √D"), "q_rms": ("Queries", "rms over tokens and features (units)")}
# Of a query that attends alike to all of the t tokens it sees.
UNIFORM = {"entropy": math.log, "first_share": lambda t: 1 / t}
NOTE = "Lines: mean over a block's heads; bands: from the smallest to the largest; dotted: uniform weights."


class Head(Steps):
    """One head of every block: each of KINDS as an array (steps, layers 0..L), layer 0 NaN."""
    file = "heads.csv"

    def __init__(self, run, rows):
        self.run = run
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        values = np.full((len(KINDS), self.steps.size, layers.max() + 1), np.nan)
        values[:, at, layers] = rows[:, 3:].T
        vars(self).update(zip(KINDS, values))
        self.whole = np.isfinite(values[:, :, 1:]).all(axis=(0, 2))


def heads(run):
    """The heads that a run has logged."""
    rows = run.rows("heads.csv", ("step", "layer", "head", *KINDS), UNLOGGED)
    return [Head(run, rows[rows[:, 2] == head]) for head in np.unique(rows[:, 2])]


def last_block(kind):
    return lambda head: getattr(head, kind)[:, -1]


@drawing
def plot(groups, step=None):
    """The figure: each of KINDS against depth, at `step` (None: the last), for each of `facets`; below, where more than one step
    was logged and there is one facet, the last block's against the step."""
    series = {group: sum(map(heads, group.runs), []) for group in groups}
    every, parts, names = sum(series.values(), []), facets(groups), end_names(groups)
    over_time = max(head.steps.size for head in every) > 1 and len(parts) == 1
    when = when_shown(every, step)
    figure, axes = new_figure(2 * len(parts) + 2 * over_time, 2, 3.45, "What the attention heads do",
                              shared_settings(groups) + (f" · {when}" if len(parts) > 1 else ""),
                              group_handles(groups, max(head.entropy.shape[1] for head in every) - 1), names=names, notes=[NOTE])
    panels = iter(axes)
    drawn = {kind: [] for kind in KINDS}  # (panel, what of it must be seen)
    for title, members in parts:
        for kind, (name, _) in KINDS.items():
            panel = next(panels)
            entitle(panel, f"{name} by depth, {title or when}")
            drawn[kind].append((panel, depth_panel(panel, members, [series[group] for group in members], attrgetter(kind), step,
                                                   first=1)))
    for kind, panel in zip(KINDS, panels):
        entitle(panel, f"{KINDS[kind][0]} during training, last block")
        drawn[kind].append((panel, step_panel(panel, groups, list(series.values()), last_block(kind))))
    contexts = {group.runs[0].value("model.context") for group in groups}
    context = contexts.pop() if len(contexts) == 1 else None
    for kind, (_, unit) in KINDS.items():
        even = [np.mean([UNIFORM[kind](t) for t in range(1, context + 1)])] if context and kind in UNIFORM else []
        for panel, _ in drawn[kind]:  # one scale for all panels of a kind
            for height in even:
                panel.axhline(height, color=MUTED, linewidth=points(1.2), linestyle=DOTS, zorder=1)
            scale_y(panel, even + sum((rows for _, rows in drawn[kind]), []))
            mark_beyond(panel)
            say(panel, unit)
            name_ends(panel, names)
        if over_time:
            for group in groups:
                for run in group.diverged:  # a mark a run, where the mean over its heads ends
                    of_run = [head for head in series[group] if head.run is run]
                    mean = band(np.stack([last_block(kind)(head) for head in of_run]))[0]
                    end_mark(drawn[kind][-1][0], of_run[0].steps, mean, group.color)
    return figure


load = loader("heads.csv", plot)


def run():
    """Reads the command line and writes the picture."""
    command(__doc__, EXAMPLES, "heads.csv", "heads.png", plot, [
        ("--step", {"type": int, "metavar": "N", "help": "step of the panels by depth (default: the last logged)"})])


if __name__ == "__main__":
    main(run)
