"""The theory behind scripts/predict.py: the values that a probe will measure, from the config and the text alone; no
weight is drawn.

Mean-field theory of a decoder with fresh weights, to leading order in the width C (Poole et al. 2016, arXiv 1606.05340;
Schoenholz et al. 2017, 1611.01232; of transformers Noci et al. 2022, 2206.03126; Kedia et al. 2024, 2403.09635).
Weights are independent and of mean 0, so a branch is uncorrelated with the stream that it joins, and one layer passes
to the next the kernel K_ts = E x_t.x_s / C of two tokens and nothing else; gradients alike, G_ts = E dx_t.dx_s / C. The
text enters by the probabilities that characters at a distance agree. Dropout is off, as in a probe.

Letters: B batch, T context, C d_model, D head width, F d_ff, V vocabulary, L blocks, N tokens of a step; t, s two
positions."""

import contextlib
import functools
import json
import math
import os
from collections import namedtuple

from lib.attention_kernels import Attention
from lib.command import ScriptError, argument, printable
from lib.embedding_and_head import Signal, embedded, head_of, text_of_config
from lib.gaussian import (FUNCTIONS, POINTWISE, Z, NoPrediction, correlations, density, hidden_of, kurtosis_of,
                          mean_square, response)
from lib.keys import PLACEMENTS, completed
from lib.runs import ask, np
from lib.sites import SITES, placements

# ---- norms ------------------------------------------------------------------------------------------------------

STATISTICS = ("layernorm", "rmsnorm", "groupnorm")
NOT_GAUSSIAN = 0.03  # excess kurtosis times the nonlinear part of a pointwise norm, beyond which gradients are 10% off


def branch_signal(kernel, mean=0.0):
    """The Signal of a sum over many features, which is Gaussian and independent of the embeddings."""
    zero = np.zeros(len(kernel))
    return Signal(kernel, zero + mean, zero, 0.0)


def normed(model, present, x):
    """(N(x), R), where R times the kernel of the gradient of N(x) is the kernel of the gradient of x; (x, 1) without a
    norm.

    A norm with statistics over features: R = r_t r_s, r = 1/sqrt(variance + eps), and N(x) is x less its mean, times r.
    The gradient's component along x and 1 is O(1/C) and neglected. A pointwise norm f: E f f and E f' f' of nearly
    Gaussian features. NoPrediction if they are not nearly Gaussian."""
    norm, eps = model["norm"], model["norm_eps"]
    if not present or norm == "none":
        return x, 1.0
    if norm in POINTWISE:
        f = response(POINTWISE[norm], x.kernel, x.excess)
        curved = 1 - float(np.mean(f.gain**2 * np.diag(x.kernel))) / mean_square(f.value)
        if abs(x.excess) * curved > NOT_GAUSSIAN:
            raise NoPrediction(f"a {norm} would read features that are far from Gaussian; try layernorm or rmsnorm")
        y = POINTWISE[norm](math.sqrt(mean_square(x.kernel)) * Z)
        excess = (y**4) @ density(x.excess) / ((y**2) @ density(x.excess))**2 - 3
        return Signal(f.value, 0 * x.mean, x.share * f.gain, float(excess)), f.slope
    centre = x.mean * (norm != "rmsnorm")
    variance = np.diag(x.kernel) - centre**2
    r = 1 / (np.sqrt(variance) + eps) if model["norm_eps_outside"] else 1 / np.sqrt(variance + eps)
    factor = np.outer(r, r)
    return Signal((x.kernel - np.outer(centre, centre)) * factor, (x.mean - centre) * r, x.share * r, 0.0), factor


def of_branch(model, factor, width, variance):
    """R of a norm that reads a branch, corrected to order 1/width: times E(1/V) / (1/E V), V the mean square over
    features, less the gradient's component along x and 1. The correction is 1 + 1/width for Gaussian features, plus
    `variance`, the relative variance of the mean square that the branch's last matrix reads."""
    if isinstance(factor, float) or model["norm"] in POINTWISE:
        return factor
    return factor * (1 + (model["norm_groups"] if model["norm"] == "groupnorm" else 1) / width + variance)


# ---- sublayers ---------------------------------------------------------------------------------------------------

