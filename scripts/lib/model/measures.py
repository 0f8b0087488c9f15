"""Measures of a model that need every tensor of one batch, and frozen norms. scripts/measure.py defines them."""

import json
import math
import tempfile
from pathlib import Path

from lib.base.command import ScriptError, argument, ask, printable
from lib.base.keys import require_every_key
from lib.logs import np, run_weights, safetensors_io
from lib.logs.run_text import require_text, split_text
from lib.model.forward import Decoder, cross_entropy

# Amplification: the number of draws, and the size d of the noise, far above float32's 2^-24 and far below 1.
DRAWS, NOISE = 8, 2.0 ** -12
# Sharpness: h / |w|, the largest residual over the value, and the largest number of Hessian-vector products.
DIFFERENCE, TOLERANCE, PRODUCTS = 3e-4, 1e-3, 100
CHARACTERS = 2048  # of the validation text, over which --freeze takes averages and losses


class Model:
    """A model and one batch. `weights`: {name: array}; `tensors`: every tensor of the batch, under the names of an
    exchange file; `streams`: x_0 ... x_L in double, (B, T, C) each; `path` and `step`: the file of the weights and the
    steps behind them. It is read from a run folder, a file of weights, or an exchange file. ScriptError: one that
    cannot be read or probed."""

    def __init__(self, path):
        path, tensors, metadata = run_weights.newest_weights(path)
        self.config = require_every_key(safetensors_io.parsed(path, metadata, "config"), path)
        self.step = metadata.get("step", "0")
        self.weights = run_weights.weights_among(tensors)
        self.file, self.path = path, printable(path)
        self.vocabulary, self.text_hash = metadata.get("vocab"), metadata.get("corpus", "")
        if "act.0.stream" in tensors:  # an exchange file
            self.tensors = tensors
            self._ask(str(path), "sample", argument(path), "--length", "0")  # reads all of it, and needs no text
        else:
            self.tensors = self.dump()
        layers = range(self.config["model"]["n_layer"] + 1)
        self.streams = [self.tensors[f"act.{layer}.stream"].astype(float) for layer in layers]

    def dump(self, weights=None):
        """Every tensor of the batch, computed by `normscope probe` from these weights at the model's step, or from its
        file, whose checksum the program verifies. ScriptError: the file is damaged, or the text has changed since the
        model was trained."""
        require_text(self.config["data"], self.text_hash, self.path)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
            file = self.file if weights is None else folder / "weights"
            if weights is not None:
                floats = {key: array.astype(np.float32) for key, array in weights.items()}
                safetensors_io.write(file, floats, {"step": self.step})
            self._ask(name, "probe", folder / "config.json", "--from", argument(file), "--dump", folder / "dump",
                      "--out", folder / "probe")
            return safetensors_io.read(folder / "dump")[0]

    def _ask(self, name, *arguments):
        """Runs the program, which verifies the checksum of the file that it reads. ScriptError: its message, with the
        model's path for the `name` in it."""
        process = ask(*arguments, purpose="computes and verifies tensors")
        if process.returncode != 0:
            last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1]
            last = last.partition("; the rows are in ")[0]
            raise ScriptError(printable(last.replace(name, self.path)), process.returncode)


def decoder_of(model, kind):
    """The Model's weights as a Decoder of numpy, or of a `kind` of it, in double."""
    weights = {name: array.astype(float) for name, array in model.weights.items()}
    progress = run_weights.branch_progress(model.config, {"step": model.step})
    return kind(np, model.config, weights, progress)


# ---- of one batch -----------------------------------------------------------------------------------------------


def lens(model):
    """The loss of each layer's stream. ScriptError unless the last one is the loss that the engine has computed."""
    decoder, targets = decoder_of(model, Decoder), model.tensors["targets"]
    losses = [cross_entropy(decoder.output(x), targets) for x in model.streams]
    loss = float(model.tensors["loss"][0])
    if not math.isclose(losses[-1], loss, rel_tol=1e-3):
        norm = decoder.model["norm"]
        raise ScriptError(f"no lens of {norm}: got {losses[-1]:.6g} at the last layer; expected {loss:.6g}", 1)
    return losses


