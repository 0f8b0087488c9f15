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
derf on features far from Gaussian, in a stream with large tied embeddings, or as inner norm of swiglu; saturated
attention; a variance of 0. Nor is there one for the steps of a run that has dropout or started from another
(first_step_fault). A text that has changed since is an error.

Letters: B batch, T context, C d_model, D head width, F d_ff, V vocabulary, L blocks, N tokens of a step; t, s two
positions."""

import contextlib
import functools
import json
import math
import os
from collections import namedtuple

from lib.base.command import ScriptError, argument, ask, printable
from lib.base.keys import PLACEMENTS, placements
from lib.logs import np
from lib.logs.run_text import require_text
from lib.logs.runs import Run
from lib.logs.sites import SITES
from lib.model.forward import branch_scale
from lib.theory.attention_kernels import Attention
from lib.theory.embedding_and_head import Signal, embedded, head_of, text_of_config
from lib.theory.gaussian import (FUNCTIONS, POINTWISE, NoPrediction, Z, correlations, density, hidden_of, kurtosis_of,
                                 mean_square, response, slope_at)

# ---- norms ------------------------------------------------------------------------------------------------------

STATISTICS = ("layernorm", "rmsnorm", "groupnorm")
# The largest product of excess kurtosis and the nonlinear share of a pointwise norm; beyond it gradients are 10% off.
NOT_GAUSSIAN = 0.03
# Upper limit of T times the share of a tied head's gradient that a pointwise norm removes.
BENT = 4


def branch_signal(kernel, mean=0.0):
    """The Signal of a sum over many features, which is Gaussian and independent of the embeddings."""
    zero = np.zeros(len(kernel))
    return Signal(kernel, zero + mean, zero, 0.0)


def normed(model, present, x):
    """(N(x), R) of a Signal x: gradient kernel at x = R * gradient kernel at N(x). (x, 1.0) without a norm.

    A norm with statistics over features, m the mean (0 for rmsnorm) and r_t = 1/sqrt(K_tt - m_t^2 + eps), or with eps
    outside the root: N(x) has the kernel (K_ts - m_t m_s) r_t r_s, and R_ts = r_t r_s. The gradient's part along x and
    1 is O(1/C) and neglected. A pointwise norm f: N(x) has the kernel E f(x_t) f(x_s), and R_ts = E f'(x_t) f'(x_s),
    for nearly Gaussian features. NoPrediction if they are not nearly Gaussian."""
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


def normed_in_stream(model, present, x):
    """`normed` for a norm that the stream itself passes. A tied head sends back the embedding of the character just
    read, whose features are large where x's are, and there a pointwise norm f has a small slope: E f'(x)^2 w^2 for the
    embedding's feature w, not E f'(x)^2. NoPrediction if that is much less, since sums over T tokens, which nearly
    cancel (see `allowed`), then do not."""
    if present and model["tie_embeddings"] and model["norm"] in POINTWISE:
        square, own = mean_square(x.kernel), model["init"]["embed_std"]**2 * float(np.mean(x.share**2))
        slopes = slope_at(POINTWISE[model["norm"]], math.sqrt(square) * Z)**2
        lessened = own / square * (slopes @ ((1 - Z * Z) * density(0.0))) / (slopes @ density(0.0))
        if lessened * model["context"] > BENT:
            raise NoPrediction(f"where the tied embeddings are large, a {model['norm']} in the stream passes much less "
                               "gradient; try a smaller model.init.embed_std, or model.tie_embeddings false")
    return normed(model, present, x)


def branch_factor(model, factor, width, variance):
    """R of a norm of a branch to order 1/n, from R to leading order (`factor`), n being the number of features of a
    group of the norm. Two corrections are made:

    - R is E 1/V and not 1 / E V, V being the mean square over the group. For Gaussian features E(1/V) * E V =
      1 + Var V / (E V)^2 = 1 + 2/n + variance, where `variance` is the relative variance of the mean square that the
      branch's last matrix reads.
    - A norm removes the part of the gradient along its input, a share of 1/n.

    Together they are 1 + 1/n + variance."""
    if isinstance(factor, float) or model["norm"] in POINTWISE:
        return factor
    groups = model["norm_groups"] if model["norm"] == "groupnorm" else 1
    return factor * (1 + groups / width + variance)


# ---- sublayers ---------------------------------------------------------------------------------------------------

# A sublayer's F:
#   kernel        of the input of its last matrix
#   backward(k)   takes the gradient kernel at that input, returns the one at F's input
#   matrix_noise  relative noise of F's output if every matrix has noise of relative variance 1
#   seed_variance relative variance over seeds of the mean square of the last matrix's input, 0 after a norm
Branch = namedtuple("Branch", "kernel backward matrix_noise seed_variance")
# Collected during a prediction: {(layer, site): mean square} of the sites (`squares`) and of their gradients
# (`gradient_squares`), and the list of the layers' values (`layers`), as Prediction has it. `windows`: the text's.
Collected = namedtuple("Collected", "squares gradient_squares layers windows")


def attention(model, kernel, gain_in, inner, layer, collected):
    """The Branch of attention that reads this kernel K; `gain_in`: C Var(v); `inner`: whether a norm precedes the last
    matrix W. The mean square of site attn_out is

      mean_t K^h_tt C Var(W),    K^h_tt' = sum_ss' M_ss' K^v_ss',    K^v = C Var(v) K,

    where M_ss' = E A_ts A_t's' are the mean products of weights, which attention_kernels.py computes. `sublayer`
    multiplies by C Var(W), its gain_out. An inner norm is applied to K^h before. In block 1 with position none or rope
    K^h is multiplied by a ratio that the text's windows give, below."""
    C = model["d_model"]
    scale = C * variance_of(model, C, C), gain_in
    heads = Attention(kernel, model, *scale)
    collected.layers[layer].update(entropy=heads.entropy, score_std=heads.score_std,
                                   max_score=heads.score_std * math.sqrt(2 * math.log(len(kernel))))
    heads_kernel = heads.forward()
    if layer == 1 and model["position"] in ("none", "rope"):
        # Equal characters are equal tokens here, and attention of the mean kernel is not the mean over a text's
        # windows, whose kernels are 0 or 1. The backward pass keeps the mean kernel: its gradient kernel is a mean too.
        square, windows = mean_square(kernel), collected.windows
        of_windows = [Attention(square * equal, model, *scale, repeats=True).forward() for equal in windows]
        heads_kernel *= np.mean(of_windows, 0) / Attention(square * windows.mean(0), model, *scale).forward()
    y, factor = normed(model, inner, branch_signal(heads_kernel))
    factor = branch_factor(model, factor, C, 0.0)
    # 1 each for the matrices of v and of the output; those of q and k by the response to noise in the scores.
    matrix_noise = 2 + 2 * heads.response / mean_square(heads_kernel)
    variance = 2 / C if isinstance(factor, float) else 0.0
    return Branch(y.kernel, lambda dy: heads.backward(dy * factor), matrix_noise, variance)