# Of a sublayer's F: `kernel` of what its last matrix reads; `backward`: from the kernel of the gradient of that to the
# one of what F reads; `matrices`: relative noise of F's output with noise of relative variance 1 in every matrix;
# `variance`: relative variance over seeds of the mean square of what the last matrix reads, 0 after a norm.
Branch = namedtuple("Branch", "kernel backward matrices variance")
# What a prediction collects: mean squares of the sites and of their gradients, {(layer, site): number}, and figures of
# layers.
Seen = namedtuple("Seen", "squares slopes layers")


def attention(model, kernel, into, inner, layer, seen):
    """The Branch of attention; `into` C Var(v)."""
    C = model["d_model"]
    heads = Attention(kernel, model, C * variance_of(model, C, C), into)
    seen.layers[layer].update(entropy=heads.entropy, score_std=heads.score_std,
                              max_score=heads.score_std * math.sqrt(2 * math.log(len(kernel))))
    out = heads.forward()
    y, factor = normed(model, inner, branch_signal(out))
    factor = of_branch(model, factor, C, 0.0)
    matrices = 2 + 2 * heads.response / mean_square(out)  # v and o; q and k by the scores
    variance = 2 / C if isinstance(factor, float) else 0.0
    return Branch(y.kernel, lambda dy: heads.backward(dy * factor), matrices, variance)


def feed_forward(model, kernel, into, inner, layer, seen):
    """The Branch of the FFN; `into` C Var of the entries of its first matrices."""
    C, F, activation, inner_slope = model["d_model"], model["d_ff"], model["activation"], 1.0
    kernel = kernel * into
    hidden = hidden_of(activation, kernel)
    seen.squares[layer, "ffn_hidden"] = mean_square(hidden.value)
    variance = (kurtosis_of(activation, mean_square(kernel)) - 1) / F
    # The last matrix, and what the activation passes of the noise of the others.
    matrices = 1 + mean_square(kernel * hidden.slope) / mean_square(hidden.value)
    if not (inner and model["norm"] in POINTWISE):
        y, factor = normed(model, inner, branch_signal(hidden.value, hidden.mean))
        value, slope, factor = y.kernel, hidden.slope, of_branch(model, factor, F, variance - 2 / F)
    elif activation == "swiglu":
        raise NoPrediction(f"swiglu leaves features that are far from Gaussian for an inner {model['norm']}; "
                           "try rmsnorm")
    else:  # N(phi(u)) of Gaussian u
        f, norm = FUNCTIONS[activation], POINTWISE[model["norm"]]
        value, slope, _, _ = response(lambda u: norm(f(u)), kernel)
        factor, inner_slope = 1.0, mean_square(slope) / mean_square(hidden.slope)  # about E N'(phi)^2

    def backward(dy):
        dy = dy * factor
        seen.slopes[layer, "ffn_hidden"] = mean_square(dy) * inner_slope
        return dy * slope * (into * F / C)

    return Branch(value, backward, matrices, variance if isinstance(factor, float) else 0.0)


def sublayer(model, row, layer, is_ffn, x, seen):
    """y = N_out(alpha x + a N_branch(F(s N_in(x)))) -> (the Signal of y; `backward`: from the kernel of y's gradient to
    that of x's; share of a N_branch(F) in the mean square of the sum; `matrices` of F)."""
    L, C, gain = model["n_layer"], model["d_model"], power(row["init_gain"], model["n_layer"])**2
    name, F, width = ("ffn", feed_forward, model["d_ff"]) if is_ffn else ("attn", attention, C)
    alpha = power(row["alpha"], L) if model["residual"] else 0.0
    scale, a = power(row["input_scale"], layer), 0.0 if row["learned_scale"] else branch_scale(model)
    into = C * gain * variance_of(model, width, C)  # gain: on the variance of v, attn.out, ffn.in, ffn.gate and ffn.out
    out = width * gain * variance_of(model, C, width) / (2 * L if model["init"]["residual_scaling"] else 1)

    y, through_in = normed(model, row["norm_in"], x)
    read = y.kernel * scale**2
    branch = F(model, read, into, model["inner_norm"] or row["inner_norm"], layer, seen)
    y, factor = normed(model, row["norm_branch"], branch_signal(branch.kernel * out))
    through_branch = of_branch(model, factor, C, branch.variance)
    added, kept = y.kernel * a**2, x.kernel * alpha**2
    share = mean_square(added) / mean_square(added + kept)
    total = Signal(kept + added, alpha * x.mean, alpha * x.share, x.excess * (1 - share)**2)
    total, through_out = normed(model, row["norm_out"], total)
    seen.squares.update({(layer, name + "_in"): mean_square(read),
                         (layer, name + "_out"): mean_square(branch.kernel * out),
                         (layer, "stream" if is_ffn else "stream_mid"): mean_square(total.kernel)})

    def backward(gradient):
        gradient = gradient * through_out
        dy = gradient * a**2 * through_branch
        read = branch.backward(dy * (out * C / width))
        dx = alpha**2 * gradient + read * scale**2 * through_in
        is_stream = isinstance(through_in, float) and scale == 1  # what F reads
        seen.slopes.update({(layer, name + "_out"): mean_square(dy),
                            (layer, name + "_in"): mean_square(dx if is_stream else read),
                            (layer, "stream_mid") if is_ffn else (layer - 1, "stream"): mean_square(dx)})
        return dx

    return total, backward, share, branch.matrices


