"""What layers.csv says of a run's sites: the residual stream, and the branches that join it."""

import math

from lib.keys import PLACEMENTS
from lib.runs import UNLOGGED, PlotError, np

FIRST = "first"
SITES = ("stream", "attn_in", "attn_out", "stream_mid", "ffn_in", "ffn_hidden", "ffn_out")


class Steps:
    """The logged steps of a run. Those who inherit set `steps` and, from their values, `whole`: at which steps every
    value is finite. `file`: where they were logged."""
    file = "layers.csv"

    def index(self, step):
        """The row of `step`; None: the last one that is finite throughout, or else the last; FIRST: the first."""
        if step == FIRST:
            return 0
        if step is None:
            good = np.flatnonzero(self.whole)
            return good[-1] if good.size else -1
        found = np.flatnonzero(self.steps == step)
        if not found.size:
            near = sorted(sorted(self.steps, key=lambda s: abs(s - step))[:2])
            raise PlotError(f"{self.run}: no row of step {step} in {self.file}; nearest: "
                            f"{' and '.join(map(str, near))}")
        return found[0]


def layer_count(run, layers):
    """The layers of a run with the embedding: those of its config, as the rows of a killed run may end within a step."""
    return max(run.value("model.n_layer"), layers.max()) + 1


class Site(Steps):
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
        self.whole = np.isfinite(self.rms[:, self.first:] + self.grad[:, self.first:]).all(axis=1)


def _rows(run, names):
    return run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names))


def every_site(run):
    """{name: Site} of the sites that the run has logged, in their order, of one reading."""
    rows = _rows(run, SITES)
    return {name: Site(run, name, rows[rows[:, 4] == i]) for i, name in enumerate(SITES) if (rows[:, 4] == i).any()}


class TokenCosine(Steps):
    """How alike the residual stream's vectors of different tokens are: `cosine` as an array (steps, layers 0..L), the mean over pairs of
    different positions i, j of a sequence of cos(x_i, x_j), averaged over sequences."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("layers.csv", ("step", "layer", "token_cosine"), UNLOGGED, keep=("site", ("stream",)),
                        no_column="train again to log it, or see scripts/measure.py for the run's weights")
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        self.cosine = np.full((self.steps.size, layer_count(run, layers)), np.nan)
        self.cosine[at, layers] = rows[:, 2]
        self.whole = np.isfinite(self.cosine).all(axis=1)


class Branches(Steps):
    """How large what a sublayer adds is beside the stream that it joins, rms over rms, as layers.csv has it in `branch_share`:
    `attention` and `ffn` as arrays (steps, layers 0..L), NaN for layer 0 and without a residual sum. `placements`: those of
    each block."""

    def __init__(self, run):
        self.run = run
        rows = run.rows("layers.csv", ("step", "layer", "branch_share"), UNLOGGED, keep=("site", ("attn_out", "ffn_out")))
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers, sublayer = rows[:, 1].astype(int), rows[:, 3].astype(int)
        shares = np.full((2, self.steps.size, layer_count(run, layers)), np.nan)
        shares[sublayer, at, layers] = rows[:, 2]
        self.attention, self.ffn = shares
        self.placements = placements(run.config.get("model", {}), layers.max())
        self.whole = np.isfinite(self.attention[:, 1:] + self.ffn[:, 1:]).all(axis=1)


def placements(model, depth):
    """[attention's placement, the FFN's] of each block, patterns such as `mix` resolved."""
    written = model.get("norm_placement", "pre")
    pattern = PLACEMENTS[written]["pattern"] if isinstance(written, str) else None
    if pattern:
        first = {"none": 0, "one": 1, "mix_post_fraction": math.ceil(model.get("mix_post_fraction", 0.25) * depth - 1e-9)}
        count = first[pattern["first_blocks"]]
        written = [pattern["first"]] * count + [pattern["rest"]] * (depth - count)
    entries = written if isinstance(written, list) and len(written) == depth else [written] * depth
    return [[entry["attn"], entry["ffn"]] if isinstance(entry, dict) else [entry, entry] for entry in entries]
