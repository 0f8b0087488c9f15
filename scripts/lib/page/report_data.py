"""The data that the page's script draws: the rows of the runs, thinned so that a page of thirty runs is small."""

import math

from lib.base.command import ScriptError
from lib.figures import plot_loss
from lib.figures.layout import with_diverged
from lib.figures.panels import thinned
from lib.logs import np
from lib.logs.sites import every_site
from lib.page.report_page import css_dash

# The most values of a run: of its layers, of its training loss, of its validation loss.
MOST_NUMBERS, MOST_LOSSES, MOST_VALIDATIONS = 10_000, 300, 60


def rounded(value, digits=3):
    """A number with the digits that the page needs; None if it is not finite, which JSON cannot hold."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def layers_of(run):
    """{"steps", "layers", "sites": {site: {"rms", "grad"}}}: a list of steps, the number of layers 0 … L, and lists of
    a row of layers for each step; all empty if the run has logged none."""
    try:
        sites = every_site(run)
    except ScriptError:
        return {"steps": [], "layers": 0, "sites": {}}
    stream = sites["stream"]
    rows = thinned(stream.steps.size, MOST_NUMBERS // (2 * stream.rms.shape[1] * len(sites)))

    def lists(values):
        return [[rounded(value) for value in row] for row in values[rows]]

    complete = {name: site for name, site in sites.items() if site.steps.size == stream.steps.size}
    return {"steps": stream.steps[rows].tolist(), "layers": stream.rms.shape[1],
            "sites": {name: {"rms": lists(site.rms), "grad": lists(site.grad)} for name, site in complete.items()}}


def losses_of(run):
    """{"train", "val"}: lists of [step, loss, tokens, seconds], with None for a loss that is not finite and for seconds
    that were not logged."""
    try:
        rows = run.rows("metrics.csv", ("step", "train_loss", "val_loss", "tokens"), "not a training run")
    except ScriptError:
        return {"train": [], "val": []}
    seconds = {step: rounded(value, 5) for step, value in run.progress("seconds")}

    def points(indices, column):
        return [[int(row[0]), rounded(row[column], 5), int(row[3]), seconds.get(row[0])] for row in rows[indices]]

    def kept(rows_of_loss, column, most):  # and the largest, as the page says how far a curve leaves it
        if not rows_of_loss.size:
            return []
        largest = np.where(np.isfinite(rows[:, column]), rows[:, column], -np.inf).argmax()
        return np.union1d(rows_of_loss[thinned(rows_of_loss.size, most)], largest)

    train = kept(np.arange(len(rows)), 1, MOST_LOSSES)
    validated = kept(np.flatnonzero(~np.isnan(rows[:, 2])), 2, MOST_VALIDATIONS)
    return {"train": points(train, 1), "val": points(validated, 2)}


def page_data(groups):
    """{"groups", "runs", "steps", "levels", "loss"}, all that page.js reads: the labels and styles of the groups, the
    rows of the runs, all logged steps, the reference levels, and (low, high, log) of the loss axis."""
    runs = [{"group": index, "diverged": run.diverged_at() if run.diverged else None, **layers_of(run),
             **losses_of(run)} for index, group in enumerate(groups) for run in group.runs]
    curves = [[np.array([loss for _, loss, *_ in run[kind]], float) for run in runs] for kind in ("train", "val")]
    trained = [run for group in groups for run in group.runs if not run.probe]
    levels = plot_loss.common_levels(trained) if trained else {}
    guess = max(map(math.log, plot_loss.vocabularies(trained)), default=None)
    return {
        "groups": [{"label": group.label, "color": group.color, "dash": css_dash(group.dash),
                    "lead": with_diverged(group.lead, groups), "rest": group.rest, "panel": group.panel}
                   for group in groups],
        "runs": runs, "steps": sorted({step for run in runs for step in run["steps"]}), "levels": levels,
        "loss": plot_loss.limits(*curves, levels, guess)}
