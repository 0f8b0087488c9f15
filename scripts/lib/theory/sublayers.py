"""Norms and sublayers of fresh weights, as maps of the kernels of a Signal and of its gradient (mean_field.py).

A gradient dx of a Signal x is an array (2, T, T): the kernel G_ts = E dx_t.dx_s / C, and the matrix P of its part along
what the sublayers wrote, dx_t = sum_s P_ts x_s + a vector independent of these x_s. P is 0 but for a tied head. The
final norm removes from the gradient of token t its part along x_t; a tied head has one, since x_t contains the
embedding that the head multiplies by, so what is left contains a part of each sublayer's own output. It has the same
sign at all tokens, and fresh weights pass it on: W^T W x is a multiple of x, besides noise.

Letters are those of mean_field.py."""

import math
from collections import namedtuple

from lib.logs import np
from lib.model.forward import branch_scale
from lib.theory.attention_kernels import Attention
from lib.theory.embedding_and_head import Signal
from lib.theory.gaussian import (FUNCTIONS, POINTWISE, NoPrediction, Z, density, hidden_of, kurtosis_of, mean_square,
                                 response, slope_at)

# ---- norms ------------------------------------------------------------------------------------------------------

STATISTICS = ("layernorm", "rmsnorm", "groupnorm")
# The largest product of excess kurtosis and the nonlinear share of a pointwise norm; beyond it gradients are 10% off.
NOT_GAUSSIAN = 0.03


def branch_signal(kernel, mean=0.0):
    """The Signal of a sum over many features, which is Gaussian and independent of the embeddings."""
    zero = np.zeros(len(kernel))
    return Signal(kernel, zero + mean, zero, 0.0)


def normed(model, present, x):
    """(N(x), R) of a Signal x: gradient at x = R * gradient at N(x), but for what `norm_backward` removes. (x, 1.0)
    without a norm.

    A norm with statistics over features, m the mean (0 for rmsnorm) and r_t = 1/sqrt(K_tt - m_t^2 + eps), or with eps
    outside the root: N(x) has the kernel (K_ts - m_t m_s) r_t r_s, and R_ts = r_t r_s. A pointwise norm f: N(x) has the
    kernel E f(x_t) f(x_s), and R_ts = E f'(x_t) f'(x_s), for nearly Gaussian features. NoPrediction if they are not
    nearly Gaussian."""
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
    R = np.outer(r, r)
    return Signal((x.kernel - np.outer(centre, centre)) * R, (x.mean - centre) * r, x.share * r, 0.0), R


def norm_backward(dy, R, y):
    """The gradient at x of a norm y = N(x) in a branch. It removes from dy_t its part along y_t, which is O(1/C)
    but for P: with w_t = dy_t.y_t / C, dx_t = r_t (dy_t - w_t y_t)."""
    if isinstance(R, float):
        return dy
    kernel, along = dy
    product = along @ y.kernel  # E dy_t.y_s / C
    w = np.diag(product)
    removed = w[:, None] * product.T
    return R * np.stack([kernel - removed - removed.T + np.outer(w, w) * y.kernel, along - np.diag(w)])


def through_weights(dx, x):
    """A gradient dx that fresh weights return, whose kernel lacks its part along x, with that part. `x`: the kernel."""
    kernel, along = dx
    return np.stack([kernel + along @ x @ along.T, along])


def branch_R(model, R, width, variance):
    """R of a norm of a branch to order 1/n, from `R` to leading order, n being the number of features of a
    group of the norm. Two corrections are made:

    - R is E 1/V and not 1 / E V, V being the mean square over the group. For Gaussian features E(1/V) * E V =
      1 + Var V / (E V)^2 = 1 + 2/n + variance, where `variance` is the relative variance of the mean square that the
      branch's last matrix reads.
    - A norm removes the part of the gradient along its input, a share of 1/n.

    Together they are 1 + 1/n + variance."""
    if isinstance(R, float) or model["norm"] in POINTWISE:
        return R
    groups = model["norm_groups"] if model["norm"] == "groupnorm" else 1
    return R * (1 + groups / width + variance)


# ---- sublayers ---------------------------------------------------------------------------------------------------