def rank(model):
    """The effective rank of each layer's stream."""
    values = [np.linalg.svd(x.reshape(-1, x.shape[-1]), compute_uv=False) for x in model.streams]
    shares = [s[s > 0] / s.sum() for s in values]
    return [math.exp(-(p * np.log(p)).sum()) for p in shares]


def unit(x):
    """The vectors along the last axis, divided by their lengths."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def token_cosine(model):
    """The mean cosine in each layer: |sum u|^2 of T unit vectors u is T plus the sum over ordered pairs. None if there
    is one token."""
    length = model.streams[0].shape[1]
    pairs = length * (length - 1)
    return [(((unit(x).sum(1) ** 2).sum(-1) - length) / pairs).mean() if pairs else None for x in model.streams]


def kurtosis(model):
    """The kurtosis of each layer's stream."""
    squares = [(x * x).mean((0, 1)) for x in model.streams]
    return [(s * s).mean() / s.mean() ** 2 for s in squares]


def dead(model):
    """The share of dead units in each block; None for layer 0."""
    hidden = [model.tensors[f"act.{block}.ffn_hidden"] for block in range(1, len(model.streams))]
    return [None, *((h == 0).all((0, 1)).mean() for h in hidden)]


def influence(model):
    """The influence of each block; None for layer 0."""
    return [None, *(1 - (unit(x) * unit(y)).sum(-1).mean() for x, y in zip(model.streams, model.streams[1:]))]


# ---- of perturbed weights ---------------------------------------------------------------------------------------


def noisy(weights, draw, size=NOISE):
    """The weights {name: array} with every entry of the blocks' matrices multiplied by 1 + size * N(0, 1)."""
    random = np.random.default_rng(draw)
    return {name: array * (1 + size * random.standard_normal(array.shape))
            if name.startswith("blocks.") and array.ndim == 2 else array for name, array in weights.items()}


def amplification(model):
    """The amplification of noise in each layer."""
    total = np.zeros(len(model.streams))
    for draw in range(DRAWS):
        moved = model.dump(noisy(model.weights, draw))
        total += [((moved[f"act.{layer}.stream"] - x) ** 2).sum() / (x * x).sum()
                  for layer, x in enumerate(model.streams)]
    return list(total / DRAWS / NOISE ** 2)


def sharpness(model):
    """The largest eigenvalue, by Lanczos' recurrence (1950), which needs fewer products than power iteration. A product
    H v is a difference of gradients, (g(w + hv) - g(w - hv)) / 2h. None with ReLU: each kink within the step adds its
    jump over 2h."""
    if model.config["model"]["activation"] == "relu":
        return None
    names = [name for name in model.weights if f"grad.{name}" in model.tensors]
    sizes = [model.weights[name].size for name in names]

    def vector(arrays):
        return np.concatenate([np.ravel(array).astype(float) for array in arrays])

    def gradient(w):
        parts = dict(zip(names, np.split(w, np.cumsum(sizes)[:-1])))
        moved = {name: parts[name].reshape(array.shape) if name in parts else array
                 for name, array in model.weights.items()}
        tensors = model.dump(moved)
        return vector(tensors[f"grad.{name}"] for name in names)

    w = vector(model.weights[name] for name in names)
    h, v = DIFFERENCE * np.linalg.norm(w), unit(np.random.default_rng(1).standard_normal(w.size))
    before, diagonal, off_diagonal = 0, [], [0.0]
    while len(diagonal) < PRODUCTS:
        product = (gradient(w + h * v) - gradient(w - h * v)) / (2 * h) - off_diagonal[-1] * before
        diagonal.append(product @ v)
        product -= diagonal[-1] * v
        off_diagonal.append(np.linalg.norm(product))
        matrix = np.diag(diagonal) + np.diag(off_diagonal[1:-1], 1) + np.diag(off_diagonal[1:-1], -1)
        values, vectors = np.linalg.eigh(matrix)
        if off_diagonal[-1] * abs(vectors[-1, -1]) <= TOLERANCE * abs(values[-1]):  # the residual
            break
        before, v = v, product / off_diagonal[-1]
    return float(values[-1])


