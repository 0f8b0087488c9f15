"""What layers.csv and params.csv say of a run's sites: the residual stream, and the branches that join it."""

import math

from keys import NORMS, PLACEMENTS, factor
from runs import PlotError, np

FIRST = "first"
UNLOGGED = "set log.layers_every above 0 and train again"
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


class Site(Steps):
    """One site of a run: `rms` and `grad` as arrays (steps, layers 0..L), NaN for a layer without it; `first`: the
    first layer that has it."""

    def __init__(self, run, site="stream", rows=None):
        self.run = run
        rows = rows if rows is not None else _rows(run, (site,))
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers = rows[:, 1].astype(int)
        self.first = layers.min()
        self.rms, self.grad = np.full((2, self.steps.size, layers.max() + 1), np.nan)
        self.rms[at, layers], self.grad[at, layers] = rows[:, 2], rows[:, 3]
        self.whole = np.isfinite(self.rms[:, self.first:] + self.grad[:, self.first:]).all(axis=1)


def _rows(run, names):
    return run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), UNLOGGED, keep=("site", names))


def every_site(run):
    """{name: Site} of the sites that the run has logged, in their order, of one reading."""
    rows = _rows(run, SITES)
    return {name: Site(run, name, rows[rows[:, 4] == i]) for i, name in enumerate(SITES) if (rows[:, 4] == i).any()}


class Branches(Steps):
    """How large what a sublayer adds is beside the stream it joins, rms over rms: `attention` and `ffn` as arrays
    (steps, layers 0..L), layer 0 NaN. `placements`: those of each block.

    layers.csv holds a sublayer's output F before dropout, scale and norm. What is added is F; where the placement has a
    scale c, learned ones of params.csv, cF; where it has a norm on the branch, cN(F). It is added to αx, α being the
    placement's. rms(N(F)) is not logged. It follows from the norm's gain and bias in params.csv if features are normalised alike:
    √(rms(γ)² F²/(F² + ε) + rms(β)²). At initialisation that is exact but for ε; later it is an estimate (after 300
    steps of deep_pre.json within 2% for each of the three). For dyt it is not known: NaN. Dropout is taken at its
    expectation. Without a residual sum nothing is joined: NaN throughout."""

    def __init__(self, run):
        self.run = run
        names = ("stream", "stream_mid", "attn_out", "ffn_out")
        rows = run.rows("layers.csv", ("step", "layer", "rms"), UNLOGGED, keep=("site", names))
        self.steps, at = np.unique(rows[:, 0].astype(int), return_inverse=True)
        layers, site = rows[:, 1].astype(int), rows[:, 3].astype(int)
        rms = np.full((len(names), self.steps.size, layers.max() + 1), np.nan)
        rms[site, at, layers] = rows[:, 2]
        stream, middle, attention, ffn = rms
        self._model = run.config.get("model", {})
        self.placements = placements(self._model, layers.max())
        self._parameters = {}
        rows = [PLACEMENTS[name] for block in self.placements for name in block]
        self._learned = self._model.get("branch_scale_learned", "none") != "none"
        if self._learned or any(row["learned_scale"] or row["norm_branch"] for row in rows):
            self._parameters = _norms_and_scales(run, self.steps, layers.max())
        joined = np.full_like(stream, np.nan)
        joined[:, 1:] = stream[:, :-1]
        with np.errstate(invalid="ignore", over="ignore"):  # of a diverged step: inf / inf is NaN, not drawn
            self.attention = self._added("attn", attention) / self._alpha(0, joined)
            self.ffn = self._added("ffn", ffn) / self._alpha(1, middle)
        if self._model.get("residual", True) is False:
            self.attention[:], self.ffn[:] = np.nan, np.nan
        self.whole = np.isfinite(self.attention[:, 1:] + self.ffn[:, 1:]).all(axis=1)

    @property
    def estimated(self):
        """Whether a norm stands between a sublayer and the sum, so that the size is an estimate."""
        return self._model.get("norm") != "none" and any(
            PLACEMENTS[name]["norm_branch"] for block in self.placements for name in block)

    def _alpha(self, sublayer, stream):
        """The stream as it enters the sum of the sublayer, 0 or 1; 0 becomes NaN."""
        depth = len(self.placements)
        stream = stream * np.array([1] + [factor(PLACEMENTS[block[sublayer]]["alpha"], depth) for block in self.placements])
        return np.where(stream > 0, stream, np.nan)

    def _added(self, sublayer, output):
        """The rms of what the sublayer adds, of its output's rms; arrays (steps, layers 0..L)."""
        model, dropout = self._model, 0 if self.run.probe else self._model.get("dropout", 0)
        added = output / math.sqrt(1 - dropout)
        for block, placement in enumerate(self.placements, start=1):
            start, row = f"blocks.{block - 1}.{sublayer}_", PLACEMENTS[placement[sublayer == "ffn"]]
            if row["norm_branch"] and model.get("norm") != "none":
                norm = start + ("post_norm" if row["norm_in"] else "norm")
                gain, bias = self._parameter(norm + ".weight", 1.0), self._parameter(norm + ".bias", 0.0)
                epsilon = model.get("norm_eps", 1e-5)
                square = output[:, block] ** 2
                normed = (square / (np.sqrt(square) + epsilon) ** 2 if model.get("norm_eps_outside")
                          else square / (square + epsilon))
                known = NORMS[model.get("norm", "layernorm")]["over"] != "nothing"
                added[:, block] = np.sqrt(gain ** 2 * normed + bias ** 2) if known else np.nan
            if row["learned_scale"] or self._learned:
                added[:, block] *= self._parameter(start + "scale", 0.0)
            else:
                added[:, block] *= branch_scale(model, len(self.placements))
        return added

    def _parameter(self, name, absent):
        """A parameter's rms at each step, before the step's update; `absent` if the model has no such parameter."""
        return self._parameters.get(name, absent)


def branch_scale(model, depth):
    """What a branch is multiplied by, of model.branch_scale: a number, or "L^-0.5"."""
    written = model.get("branch_scale", 1)
    return depth ** float(written[2:]) if isinstance(written, str) else written


def placements(model, depth):
    """[attention's placement, the FFN's] of each block, patterns such as `mix` resolved."""
    written = model.get("norm_placement", "pre")
    pattern = PLACEMENTS[written]["pattern"] if isinstance(written, str) else None
    if pattern:
        first = {"none": 0, "one": 1, "mix_post_fraction": math.ceil(model.get("mix_post_fraction", 0.25) * depth - 1e-9)}
        count = first[pattern["first_blocks"]]
        return [pattern["first"]] * count + [pattern["rest"]] * (depth - count)
    entries = written if isinstance(written, list) and len(written) == depth else [written] * depth
    return [[entry["attn"], entry["ffn"]] if isinstance(entry, dict) else [entry, entry] for entry in entries]


def _norms_and_scales(run, steps, depth):
    """{parameter: rms at each of the steps} for what a branch is multiplied with; NaN where params.csv has no row. A
    norm without gain has no entry."""
    names = [f"blocks.{i}.{sublayer}_{part}" for i in range(depth) for sublayer in ("attn", "ffn")
             for part in ("scale", "norm.weight", "norm.bias", "post_norm.weight", "post_norm.bias")]
    table = {}
    for step, rms, number in run.rows("params.csv", ("step", "rms"), UNLOGGED, keep=("param", names), some=False):
        table.setdefault(names[int(number)], np.full(steps.size, np.nan))[steps == step] = rms
    return table
