"""The theory behind scripts/predict.py: the values that a probe will measure, from the config and the text alone; no
weight is drawn.

Mean-field theory of a decoder with fresh weights, to leading order in the width C (Poole et al. 2016, arXiv 1606.05340;
Schoenholz et al. 2017, 1611.01232; of transformers Noci et al. 2022, 2206.03126; Kedia et al. 2024, 2403.09635).
Weights are independent and of mean 0, so a branch is uncorrelated with the stream that it joins, and one layer passes
to the next the kernel K_ts = E x_t.x_s / C of two tokens. The same holds for gradients, whose kernel is G_ts = E
dx_t.dx_s / C. (Norms that subtract a mean or are no statistics also need the mean, the part of the embedding and the
excess kurtosis of a Signal, which embedding_and_head.py defines.) The text enters by V, by the probabilities that
characters at a distance are equal, and, in block 1 with position none or rope, by eight windows of it (`attention`).
Dropout is off, as in a probe.

There is no prediction for: norms, activations, positions or schemes that KNOWN lacks; norm_alpha but 0.5 with
dyt or derf; norm_detach; zero_branches; branch_warmup_steps; a context above 512; too many blocks for the width; dyt or
derf on features far from Gaussian, or as inner norm of swiglu; saturated attention; large tied embeddings without a
layernorm, rmsnorm or groupnorm before the head; swiglu in a stream without norms; a variance of 0. Nor is there one for
the steps of a run that has dropout or started from another (first_step_fault). A text that has changed since is an
error.

Letters: B batch, T context, C d_model, D head width, F d_ff, V vocabulary, L blocks, N tokens of a step; t, s two
positions."""

import contextlib
import functools
import json
import math
from collections import namedtuple
from pathlib import Path

from lib.base.command import ScriptError, argument, ask, printable
from lib.base.keys import PLACEMENTS, placements
from lib.logs import np
from lib.logs.run_text import require_text
from lib.logs.runs import Run
from lib.logs.sites import HEAD_SITES, SITES
from lib.theory.embedding_and_head import embedded, head_of, text_of_config
from lib.theory.gaussian import FUNCTIONS, POINTWISE, NoPrediction, correlations, mean_square
from lib.theory.sublayers import STATISTICS, Collected, normed, sublayer, variance_of

# ---- scope and accuracy -----------------------------------------------------------------------------------------

LONGEST_CONTEXT = 512
TOLERANCE = 0.1  # for a measured rms, relative to the prediction
TOO_NARROW = 0.5  # the largest width_error with a prediction
# The logit by which a tied head prefers the character just read, beyond which it is about certain of it.
OWN_LOGIT = 4
KNOWN = {*STATISTICS, *POINTWISE, *FUNCTIONS, "none", "swiglu", "learned", "rope", "sinusoidal", "gpt2",
         "xavier_normal", "xavier_uniform", "kaiming_normal"}


def first_step_fault(run):
    """Why the first logged values of a Run are not those of a fresh network without dropout; None if they are."""
    if "parent" in run.history:
        return "its first weights are another run's"
    if not run.probe and run.value("model.dropout"):
        return "its steps have dropout, and a prediction has none; probe its config"
    return None


def _is_certain(model):
    """Whether the head is tied and nearly certain that the character just read comes again."""
    return model["tie_embeddings"] and model["d_model"] * model["init"]["embed_std"]**2 > OWN_LOGIT


