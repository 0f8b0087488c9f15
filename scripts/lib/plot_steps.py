"""Plots the norm of the whole gradient before clipping, and the factor of clipping, against the step."""

from operator import attrgetter

from lib.drawing import drawing
from lib.figures import end_names, facets, group_handles, new_figure
from lib.panels import mark_diverged, name_ends, scale_y, set_panel_title, step_panel, write_unit
from lib.groups import shared_settings

# Columns of panels: title, unit, and member of Steps.
PANELS = (("Norm of the gradient", "before clipping (nats per unit)", "norm"),
          ("Clipping", "factor on the gradient; 1: none", "clip"))


class Steps:
    """The rows of a run's metrics.csv: `steps`, `norm` (nats per unit) and `clip`, the factor min(1, c/norm)."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("metrics.csv", ("step", "grad_norm", "clip_factor"), "a probe does not train")
        self.steps, self.norm, self.clip = rows[:, 0].astype(int), rows[:, 1], rows[:, 2]


@drawing
def plot(groups):
    """The figure: norm and clip factor against the step, a row for each of `facets`."""
    faceted, names = facets(groups), end_names(groups)
    figure, axes = new_figure(len(faceted), 2, 3.45, "Gradient norm and clipping", shared_settings(groups),
                              group_handles(groups), names=names)
    series = {group: [Steps(run) for run in group.runs] for group in groups}
    for column, (title, unit, pick) in enumerate(PANELS):
        panels, pick = axes[column::2], attrgetter(pick)
        drawn = []
        for panel, (facet, members) in zip(panels, faceted):
            set_panel_title(panel, f"{title}, {facet}" if facet else title)
            write_unit(panel, unit)
            drawn += step_panel(panel, members, [series[group] for group in members], pick)
        for panel, (_, members) in zip(panels, faceted):  # one scale for all facets
            scale_y(panel, drawn, log=column == 0 or None)
            mark_diverged(panel, members, [series[group] for group in members], pick)
            name_ends(panel, names)
    return figure
