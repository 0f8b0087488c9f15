"""The data that the page's script draws: the rows of the runs, thinned so that thirty runs make a small page."""

import math

from lib import plot_loss
from lib.figures import with_diverged
from lib.report_page import css_dash
from lib.runs import ScriptError, np
from lib.sites import every_site

MOST_NUMBERS, MOST_LOSSES = 10_000, 300  # of a run: values of its layers; rows of its loss


def number(value, digits=3):
    """A number as the page shows it; None if it is not finite, which JSON cannot hold."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def thinned(count, most):
    """At most about `most` of the places 0 … count − 1, evenly apart, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 2))).round().astype(int))


def sites_of(run):
    """{"steps", "layers", "sites": {site: {"rms", "grad"}}}: lists of a row a step, layers 0 … L; nothing where the run has logged
    none."""
    try:
        sites = every_site(run)
    except ScriptError:
        return {"steps": [], "layers": 0, "sites": {}}
    stream = sites["stream"]
    rows = thinned(stream.steps.size, MOST_NUMBERS // (2 * stream.rms.shape[1] * len(sites)))
    table = {name: {kind: [[number(value) for value in values] for values in getattr(site, kind)[rows]] for kind in ("rms", "grad")}
             for name, site in sites.items() if site.steps.size == stream.steps.size}
    return {"steps": stream.steps[rows].tolist(), "layers": stream.rms.shape[1], "sites": table}


def has_column(run, name, column):
    """Whether the header of a run's log names this column; False where there is no log."""
    try:
        with open(run.folder / name, encoding="utf-8", errors="replace") as file:
            return column in file.readline().rstrip("\n").split(",")
    except FileNotFoundError:
        return False


def losses_of(run):
    """{"train", "val"}: lists of [step, loss, tokens, seconds], where a loss that is not finite and seconds that were not logged
    are None."""
    columns = ("step", "train_loss", "val_loss", "tokens", "seconds")
    try:
        rows = run.rows("metrics.csv", columns[:4 + has_column(run, "metrics.csv", "seconds")], "not a training run")
    except ScriptError:
        return {"train": [], "val": []}

    def points(kept, column):
        return [[int(row[0]), number(row[column], 5), int(row[3]), number(row[4], 5) if len(row) > 4 else None] for row in rows[kept]]

    validated = np.flatnonzero(~np.isnan(rows[:, 2]))
    return {"train": points(thinned(len(rows), MOST_LOSSES), 1), "val": points(validated[thinned(validated.size, 60)], 2)
            if validated.size else []}


def page_data(groups):
    """Everything that the page's script reads."""
    runs = [{"group": number, "diverged": run.lost_at() if run.diverged else None, **sites_of(run), **losses_of(run)}
            for number, group in enumerate(groups) for run in group.runs]
    curves = [np.array([loss for _, loss, *_ in run[kind]], float) for run in runs for kind in ("train", "val")]
    trained = [run for group in groups for run in group.runs if not run.probe]
    levels = plot_loss.common_levels(trained) if trained else {}
    guess = max(map(math.log, plot_loss.vocabularies(trained)), default=None)
    return {
        "groups": [{"label": g.label, "color": g.color, "dash": css_dash(g.dash), "lead": with_diverged(g.lead, groups),
                    "rest": g.rest, "panel": g.panel} for g in groups],
        "runs": runs, "steps": sorted({step for run in runs for step in run["steps"]}), "levels": levels,
        "loss": plot_loss.limits(curves, levels, guess)}