def feed_forward(model, kernel, gain_in, inner, layer, collected):
    """The Branch of the FFN that reads this kernel; `gain_in`: C times the variance of an entry of its first matrices;
    `inner`: whether a norm precedes the last matrix."""
    C, F, activation, inner_slope = model["d_model"], model["d_ff"], model["activation"], 1.0
    kernel = kernel * gain_in
    hidden = hidden_of(activation, kernel)
    collected.squares[layer, "ffn_hidden"] = mean_square(hidden.value)
    variance = (kurtosis_of(activation, mean_square(kernel)) - 1) / F
    # 1 for the last matrix; the noise of the others passes through the activation.
    matrix_noise = 1 + mean_square(kernel * hidden.slope) / mean_square(hidden.value)
    if not (inner and model["norm"] in POINTWISE):
        # The hidden features are not Gaussian: the relative variance of their mean square replaces 2/F.
        y, factor = normed(model, inner, branch_signal(hidden.value, hidden.mean))
        value, slope, factor = y.kernel, hidden.slope, branch_factor(model, factor, F, variance - 2 / F)
    elif activation == "swiglu":
        raise NoPrediction(f"swiglu leaves features that are far from Gaussian for an inner {model['norm']}; "
                           "try rmsnorm")
    else:  # N(phi(u)) of Gaussian u
        f, norm = FUNCTIONS[activation], POINTWISE[model["norm"]]
        value, slope, _, _ = response(lambda u: norm(f(u)), kernel)
        features = f(math.sqrt(mean_square(kernel)) * Z)
        factor, inner_slope = 1.0, float(slope_at(norm, features)**2 @ density(0.0))  # E N'(phi)^2

    def backward(dy):
        dy = dy * factor
        collected.gradient_squares[layer, "ffn_hidden"] = mean_square(dy) * inner_slope
        return dy * slope * (gain_in * F / C)  # F Var, as gain_in is C Var

    return Branch(value, backward, matrix_noise, variance if isinstance(factor, float) else 0.0)