def _require_known(config, model, rows, narrow):
    """NoPrediction for a config that the theory does not cover; what only the values show is refused where they are
    computed, as `normed` and `Attention` do. `rows`: those of its placements, a pair for each block."""
    has_norm = model["norm"] != "none"
    ends_with_norm = model["norm"] in STATISTICS and (model["final_norm"] or rows[-1][1]["norm_out"])
    has_inner_norm = model["inner_norm"] or any(ffn["inner_norm"] for _, ffn in rows)
    is_bounded = any(row["learned_scale"] or has_norm and (row["norm_in"] or row["norm_branch"] or row["norm_out"])
                     for pair in rows for row in pair)
    names = (model["norm"], model["activation"], model["position"], model["init"]["scheme"])
    unknown = [name for name in names if name not in KNOWN]
    for is_beyond, why in (
            (width_error(model) > TOO_NARROW and not narrow,
             f"{model['n_layer']} blocks are too many for width {model['d_model']}: the theory's error would be about "
             f"{width_error(model):.0%}; widen model.d_model"),
            (model["activation"] == "swiglu" and model["norm"] in POINTWISE and has_inner_norm,
             f"swiglu leaves features that are far from Gaussian for an inner {model['norm']}; try rmsnorm"),
            (config.get("train", {}).get("branch_warmup_steps", 0),
             "train.branch_warmup_steps scales the branches of the first steps"),
            (unknown, f"no theory of {', '.join(unknown)}"),
            (model["norm"] in POINTWISE and model["norm_alpha"] != 0.5,
             f"model.norm_alpha is {model['norm_alpha']}; the theory has 0.5 only"),
            (model["activation"] == "swiglu" and model["n_layer"] > 1 and not is_bounded,
             "swiglu squares a stream without norms, so that seeds differ by orders of magnitude; try "
             "model.norm_placement pre"),
            (_is_certain(model) and not ends_with_norm,
             "without a layernorm, rmsnorm or groupnorm before a tied head of large embeddings the gradients of a text's "
             "tokens sum to nearly 0; try model.final_norm, or a smaller model.init.embed_std"),
            (model["norm_detach"], "model.norm_detach: the theory's gradients pass through the statistics"),
            (model["init"]["zero_branches"], "model.init.zero_branches leaves no branches to predict"),
            (model["context"] > LONGEST_CONTEXT, f"model.context is {model['context']}; at most {LONGEST_CONTEXT}")):
        if is_beyond:
            raise NoPrediction(why)


def width_error(model):
    """The approximate relative error of gradients at finite width: one part in C for each block, and four without
    residuals, where the errors of blocks multiply."""
    groups = model["norm_groups"] if model["norm"] == "groupnorm" else 1
    return model["n_layer"] * groups / model["d_model"] * (1 if model["residual"] else 4)


def allowed(model, spread, seeds, tolerance=TOLERANCE):
    """(limit for an activation, limit for a gradient) of the distance between the logarithms of a measured rms, the
    root of a mean over seeds, and its prediction; `spread`: as of a Prediction. A tied head that is certain of the
    character just read doubles that of gradients: one token's gradient is then W_c less W_c' of its own and the next
    character, so sums over tokens nearly cancel, and the theory's errors remain."""
    limit = math.log1p(tolerance) + 3 * spread / math.sqrt(seeds)
    return limit, limit * (2 if _is_certain(model) else 1) + width_error(model)


# ---- the prediction ----------------------------------------------------------------------------------------------

# sites          {(layer, site): (rms, grad_rms)} in the order of layers.csv
# layers         list over the layers 0 .. L of dicts: "token_cosine" of two tokens of a sequence, "input_cosine" of x_0
#                and x_l, and but for layer 0 "entropy" (nats), "score_std" and "max_score" of attention
# loss           nats per character
# amplification  A: noise of relative variance v in every matrix changes the stream by A v of its mean square
# spread         the relative standard deviation over seeds of a rms, about its largest over the sites
Prediction = namedtuple("Prediction", "sites layers loss amplification spread")


def logged_sites(n_layer):
    """[(layer, site)] of the rows of a step in layers.csv."""
    return [(0, "stream"), *((layer, site) for layer in range(1, n_layer + 1) for site in (*SITES[1:], "stream")),
            *((n_layer + 1, site) for site in HEAD_SITES)]


def tokens_of(config):
    """N, the number of tokens over which a step's loss is a mean."""
    train = config["train"]
    return train["batch_size"] * train["grad_accum"] * config["model"]["context"]


def resolved(config, settings=()):
    """The resolved config of a file or a run's folder, with the settings KEY=VALUE. ScriptError: as the program refuses
    them, or the run's text has changed and the settings name no other."""
    process = ask("config", argument(config), *(f"--set={setting}" for setting in settings), purpose="resolves configs")
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").strip().split("\n")
        raise ScriptError("\n".join(map(printable, lines)), process.returncode)
    resolved_config, path = json.loads(process.stdout), Path(config)
    folder = path if path.is_dir() else path.parent
    if (folder / "summary.json").exists() and not any(setting.startswith("data.") for setting in settings):
        require_text(resolved_config["data"], Run(folder).text_hash, folder)
    return resolved_config


@contextlib.contextmanager
def _refusing_zero_variance():
    """Turns a division by a variance of 0, or by one that underflows to 0, into a NoPrediction."""
    try:
        with np.errstate(divide="raise", invalid="raise"):
            yield
    except (FloatingPointError, ZeroDivisionError):
        raise NoPrediction("the stream or a branch has a variance of 0, or nearly so; raise model.init.std or "
                           "model.init.embed_std") from None