def power(row, n):
    """(base n)^exponent of a placement's row, or (ln(base n))^exponent."""
    base, exponent, *form = row
    return (math.log(base * n) if form == ["log"] else base * n)**exponent


def variance_of(model, out, into):
    """The variance of an entry of a matrix (out, into), before a placement's factor."""
    scheme = model["init"]["scheme"]
    if scheme == "gpt2":
        return model["init"]["std"]**2
    return 2 / into if scheme == "kaiming_normal" else 2 / (out + into)


def branch_scale(model):
    """A number, or L^-a."""
    scale = model["branch_scale"]
    return model["n_layer"]**float(scale.removeprefix("L^")) if isinstance(scale, str) else float(scale)


# ---- what the theory knows, and how well -------------------------------------------------------------------------

LONGEST_CONTEXT = 512
TOLERANCE = 0.1  # of a measured rms, relative to the prediction
TOO_NARROW = 0.5  # width_error beyond which there is no prediction
KNOWN = {*STATISTICS, *POINTWISE, *FUNCTIONS, "none", "swiglu", "learned", "rope", "sinusoidal", "gpt2",
         "xavier_normal", "xavier_uniform", "kaiming_normal"}


def _require_known(config, model):
    """NoPrediction for a config that the theory does not cover."""
    names = (model["norm"], model["activation"], model["position"], model["init"]["scheme"])
    unknown = [name for name in names if name not in KNOWN]
    for is_beyond, why in (
            (config.get("train", {}).get("branch_warmup_steps", 0),
             "train.branch_warmup_steps scales the branches of the first steps"),
            (unknown, f"no theory of {', '.join(unknown)}"),
            (model["norm"] in POINTWISE and model["norm_alpha"] != 0.5,
             f"model.norm_alpha is {model['norm_alpha']}; the theory has 0.5 only"),
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


def allowed(model, seeds, tolerance=TOLERANCE):
    """(limit for an activation, limit for a gradient): how far the logarithm of a measured rms may be from the
    prediction's. With one seed the standard error is unknown, so the tolerance is tripled."""
    limit = math.log1p(tolerance * (3 if seeds == 1 else 1))
    return limit, limit + width_error(model)


# ---- the prediction ----------------------------------------------------------------------------------------------

# `sites` {(layer, site): (rms, grad_rms)} in the order of layers.csv; `layers` of 0 .. L: dicts of `token_cosine` of
# two tokens of a sequence, `input_cosine` of x_0 and x_l, and but for 0 `entropy` (nats), `score_std` and `max_score`
# of attention; `amplification` A: noise of relative variance v in every matrix changes the stream by A v, relatively.
Prediction = namedtuple("Prediction", "sites layers loss amplification")


def sites_of(n_layer):
    return [(0, "stream"), *((layer, site) for layer in range(1, n_layer + 1) for site in (*SITES[1:], "stream")),
            (n_layer + 1, "final"), (n_layer + 1, "logits")]


def tokens_of(config):
    """N: tokens over which a step's loss is a mean."""
    train = config["train"]
    return train["batch_size"] * train.get("grad_accum", 1) * config["model"]["context"]


def resolved(config, settings=()):
    """The resolved config of a file."""
    done = ask("config", argument(config), *(f"--set={setting}" for setting in settings), purpose="knows the keys")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().split("\n")
        raise ScriptError("\n".join(map(printable, lines)), done.returncode)
    return json.loads(done.stdout)


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
    """The Prediction for a resolved config; `text`: its Text, if it need not be read; `tokens` N, over which the loss
    is a mean; `narrow`: also of a model too narrow for it. NoPrediction where the theory has none."""
    model = completed(config["model"])
    if width_error(model) > TOO_NARROW and not narrow:
        raise NoPrediction(f"{model['n_layer']} blocks are too many for width {model['d_model']}: the theory's error "
                           f"would be about {width_error(model):.0%}; widen model.d_model")
    rows = [[PLACEMENTS[name] for name in pair] for pair in placements(model, model["n_layer"])]
    _require_known(config, model)
    text, tokens = text or text_of_config(config), tokens or tokens_of(config)
    x, _ = normed(model, model["embed_norm"] or rows[0][0]["embed_norm"], embedded(model, text))
    start, noise, backward = x, 0.0, []
    seen = Seen({(0, "stream"): mean_square(x.kernel)}, {}, [_layer(x, start)])
    for layer, pair in enumerate(rows, 1):
        seen.layers.append({})
        for is_ffn, row in enumerate(pair):
            x, back, share, matrices = sublayer(model, row, layer, is_ffn, x, seen)
            backward.append(back)
            # A branch passes on the stream's noise as it does its first matrices', and adds its own matrices'.
            noise = (1 - share) * noise + share * (matrices + noise * (matrices - 1))
        seen.layers[layer].update(_layer(x, start))
    gradient, loss = _ends_at(model, x, tokens, text, seen, is_normed=row["norm_out"])
    for back in reversed(backward):
        gradient = back(gradient)
    sites = {site: (_root(site, seen.squares[site]), _root(site, seen.slopes[site]))
             for site in sites_of(model["n_layer"])}
    return Prediction(sites, seen.layers, loss, noise)


def _ends_at(model, x, tokens, text, seen, is_normed):
    """Final norm and head on the stream x of the last block, whose last sum `is_normed`: (kernel of the gradient of x,
    loss)."""
    L, width, tied = model["n_layer"], model["d_model"], model["tie_embeddings"]
    x, factor = normed(model, model["final_norm"], x)
    variance = model["init"]["embed_std"]**2 if tied else variance_of(model, text.size, width)
    head = head_of(x, width, variance, tied, tokens, text)
    made_by_norm = model["norm"] in STATISTICS and (model["final_norm"] or is_normed)
    gradient = (head.passed if made_by_norm else head.gradient) * factor
    seen.squares.update({(L + 1, "final"): mean_square(x.kernel), (L + 1, "logits"): head.logits})
    seen.slopes.update({(L + 1, "final"): mean_square(head.gradient), (L + 1, "logits"): head.logits_gradient,
                        (L, "stream"): mean_square(head.gradient if isinstance(factor, float) else gradient)})
    return gradient, head.loss


def _root(site, square):
    """The root of a mean square, which may be 0 where a branch's scale starts at 0."""
    if not (math.isfinite(square) and square >= 0):
        raise NoPrediction(f"the mean square at {site[1]} of layer {site[0]} comes out as {square:.3g}")
    return math.sqrt(square)


def _layer(x, start):
    rho, T = correlations(x.kernel), len(x.kernel)
    own = np.sqrt(np.diag(start.kernel) / np.maximum(np.diag(x.kernel), 1e-300))
    return {"token_cosine": float((rho.sum() - T) / max(T * (T - 1), 1)),
            "input_cosine": float(np.mean(x.share / start.share * own))}


@functools.cache
def predicted(folder, narrow=False):
    """What is expected of a run folder before any training: {"rms", "grad": of the stream, "share": cos(x_0, x_l),
    "tokens": cosine of two tokens, arrays of layers 0 .. L; "entropy": of layers 1 .. L; "amplification"; "limits": as
    `allowed` has them, of one seed}. `narrow`: as of `predict`."""
    config = resolved(os.path.join(".", folder, "config.json"))
    found = predict(config, narrow=narrow)
    rms, grad = np.array([values for (_, site), values in found.sites.items() if site == "stream"]).T
    return {"rms": rms, "grad": grad, "share": np.array([layer["input_cosine"] for layer in found.layers]),
            "tokens": np.array([layer["token_cosine"] for layer in found.layers]),
            "entropy": np.array([layer["entropy"] for layer in found.layers[1:]]), "amplification": found.amplification,
            "limits": dict(zip(("rms", "grad"), allowed(completed(config["model"]), 1)))}