def sublayer(model, row, layer, is_ffn, x, collected):
    """(y, backward, share, matrix_noise) of the sublayer

      y = N_out(alpha x + a N_branch(F(s N_in(x)))),

    whose norms and factors are those of a placement's row; an absent norm is the identity. x and y are Signals.
    `backward`: takes the gradient kernel at y, returns the one at x. `share`: the mean square of
    the branch a*N_branch(F) divided by that of the sum. `matrix_noise`: as of a Branch."""
    name, branch_of = ("ffn", feed_forward) if is_ffn else ("attn", attention)
    L, C, width = model["n_layer"], model["d_model"], model["d_ff"] if is_ffn else model["d_model"]
    alpha = depth_factor(row["alpha"], L) if model["residual"] else 0.0
    a = 0.0 if row["learned_scale"] else branch_scale(model)
    s = depth_factor(row["input_scale"], layer)
    # A matrix (rows, columns) whose entries have the variance Var multiplies mean squares by columns Var forward and by
    # rows Var backward. F's first matrices are (width, C), its last one is (C, width).
    gain = depth_factor(row["init_factor"], L)**2  # on the variance of v, attn.out, ffn.in, ffn.gate and ffn.out
    gain_in = C * gain * variance_of(model, width, C)
    gain_out = width * gain * variance_of(model, C, width) / (2 * L if model["init"]["residual_scaling"] else 1)

    normed_x, R_in = normed(model, row["norm_in"], x)
    read = normed_x.kernel * s**2
    branch = branch_of(model, read, gain_in, model["inner_norm"] or row["inner_norm"], layer, collected)
    written = branch.kernel * gain_out  # of F's output
    normed_branch, R_branch = normed(model, row["norm_branch"], branch_signal(written))
    R_branch = branch_factor(model, R_branch, C, branch.seed_variance)
    added, kept = normed_branch.kernel * a**2, x.kernel * alpha**2
    share = mean_square(added) / mean_square(added + kept)
    total = Signal(kept + added, alpha * x.mean, alpha * x.share, x.excess * (1 - share)**2)
    y, R_out = normed_in_stream(model, row["norm_out"], total)
    collected.squares.update({(layer, name + "_in"): mean_square(read), (layer, name + "_out"): mean_square(written),
                              (layer, "stream" if is_ffn else "stream_mid"): mean_square(y.kernel)})

    def backward(gradient):
        """The gradient kernel at x, from that at y, G_y. At the sum it is G = R_out G_y; at F's output a^2 R_branch G;
        at F's input G_in, by the last matrix and branch.backward; at x alpha^2 G + s^2 R_in G_in. Post-norm, whose
        only norm is N_out, has G + G_in at x."""
        at_sum = gradient * R_out
        at_output = at_sum * a**2 * R_branch
        at_input = branch.backward(at_output * (gain_out * C / width))  # C Var, as gain_out is width Var
        at_x = alpha**2 * at_sum + s**2 * R_in * at_input
        # Without a norm or a scale F reads x itself, so the gradient that a run logs at F's input is all of x's.
        reads_x = isinstance(R_in, float) and s == 1
        collected.gradient_squares.update({
            (layer, name + "_out"): mean_square(at_output),
            (layer, name + "_in"): mean_square(at_x if reads_x else at_input),
            (layer, "stream_mid") if is_ffn else (layer - 1, "stream"): mean_square(at_x)})
        return at_x

    return y, backward, share, branch.matrix_noise


def depth_factor(entry, n):
    """The factor of an entry [base, exponent] of a placement's row, (base n)^exponent, or of [base, exponent, "log"],
    (ln(base n))^exponent."""
    base, exponent, *form = entry
    return (math.log(base * n) if form == ["log"] else base * n)**exponent


def variance_of(model, rows, columns):
    """The variance of an entry of a matrix (rows, columns), before a placement's factor."""
    scheme = model["init"]["scheme"]
    if scheme == "gpt2":
        return model["init"]["std"]**2
    return 2 / columns if scheme == "kaiming_normal" else 2 / (rows + columns)


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
    """(limit for an activation, limit for a gradient) of the distance between the logarithms of a measured rms and its
    prediction. With one seed the standard error is unknown, so the tolerance is tripled. A tied head that is certain of
    the character just read doubles that of gradients: one token's gradient is then W_c less W_c' of its own and the
    next character, so sums over tokens nearly cancel, and the theory's errors remain."""
    limit = math.log1p(tolerance * (3 if seeds == 1 else 1))
    is_certain = model["tie_embeddings"] and model["d_model"] * model["init"]["embed_std"]**2 > OWN_LOGIT
    return limit, limit * (2 if is_certain else 1) + width_error(model)


# ---- the prediction ----------------------------------------------------------------------------------------------

# sites          {(layer, site): (rms, grad_rms)} in the order of layers.csv
# layers         list over the layers 0 .. L of dicts: "token_cosine" of two tokens of a sequence, "input_cosine" of x_0
#                and x_l, and but for layer 0 "entropy" (nats), "score_std" and "max_score" of attention
# loss           nats per character
# amplification  A: noise of relative variance v in every matrix changes the stream by A v of its mean square
Prediction = namedtuple("Prediction", "sites layers loss amplification")


