"""The values of layers.csv at a run's sites: the residual stream, and the branches that join it."""

import math

from lib.command import ScriptError
from lib.keys import PLACEMENTS
from lib.runs import UNLOGGED, np

FIRST = "first"
SITES = ("stream", "attn_in", "attn_out", "stream_mid", "ffn_in", "ffn_hidden", "ffn_out")


class LoggedSteps:
    """The logged steps of a run. Subclasses set `steps`, and `is_finite`: True where all values of that step are
    finite. `file`: the file that they are read from."""
    file = "layers.csv"

    def index(self, step):
        """The place of `step` in `steps`; None: of the last step whose values are all finite, or else of the last;
        FIRST: of the first."""
        if step == FIRST:
            return 0
        if step is None:
            finite = np.flatnonzero(self.is_finite)
            return finite[-1] if finite.size else -1
        places = np.flatnonzero(self.steps == step)
        if not places.size:
            nearest = sorted(sorted(self.steps, key=lambda logged: abs(logged - step))[:2])
            raise ScriptError(f"{self.run}: no row of step {step} in {self.file}; nearest: "
                              + " and ".join(map(str, nearest)))
        return places[0]


def layer_count(run, layers):
    """The layers of a run with the embedding: those of its config, as the rows of a killed run may end within a
    step."""
    return max(run.value("model.n_layer"), layers.max()) + 1


class Site(LoggedSteps):
    """One site of a run: `rms` and `grad` as arrays (steps, layers 0..L), NaN for a layer without it; `first`: the
    first layer that has it."""

    def __init__(self, run, site="stream", rows=None):
        self.run = run
        rows = rows if rows is not None else _rows(run, (site,))
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        self.first = layers.min()
        self.rms, self.grad = np.full((2, self.steps.size, layer_count(run, layers)), np.nan)
        self.rms[at, layers], self.grad[at, layers] = rows[:, 2], rows[:, 3]
        self.is_finite = np.isfinite(self.rms[:, self.first:] + self.grad[:, self.first:]).all(axis=1)


def _rows(run, names):
    return run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names))


def every_site(run):
    """{name: Site} of the sites that the run has logged, in the order of SITES; the file is read once."""
    rows = _rows(run, SITES)
    return {name: Site(run, name, rows[rows[:, 4] == i]) for i, name in enumerate(SITES) if (rows[:, 4] == i).any()}


class TokenCosine(LoggedSteps):
    """How alike the residual stream's vectors of different tokens are: `cosine` as an array (steps, layers 0..L), the
    mean over pairs of different positions i, j of a sequence of cos(x_i, x_j), averaged over sequences."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("layers.csv", ("step", "layer", "token_cosine"), UNLOGGED, keep=("site", ("stream",)),
                        no_column="train again to log it, or see scripts/measure.py for the run's weights")
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        self.cosine = np.full((self.steps.size, layer_count(run, layers)), np.nan)
        self.cosine[at, layers] = rows[:, 2]
        self.is_finite = np.isfinite(self.cosine).all(axis=1)


class Branches(LoggedSteps):
    """The size of what each sublayer adds over that of the stream that it joins, rms over rms, which layers.csv has in
    `branch_share`: `attention` and `ffn` as arrays (steps, layers 0..L), NaN for layer 0 and without a residual sum.
    `placements`: those of each block."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("layers.csv", ("step", "layer", "branch_share"), UNLOGGED,
                        keep=("site", ("attn_out", "ffn_out")))
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers, sublayer = rows[:, 1].astype(int), rows[:, 3].astype(int)
        shares = np.full((2, self.steps.size, layer_count(run, layers)), np.nan)
        shares[sublayer, at, layers] = rows[:, 2]
        self.attention, self.ffn = shares
        self.placements = placements(run.config.get("model", {}), layers.max())
        self.is_finite = np.isfinite(self.attention[:, 1:] + self.ffn[:, 1:]).all(axis=1)


def placements(model, depth):
    """[attention's placement, the FFN's placement] of each block; patterns such as `mix` are resolved."""
    written = model.get("norm_placement", "pre")
    pattern = PLACEMENTS[written]["pattern"] if isinstance(written, str) else None
    if pattern:
        mixed = math.ceil(model.get("mix_post_fraction", 0.25) * depth - 1e-9)
        count = {"none": 0, "one": 1, "mix_post_fraction": mixed}[pattern["first_blocks"]]
        written = [pattern["first"]] * count + [pattern["rest"]] * (depth - count)
    entries = written if isinstance(written, list) and len(written) == depth else [written] * depth
    return [[entry["attn"], entry["ffn"]] if isinstance(entry, dict) else [entry, entry] for entry in entries]
