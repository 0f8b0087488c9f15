"""The values of layers.csv at a run's sites: the residual stream, and the branches that join it."""

from lib.base.command import ScriptError, printable
from lib.logs import np
from lib.logs.runs import UNLOGGED

FIRST = "first"
ROUNDING = 2.0**-24  # a cosine that is so near to 1 is 1 in float32
# Of a block, as src/engine/core/sites.h has them; layer L + 1 has HEAD_SITES.
SITES = ("stream", "attn_in", "attn_out", "stream_mid", "ffn_in", "ffn_hidden", "ffn_out")
HEAD_SITES = ("final", "logits")


def first_nonfinite(run):
    """ "the gradient of block 1 ffn_hidden": the tensor that became non-finite first, as summary.json has it, or ""."""
    first = run.summary.get("first_nonfinite")
    if not isinstance(first, dict) or not isinstance(first.get("layer"), int):
        return ""
    tensor = first.get("param") or site_text(first["layer"], first.get("site"), run.value("model.n_layer"))
    return ("the gradient of " if first.get("kind") == "gradient" else "") + printable(tensor)


def site_text(layer, site, depth):
    """A site in words: "block 1 ffn_hidden", "the embedding"; `depth`: the number of blocks."""
    ends = {0: "the embedding", depth + 1: "the final activation" if site == "final" else f"the {site}"}
    return ends.get(layer, f"block {layer} {site}")


class LoggedSteps:
    """The logged steps of a run. Subclasses set `run`, `steps`, an array, and `is_finite`, an array that is True for
    steps whose values are all finite. `file`: the log that they are read from."""
    file = "layers.csv"

    def set_values(self, run, rows, names):
        """Sets `run`, `steps`, and for each name an array (steps, layers 0..L) from rows (step, layer, value of each
        name). Of several rows of a step and layer one has the value, the others NaN; NaN stands where there is no row.
        Returns these arrays as one, and the layers of the rows."""
        self.run = run
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        # Of the config, as the rows of a killed run may end within a step; of the rows if the config is damaged.
        depth = max(run.value("model.n_layer"), layers.max())
        values = np.full((len(names), self.steps.size, depth + 1), np.nan)
        np.fmax.at(values, (slice(None), at, layers), rows[:, 2:2 + len(names)].T)
        vars(self).update(zip(names, values))
        return values, layers

    def index(self, step):
        """The index of a step in `steps`. None: the last step with only finite values, or the last step. FIRST: the
        first step. ScriptError: the step was not logged."""
        if step == FIRST:
            return 0
        if step is None:
            finite = np.flatnonzero(self.is_finite)
            return finite[-1] if finite.size else -1
        indices = np.flatnonzero(self.steps == step)
        if not indices.size:
            nearest = sorted(sorted(self.steps, key=lambda logged: abs(logged - step))[:2])
            raise ScriptError(f"{self.run}: no row of step {step} in {self.file}; nearest: "
                              + " and ".join(map(str, nearest)))
        return indices[0]


class Site(LoggedSteps):
    """One site of a run: `rms` and `grad` as arrays (steps, layers 0..L), NaN for a layer without it; `first`: the
    first layer that has it."""

    def __init__(self, run, site="stream", rows=None):
        values, layers = self.set_values(run, _rows(run, (site,)) if rows is None else rows, ("rms", "grad"))
        self.first = layers.min()
        self.is_finite = np.isfinite(values[:, :, self.first:]).all(axis=(0, 2))


def _rows(run, names):
    return run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names))


def every_site(run):
    """{name: Site} of the sites that the run has logged, in the order of SITES; reads the file once."""
    rows = _rows(run, SITES)
    return {name: Site(run, name, rows[rows[:, 4] == i]) for i, name in enumerate(SITES) if (rows[:, 4] == i).any()}


class TokenCosine(LoggedSteps):
    """The mean cosine between the residual stream's vectors of two tokens: `cosine` as an array (steps, layers 0..L),
    the mean of cos(x_i, x_j) over pairs of different positions i, j of a sequence, averaged over sequences. `apart`:
    1 − cosine, at least float32's rounding."""

    def __init__(self, run):
        rows = run.rows("layers.csv", ("step", "layer", "token_cosine"), UNLOGGED, keep=("site", ("stream",)))
        values, _ = self.set_values(run, rows, ("cosine",))
        self.is_finite = np.isfinite(values).all(axis=(0, 2))
        self.apart = np.maximum(1 - values[0], ROUNDING)


class Branches(LoggedSteps):
    """The rms of each sublayer's output, as added, over the rms of the stream that it joins, from the column
    `branch_share`: `attention` and `ffn` as arrays (steps, layers 0..L), NaN for layer 0 and without a residual sum."""

    def __init__(self, run):
        rows = run.rows("layers.csv", ("step", "layer", "branch_share"), UNLOGGED,
                        keep=("site", ("attn_out", "ffn_out")))
        shares = np.where(rows[:, 3:] == (0, 1), rows[:, 2:3], np.nan)
        self.set_values(run, np.hstack([rows[:, :2], shares]), ("attention", "ffn"))
        self.is_finite = np.isfinite(self.attention[:, 1:] + self.ffn[:, 1:]).all(axis=1)