@_refusing_zero_variance()
def predict(config, text=None, tokens=None, narrow=False):
    """The Prediction for a resolved config. `text`: its Text, by default that of the config's files; `tokens`: N, by
    default that of a training step; `narrow`: predict although the model is too narrow for the theory to be exact.
    NoPrediction if the theory does not cover the config."""
    model = config["model"]
    rows = [[PLACEMENTS[name] for name in pair] for pair in placements(model)]
    _require_known(config, model, rows, narrow)
    text, tokens = text or text_of_config(config), tokens or tokens_of(config)
    x, _ = normed(model, model["embed_norm"] or rows[0][0]["embed_norm"], embedded(model, text))
    start, noise, backward, squared_shares = x, 0.0, [], 0.0
    collected = Collected({(0, "stream"): mean_square(x.kernel)}, {}, [_layer_cosines(x, start)], text.windows)
    for layer, pair in enumerate(rows, 1):
        collected.layers.append({})
        for is_ffn, row in enumerate(pair):
            x, back, share, matrix_noise = sublayer(model, row, layer, is_ffn, x, collected)
            backward.append(back)
            squared_shares += share**2
            # The noise of a sum is the mean of its terms' noises, weighted by their shares. A branch has the noise of
            # its own matrices, and that of the stream that it reads times matrix_noise - 1: noise of the input counts
            # like noise of every matrix but the last.
            noise = (1 - share) * noise + share * (matrix_noise + noise * (matrix_noise - 1))
        collected.layers[layer].update(_layer_cosines(x, start))
    gradient, loss = _final_norm_and_head(model, x, tokens, text, collected)
    for back in reversed(backward):
        gradient = back(gradient)
    sites = {site: (_root(site, collected.squares[site]), _root(site, collected.gradient_squares[site]))
             for site in logged_sites(model["n_layer"])}
    # A mean square over C features has the relative variance 2/C. That of a branch varies over seeds by 4/C, of
    # attention, to 8/C, of an FFN of gelu with F = C, and reaches the stream by its share. A rms varies half as much.
    spread = math.sqrt((2 + 8 * squared_shares) / model["d_model"]) / 2
    return Prediction(sites, collected.layers, loss, noise, spread)


def _final_norm_and_head(model, x, tokens, text, collected):
    """(gradient at x, loss) of final norm and head on the stream x of the last block."""
    L, width, tied = model["n_layer"], model["d_model"], model["tie_embeddings"]
    x, R = normed(model, model["final_norm"], x)
    variance = model["init"]["embed_std"]**2 if tied else variance_of(model, text.size, width)
    head = head_of(x, width, variance, tied, tokens, text)
    gradient = R * head.passed
    collected.squares.update({(L + 1, "final"): mean_square(x.kernel), (L + 1, "logits"): head.logits})
    collected.gradient_squares.update({
        (L + 1, "final"): mean_square(head.gradient), (L + 1, "logits"): head.logits_gradient,
        (L, "stream"): mean_square(head.gradient if isinstance(R, float) else gradient[0])})
    return gradient, head.loss


def _root(site, square):
    """The root of a mean square; it is 0 if a branch's scale starts at 0. NoPrediction: the square is negative or not
    finite."""
    if not (math.isfinite(square) and square >= 0):
        raise NoPrediction(f"the mean square at {site[1]} of layer {site[0]} comes out as {square:.3g}")
    return math.sqrt(square)


def _layer_cosines(x, start):
    """{"token_cosine", "input_cosine"} of the stream x after a layer; `start`: that of the first block."""
    rho, T = correlations(x.kernel), len(x.kernel)
    own = np.sqrt(np.diag(start.kernel) / np.maximum(np.diag(x.kernel), 1e-300))
    return {"token_cosine": float((rho.sum() - T) / max(T * (T - 1), 1)),
            "input_cosine": float(np.mean(x.share / start.share * own))}


@functools.cache
def predicted(folder, narrow=False):
    """The prediction for a run folder's config before any training, a dict. Arrays over the layers 0 .. L: "rms" and
    "grad" (rms of the gradient) of the stream, "share", cos(x_0, x_l), and "tokens", the cosine of two tokens; over 1
    .. L: "entropy". "amplification". `narrow`: as for `predict`. ScriptError: as `resolved` has it."""
    prediction = predict(resolved(folder), narrow=narrow)
    layers = prediction.layers
    rms, grad = np.array([values for (_, site), values in prediction.sites.items() if site == "stream"]).T
    return {"rms": rms, "grad": grad, "share": np.array([layer["input_cosine"] for layer in layers]),
            "tokens": np.array([layer["token_cosine"] for layer in layers]),
            "entropy": np.array([layer["entropy"] for layer in layers[1:]]), "amplification": prediction.amplification}