# ---- of frozen norms --------------------------------------------------------------------------------------------


def validation_windows(model):
    """(tokens, targets), each (windows, T): whole windows of the validation text, evenly spaced, as the program
    evaluates. ScriptError: the text has changed, or is too short."""
    T = model.config["model"]["context"]
    require_text(model.config["data"], model.text_hash, model.path)
    text = split_text(model.config["data"])[1]
    if len(text) <= T:
        raise ScriptError(f"{model.path}: its validation text has {len(text)} characters; expected more than {T}", 1)
    numbers = {chr(point): number for number, point in enumerate(json.loads(model.vocabulary))}
    tokens = np.array([numbers[character] for character in text])
    whole = (len(tokens) - 1) // T  # windows of T characters, each with a next one, in the text
    count = min(whole, math.ceil(CHARACTERS / T))
    windows = np.arange(count) * whole // count
    indices = windows[:, None] * T + np.arange(T)
    return tokens[indices], tokens[indices + 1]


class Frozen(Decoder):
    """A decoder that notes in `own` {norm: deviations (B, T, ..., 1)} what each norm divides by. Those in `frozen`,
    {norm: deviation}, divide by that instead."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.own, self.frozen = {}, {}

    def deviation(self, name, y, axis):
        self.own[name] = super().deviation(name, y, axis)
        return self.frozen.get(name, self.own[name])


def freeze(model, average=lambda rows: rows.mean((0, 1), keepdims=True)):
    """The use of each norm: {"loss", "characters" over which it is taken, "all": rise with all norms frozen, "norms":
    {name: {"deviation", "spread", "rise"}}}. `deviation`: the average that is frozen (the mean over groups); `spread`:
    standard deviation over average of the rows' own; rises, in nats, are of the loss on the validation text. `average`:
    a function of the deviations that returns what is frozen. ScriptError: a norm that divides no row by a number of
    its own."""
    decoder = decoder_of(model, Frozen)
    tokens, targets = validation_windows(model)

    def loss(frozen):
        decoder.frozen = frozen
        return cross_entropy(decoder.logits(tokens), targets)

    whole, deviations = loss({}), dict(decoder.own)
    if not deviations or any(own.shape[:2] != tokens.shape for own in deviations.values()):
        norm = decoder.model["norm"]
        what = "the model has no norms" if norm == "none" else f"{norm} divides no token by a deviation of its own"
        raise ScriptError(f"--freeze: {what}; expected layernorm, rmsnorm or groupnorm")
    frozen = {name: average(own) for name, own in deviations.items()}
    return {"loss": whole, "characters": tokens.size, "all": loss(frozen) - whole, "norms": {
        name: {"deviation": float(own.mean()), "spread": float(own.std() / own.mean()),
               "rise": loss({name: frozen[name]}) - whole} for name, own in deviations.items()}}


# ---- all measures ----------------------------------------------------------------------------------------------


LAYERS = {"lens": lens, "rank": rank, "token_cosine": token_cosine, "kurtosis": kurtosis, "dead": dead,
          "influence": influence, "amplification": amplification}
EVERY = (*LAYERS, "sharpness")


def measure(model, only=EVERY):
    """{"loss", "sharpness", "layers": [{name: value}]} of a Model. `only`: names of measures. Values are None where a
    layer has none or one that is not finite."""
    rows = [{"layer": layer} for layer in range(len(model.streams))]
    with np.errstate(all="ignore"):  # a stream of zeros has no direction
        for name in [name for name in LAYERS if name in only]:
            for row, value in zip(rows, LAYERS[name](model)):
                row[name] = finite(value)
        curvature = {"sharpness": finite(sharpness(model))} if "sharpness" in only else {}
    return {"loss": float(model.tensors["loss"][0]), **curvature, "layers": rows}


def finite(value):
    """The value as a float; None if it is None or not finite."""
    return None if value is None or not math.isfinite(value) else float(value)