def logged_sites(n_layer):
    """[(layer, site)] of the rows of a step in layers.csv."""
    return [(0, "stream"), *((layer, site) for layer in range(1, n_layer + 1) for site in (*SITES[1:], "stream")),
            (n_layer + 1, "final"), (n_layer + 1, "logits")]


def tokens_of(config):
    """N, the number of tokens over which a step's loss is a mean."""
    train = config["train"]
    return train["batch_size"] * train["grad_accum"] * config["model"]["context"]


def resolved(config, settings=()):
    """The resolved config of a file, with the settings KEY=VALUE. ScriptError: as the program refuses them."""
    process = ask("config", argument(config), *(f"--set={setting}" for setting in settings), purpose="resolves configs")
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").strip().split("\n")
        raise ScriptError("\n".join(map(printable, lines)), process.returncode)
    return json.loads(process.stdout)


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
    if width_error(model) > TOO_NARROW and not narrow:
        raise NoPrediction(f"{model['n_layer']} blocks are too many for width {model['d_model']}: the theory's error "
                           f"would be about {width_error(model):.0%}; widen model.d_model")
    rows = [[PLACEMENTS[name] for name in pair] for pair in placements(model)]
    _require_known(config, model)
    text, tokens = text or text_of_config(config), tokens or tokens_of(config)
    x, _ = normed(model, model["embed_norm"] or rows[0][0]["embed_norm"], embedded(model, text))
    start, noise, backward = x, 0.0, []
    collected = Collected({(0, "stream"): mean_square(x.kernel)}, {}, [_layer_cosines(x, start)], text.windows)
    for layer, pair in enumerate(rows, 1):
        collected.layers.append({})
        for is_ffn, row in enumerate(pair):
            x, back, share, matrix_noise = sublayer(model, row, layer, is_ffn, x, collected)
            backward.append(back)
            # The noise of a sum is the mean of its terms' noises, weighted by their shares. A branch has the noise of
            # its own matrices, and that of the stream that it reads times matrix_noise - 1: noise of the input counts
            # like noise of every matrix but the last.
            noise = (1 - share) * noise + share * (matrix_noise + noise * (matrix_noise - 1))
        collected.layers[layer].update(_layer_cosines(x, start))
    gradient, loss = _final_norm_and_head(model, x, tokens, text, collected, is_normed=rows[-1][1]["norm_out"])
    for back in reversed(backward):
        gradient = back(gradient)
    sites = {site: (_root(site, collected.squares[site]), _root(site, collected.gradient_squares[site]))
             for site in logged_sites(model["n_layer"])}
    return Prediction(sites, collected.layers, loss, noise)


def _final_norm_and_head(model, x, tokens, text, collected, is_normed):
    """(gradient kernel at x, loss) of final norm and head on the stream x of the last block; `is_normed`: whether the
    last sublayer ends with a norm."""
    L, width, tied = model["n_layer"], model["d_model"], model["tie_embeddings"]
    x, factor = normed_in_stream(model, model["final_norm"], x)
    variance = model["init"]["embed_std"]**2 if tied else variance_of(model, text.size, width)
    head = head_of(x, width, variance, tied, tokens, text)
    made_by_norm = model["norm"] in STATISTICS and (model["final_norm"] or is_normed)
    gradient = (head.passed if made_by_norm else head.gradient) * factor
    collected.squares.update({(L + 1, "final"): mean_square(x.kernel), (L + 1, "logits"): head.logits})
    collected.gradient_squares.update({
        (L + 1, "final"): mean_square(head.gradient), (L + 1, "logits"): head.logits_gradient,
        (L, "stream"): mean_square(head.gradient if isinstance(factor, float) else gradient)})
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
    .. L: "entropy". "amplification"; "limits": {"rms", "grad"} as `allowed` has them for one seed. `narrow`: as for
    `predict`. ScriptError: the run's text has changed."""
    config = resolved(os.path.join(".", folder, "config.json"))
    require_text(config["data"], Run(folder).text_hash, folder)
    prediction = predict(config, narrow=narrow)
    layers = prediction.layers
    rms, grad = np.array([values for (_, site), values in prediction.sites.items() if site == "stream"]).T
    return {"rms": rms, "grad": grad, "share": np.array([layer["input_cosine"] for layer in layers]),
            "tokens": np.array([layer["token_cosine"] for layer in layers]),
            "entropy": np.array([layer["entropy"] for layer in layers[1:]]), "amplification": prediction.amplification,
            "limits": dict(zip(("rms", "grad"), allowed(config["model"], 1)))}
