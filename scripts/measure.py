#!/usr/bin/env python3
"""Measures of a model that need more than a row of a log: every tensor of one batch (`normscope probe --dump`, first
batch of the config's seed). RUN stands for its newest weights. By layer l of the residual stream x_l, 0 the embedding:

  lens           loss (nats) of final norm and head on x_l; the norm takes the statistics of x_l
                 (logit lens, nostalgebraist 2020)
  rank           effective rank of the tokens' matrix (B*T, C), from 1 to C: e^H, H = -sum p ln p, p its singular values
                 over their sum (Roy & Vetterli 2007)
  token_cosine   mean cosine of two different tokens of a sequence; it is 1 if all are alike
                 (Ethayarajh 2019, arXiv 1909.00512)
  kurtosis       mean s^4 / (mean s^2)^2 over features, where s^2 is a feature's mean square over tokens; 1 if all
                 features have the same size, C if a single one is not 0 (He et al. 2024, arXiv 2405.19279)
  dead           share of the FFN's hidden units that are 0 at every token
  influence      1 - cos(x_{l-1}, x_l), mean over tokens: how far block l turns the stream
                 (Men et al. 2024, arXiv 2403.03853)
  amplification  |x_l' - x_l|^2 / |x_l|^2 / d^2, where x' is x after every entry of the blocks' matrices has been
                 multiplied by 1 + d N(0, 1); mean over 8 draws
  sharpness      largest eigenvalue of the loss's Hessian in all parameters; gradient descent is unstable at rates above
                 2 / sharpness (Cohen et al. 2021, arXiv 2103.00065). A model with ReLU has none: its kinks spoil
                 differences of gradients

The program probes the weights once, unless an exchange file is given; the last two measures probe again, with perturbed
weights. JSON has null where a measure is not finite, as for a stream of zeros.

--freeze shows instead what each norm does (Baroni et al. 2025, arXiv 2507.02559); it is for layernorm, rmsnorm and
groupnorm. A norm divides each token's vector by that vector's own deviation (rmsnorm: its rms; groupnorm: one for each
group). Frozen, it divides all of them by one number (groupnorm: by one for each group), the average of these deviations
over about 2048 characters of the validation text; layernorm still subtracts each token's own mean. Each norm is frozen
in turn. The table shows how much the loss on these characters rises, the last line with all norms frozen at once;
`deviation`, that one number; and `spread`, the standard deviation of the tokens' deviations over it. Norms on queries,
keys and values stay.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.runs import main, np  # first: it finds a Python that has numpy
from lib import run_weights, safetensors_io
from lib.command import Parser, ScriptError, ask, printable, text_table
from lib.forward import Decoder, cross_entropy
from lib.keys import require_every_key
from lib.run_text import require_text, split_text

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
        try:
            path, tensors, metadata = run_weights.newest_weights(path)
            self.config = require_every_key(json.loads(metadata["config"]), path)
            self.step = metadata.get("step", "0")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            message = printable(error)
            if message.startswith("["):  # "[topic] file: reason", of run_weights
                message = message.partition("] ")[2]
            else:
                message = f"{printable(path)}: {message}; expected a run, or a file that normscope wrote"
            raise ScriptError(message, 1) from None
        self.weights = {name: array for name, array in tensors.items()
                        if name.split(".")[0] in ("embed", "embed_norm", "blocks", "final_norm", "head")}
        self.path, self.vocabulary, self.text_hash = printable(path), metadata.get("vocab"), metadata.get("corpus", "")
        self.tensors = tensors if "act.0.stream" in tensors else self.dump(self.weights)
        layers = range(self.config["model"]["n_layer"] + 1)
        self.streams = [self.tensors[f"act.{layer}.stream"].astype(float) for layer in layers]

    def dump(self, weights):
        """Every tensor of the batch, computed by `normscope probe` from these weights at the model's step. ScriptError:
        the text has changed since the model was trained."""
        require_text(self.config["data"], self.text_hash, self.path)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
            floats = {key: array.astype(np.float32) for key, array in weights.items()}
            safetensors_io.write(folder / "weights", floats, {"step": self.step})
            process = ask("probe", folder / "config.json", "--from", folder / "weights", "--dump", folder / "dump",
                          "--out", folder / "probe", purpose="computes the tensors")
            if process.returncode != 0:
                last = process.stderr.decode("utf-8", "replace").strip().splitlines()[-1]
                last = last.partition("; the rows are in ")[0]
                raise ScriptError(printable(last.replace(name, self.path)), process.returncode)
            return safetensors_io.read(folder / "dump")[0]


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
    evaluates. ScriptError: no such text, or one with other characters."""
    T = model.config["model"]["context"]
    require_text(model.config["data"], model.text_hash, model.path)
    text = split_text(model.config["data"])[1]
    numbers = {chr(point): number for number, point in enumerate(json.loads(model.vocabulary or "[]"))}
    unknown = sorted(set(text) - set(numbers))
    if unknown or len(text) <= T:
        reason = f"the model does not know {unknown[0]!r}" if unknown else f"it has {len(text)} characters"
        raise ScriptError(f"{model.path}: the validation text cannot be read: {reason}; expected the text that the "
                          f"model was trained on, with more than {T} characters for validation", 1)
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