# A sublayer's F:
#   kernel        of the input of its last matrix
#   backward(k)   takes the gradient at that input, returns the one at F's input but for the part of its kernel along x
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
    y, R = normed(model, inner, branch_signal(heads_kernel))
    R = branch_R(model, R, C, 0.0)
    # 1 each for the matrices of v and of the output; those of q and k by the response to noise in the scores.
    matrix_noise = 2 + 2 * heads.response / mean_square(heads_kernel)
    variance = 2 / C if isinstance(R, float) else 0.0
    return Branch(y.kernel, lambda dy: heads.backward(dy * R), matrix_noise, variance)


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
        y, R = normed(model, inner, branch_signal(hidden.value, hidden.mean))
        value, slope, R = y.kernel, hidden.slope, branch_R(model, R, F, variance - 2 / F)
    else:  # N(phi(u)) of Gaussian u
        f, norm = FUNCTIONS[activation], POINTWISE[model["norm"]]
        value, slope, _, _ = response(lambda u: norm(f(u)), kernel)
        features = f(math.sqrt(mean_square(kernel)) * Z)
        R, inner_slope = 1.0, float(slope_at(norm, features)**2 @ density(0.0))  # E N'(phi)^2

    def backward(dy):
        dy = dy * R
        collected.gradient_squares[layer, "ffn_hidden"] = mean_square(dy[0]) * inner_slope
        return dy * slope * (gain_in * F / C)  # F Var, as gain_in is C Var

    return Branch(value, backward, matrix_noise, variance if isinstance(R, float) else 0.0)


def sublayer(model, row, layer, is_ffn, x, collected):
    """(y, backward, share, matrix_noise) of the sublayer

      y = N_out(alpha x + a N_branch(F(s N_in(x)))),

    whose norms and factors are those of a placement's row; an absent norm is the identity. x and y are Signals.
    `backward`: takes the gradient at y, returns the one at x. `share`: the mean square of
    the branch a*N_branch(F) divided by that of the sum. `matrix_noise`: as of a Branch."""
    name, branch_of = ("ffn", feed_forward) if is_ffn else ("attn", attention)
    L, C, width = model["n_layer"], model["d_model"], model["d_ff"] if is_ffn else model["d_model"]
    alpha = depth_factor(row["alpha"], L) if model["residual"] else 0.0
    # A placement's own learned scale starts at 0 (ReZero), that of model.branch_scale_learned at branch_scale.
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
    R_branch = branch_R(model, R_branch, C, branch.seed_variance)
    added, kept = normed_branch.kernel * a**2, x.kernel * alpha**2
    share = mean_square(added) / mean_square(added + kept)
    total = Signal(kept + added, alpha * x.mean, alpha * x.share, x.excess * (1 - share)**2)
    y, R_out = normed(model, row["norm_out"], total)
    collected.squares.update({(layer, name + "_in"): mean_square(read), (layer, name + "_out"): mean_square(written),
                              (layer, "stream" if is_ffn else "stream_mid"): mean_square(y.kernel)})

    def backward(dy):
        """The gradient at x, from that at y. Post-norm, whose only norm is N_out, has at x the sum of those at the sum
        and at F's input. The part that N_out removes is left in: of dy it is gone, and below it is small."""
        at_sum = R_out * dy
        at_output = norm_backward(a**2 * at_sum, R_branch, normed_branch)
        at_last = through_weights(at_output * (gain_out * C / width), branch.kernel)  # C Var, as gain_out is width Var
        at_input = through_weights(branch.backward(at_last), read)
        at_x = alpha**2 * at_sum + norm_backward(s**2 * at_input, R_in, normed_x)
        # Without a norm or a scale F reads x itself, so the gradient that a run logs at F's input is all of x's.
        reads_x = isinstance(R_in, float) and s == 1
        collected.gradient_squares.update({
            (layer, name + "_out"): mean_square(at_output[0]),
            (layer, name + "_in"): mean_square((at_x if reads_x else at_input)[0]),
            (layer, "stream_mid") if is_ffn else (layer - 1, "stream"): mean_square(at_x[0])})
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
