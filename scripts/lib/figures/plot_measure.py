"""Plots a measure of the weights that a run has kept, layer by layer: scripts/measure.py defines the measures."""

from lib.figures import curves
from lib.figures.curves import Measure, Picture
from lib.logs import np
from lib.logs.run_weights import kept_weights
from lib.logs.sites import FIRST, LoggedSteps
from lib.model.measures import LAYERS, Model, measure

OF_BLOCKS = ("dead", "influence")  # layer 0, the embedding, has none


class Kept(LoggedSteps):
    """A measure of the kept weights of a run: `value` as an array (steps, layers 0..L), NaN for a layer without it.
    ScriptError: the run has kept none."""
    file = "weights"

    def __init__(self, run, name):
        rows = [[step, row["layer"], np.nan if row[name] is None else row[name]]
                for step, file in kept_weights(run.folder).items() for row in measure(Model(file), [name])["layers"]]
        values, _ = self.set_values(run, np.array(rows, float), ("value",))
        self.is_finite = np.isfinite(values[0, :, 1:]).all(1)


def plot(groups, metric="rank", **options):
    """The figure: the measure `metric` at the first and the last kept step by depth, and during training. Other
    options: those of curves.plot."""
    name = metric.replace("_", " ")
    picture = Picture(f"Measured from kept weights: {name}", lambda run: [Kept(run, metric)],
                      [Measure(name.capitalize(), "value", f"{name}, as scripts/measure.py has it", None, (1, -1))],
                      first=int(metric in OF_BLOCKS), steps=(FIRST, None))
    return curves.plot(picture, groups, **options)


METRIC = ("--metric", {"choices": LAYERS, "default": "rank", "metavar": "NAME",
                       "help": f"what to measure: {', '.join(LAYERS)} (default: rank)"})
