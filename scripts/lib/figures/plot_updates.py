"""Plots the size of each step's update over that of the weights that it changes, layer by layer and by their role."""

from lib.base.command import ScriptError
from lib.figures import curves
from lib.figures.curves import Extra, Measure, Picture
from lib.figures.layout import DOTS, MUTED
from lib.logs import np
from lib.logs.runs import UNLOGGED
from lib.logs.sites import LoggedSteps

ROLES = ("attention", "ffn", "vectors")
USUAL = 1e-3
UNIT = "rms of the update / rms of the weights"
NOTE = ("Dotted: 10⁻³, usual in a healthy run; far above it the rate is too high, far below it nothing moves. Block 0: "
        "the embeddings, the same in each panel; the final norm and a head of its own are left out.")


class Updates(LoggedSteps):
    """The rms of a step's update over that of the weights, of each role, as arrays (steps, layers 0..L): matrices of
    `attention` and `ffn`, gains and biases (`vectors`); layer 0 has the embeddings in each. ScriptError: the run is
    a probe, which makes no update."""
    file = "params.csv"

    def __init__(self, run):
        if run.probe:
            raise ScriptError(f"{run}: a probe does not train")
        sums = {}  # {(step, layer, role): [sum of squares of the update, of the weights]}
        for row in run.records(self.file, UNLOGGED):
            for role in roles_of(row["param"]):
                if row["layer"] <= run.value("model.n_layer"):
                    total = sums.setdefault((row["step"], row["layer"], role), np.zeros(2))
                    total += row["numel"] * np.square([row["update_rms"], row["rms"]])
        if not sums:
            raise ScriptError(f"{run}: {self.file} has no rows yet")
        places = dict.fromkeys((step, layer) for step, layer, _ in sums)
        rows = np.array([[*place, *(self._ratio(*sums.get((*place, role), (np.nan, np.nan))) for role in ROLES)]
                         for place in places])
        values, _ = self.set_values(run, rows, ROLES)
        self.is_finite = np.isfinite(values[:2]).all(axis=(0, 2))

    @staticmethod
    def _ratio(update, weights):
        return np.sqrt(update / weights) if weights > 0 else np.nan


def roles_of(name):
    """The roles of a tensor, of ROLES: that of its matrix, or all of an embedding's."""
    if name.startswith("embed."):
        return ROLES
    if not name.endswith(".weight") or "norm" in name or "_scale" in name:
        return ["vectors"]
    return ["attention" if ".attn." in name else "ffn"]


UPDATES = Picture("Size of each update over that of the weights", lambda run: [Updates(run)], (
    Measure("Attention", "attention", UNIT, True, (1, -1)), Measure("FFN", "ffn", UNIT, True, (1, -1)),
    Measure("Gains and biases", "vectors", UNIT, True, (1, -1))), by_measure=True)


def plot(groups, **options):
    """The figure: matrices of attention, of the FFN, and vectors, by depth and, right of it, in training. Options:
    those of curves.plot."""
    return curves.plot(UPDATES, groups, extras=lambda panel: [Extra(USUAL, MUTED, DOTS)], notes=[NOTE], **options)