# ---- the command ------------------------------------------------------------------------------------------------


LAYERS = {"lens": lens, "rank": rank, "token_cosine": token_cosine, "kurtosis": kurtosis, "dead": dead,
          "influence": influence, "amplification": amplification}
EVERY = (*LAYERS, "sharpness")


def measure(path, only=EVERY):
    """{"loss", "sharpness", "layers": [{name: value}]} of a run folder, a file of weights or an exchange file. `only`:
    names of measures. Values are None where a layer has none or one that is not finite. ScriptError as for Model."""
    return measure_model(Model(path), only)


def measure_model(model, only=EVERY):
    """The same of a Model."""
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


def run():
    """Reads the command line and prints the table."""
    parser = Parser("measure", __doc__)
    parser.add_argument("model", metavar="RUN|FILE",
                        help="a run folder, a safetensors file of weights, or an exchange file")
    parser.add_argument("--only", metavar="NAME", action="append", choices=EVERY, help="this measure; may be repeated")
    parser.add_argument("--freeze", action="store_true", help="instead, the rise of the loss with frozen norms")
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    args = parser.parse_args()
    if args.freeze and args.only:
        parser.error("--only with --freeze: frozen norms have one table; leave --only out")
    model = Model(args.model)
    result = freeze(model) if args.freeze else measure_model(model, args.only or EVERY)
    if args.json:
        print(json.dumps(result, indent=1))
    elif args.freeze:
        print_frozen(model, result)
    else:
        print_measures(model, result)


def print_frozen(model, result):
    """Prints the table of frozen norms."""
    print(f"{model.path}, step {model.step}: loss {result['loss']:.4f} on {result['characters']} characters of the "
          "validation text")
    lines = [[name, *(f"{row[key]:.4g}" for key in ("deviation", "spread", "rise"))]
             for name, row in result["norms"].items()]
    titles = ["frozen norm", "deviation", "spread", "rise of the loss"]
    print(*text_table(list(zip(titles, *lines, ["all", "", "", f"{result['all']:.4g}"]))), sep="\n")


def print_measures(model, result):
    """Prints the table of layers, and the sharpness."""
    rows = result["layers"]
    print(f"{model.path}, step {model.step}: loss {result['loss']:.4f}")

    def cell(value):
        if isinstance(value, float):
            return f"{value:.5g}"
        return "" if value is None else str(value)

    cells = [[cell(value) for value in row.values()] for row in rows]
    print(*text_table(list(zip(rows[-1], *cells))), sep="\n")
    if result.get("sharpness"):
        limit = 2 / result["sharpness"]
        print(f"sharpness {result['sharpness']:.4g}: gradient descent is unstable at rates above {limit:.2g}")
    elif "sharpness" in result:
        print("no sharpness: it is not a number above 0, or the model has ReLU, whose kinks spoil differences of "
              "gradients")


if __name__ == "__main__":
    main(run, "measure")
