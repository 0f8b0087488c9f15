"""The theory of `predict`: what a probe will measure, from the config and the text alone; no weight is drawn.

Mean-field theory of a decoder with fresh weights, to leading order in the width C (Poole et al. 2016, arXiv 1606.05340; Schoenholz
et al. 2017, 1611.01232; of transformers Noci et al. 2022, 2206.03126; Kedia et al. 2024, 2403.09635). Weights are independent and of
mean 0, so a branch is uncorrelated with the stream that it joins, and one layer passes to the next the kernel K_ts = E x_t.x_s / C
of two tokens and nothing else; gradients alike, G_ts = E dx_t.dx_s / C. The text enters by the probabilities that characters at a
distance agree. Dropout is off, as in a probe.

Letters: B batch, T context, C d_model, D head width, F d_ff, V vocabulary, L blocks, N tokens of a step; t, s two positions."""

import functools
import json
import math
from collections import namedtuple
from pathlib import Path

from lib.command import ScriptError, argument, printable
from lib.keys import PLACEMENTS, completed
from lib.runs import ask, np
from lib.sites import SITES, placements

LONGEST_CONTEXT = 512
# Beyond these, rare near-ties of a sharp softmax decide the mean gradient: the scores' standard deviation, of 4 heads and more;
# that times the relative spread of their variance over the keys.
SATURATED, UNEQUAL = 20, 1
TOLERANCE = 0.1  # of a measured rms, relative to the prediction
TOO_NARROW = 0.5  # width_error beyond which there is no prediction


class NoPrediction(ScriptError):
    """The theory has no answer for this config, or its error is not known."""

    def __init__(self, why):
        super().__init__(f"no prediction: {why}", 2)
        self.why = why


# ---- the text ---------------------------------------------------------------------------------------------------

# `size` V; of the lags d = -T .. T, at index d + T, probabilities that characters c_i of the training part agree:
# `same` c_0 = c_d; `then` c_0 = c_1 = c_d; `twice` c_0 = c_1 and c_d = c_(d+1); `all` c_0 = c_1 = c_d = c_(d+1).
Text = namedtuple("Text", "size context same then twice all")
MOST_CHARACTERS = 1 << 21  # of the text are counted


def text_of(characters, size, context):
    """The Text of an array of characters, of `size` kinds."""
    c = np.asarray(characters)[:MOST_CHARACTERS]
    repeated = c[1:] == c[:-1]
    same, then, twice, every = np.ones((4, 2 * context + 1))
    for d in range(context + 1):
        n, right, left = len(c) - 1 - d, context + d, context - d
        equal, first, second = c[:n] == c[d:n + d], repeated[:n], repeated[d:n + d]
        same[[left, right]] = np.mean(equal)
        then[right], then[left] = np.mean(equal & first), np.mean(equal & second)
        twice[[left, right]] = np.mean(first & second)
        every[[left, right]] = np.mean(equal & first & second)
    return Text(size, context, same, then, twice, every)


@functools.lru_cache(maxsize=8)
def _text_of(paths, val_path, val_fraction, context):
    text, held_out = ("".join(Path(path).read_bytes().decode("utf-8-sig", "replace") for path in of)
                      for of in (paths, [val_path] if val_path else []))
    train = len(text) if val_path else math.floor((1 - val_fraction) * len(text) + 1e-9)
    counted = text[:min(train, MOST_CHARACTERS)].encode("utf-32-le")
    return text_of(np.frombuffer(counted, np.uint32), len(set(text + held_out)), context)


def text_of_config(config):
    """The Text of a resolved config's training part."""
    data = config["data"]
    paths = data["path"] if isinstance(data["path"], list) else [data["path"]]
    return _text_of(tuple(paths), data.get("val_path"), data.get("val_fraction", 0.1), config["model"]["context"])


# ---- means over Gaussian features -------------------------------------------------------------------------------

ORDERS, STEP = 40, 0.025  # of the Hermite series, whose rest of E f^2 goes with rho^40; of the quadrature
Z = np.arange(-8, 8 + STEP / 2, STEP)
_ERF_AT = np.linspace(-6, 6, 24001)
_ERF = np.array([math.erf(x) for x in _ERF_AT])
FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: 0.5 * x * (1 + np.tanh(0.5 * x)),
}
POINTWISE = {"dyt": lambda x: np.tanh(0.5 * x), "derf": lambda x: erf(0.5 * x)}  # norms, at their first alpha
Response = namedtuple("Response", "value slope mean gain")  # E f f and E f' f' of two tokens, (T, T); E f and E f', (T)


def erf(x):
    return np.interp(x, _ERF_AT, _ERF)


@functools.cache
def _hermite():
    """(orders, points): the normalised Hermite polynomials He_n / sqrt(n!) at Z, times the weight of each point."""
    rows = [np.exp(-Z * Z / 2) / np.exp(-Z * Z / 2).sum()]
    rows.append(Z * rows[0])
    for n in range(2, ORDERS):
        rows.append((Z * rows[-1] - math.sqrt(n - 1) * rows[-2]) / math.sqrt(n))
    return np.array(rows)


def density(excess):
    """The weights at Z of a standard normal variable, with the Gram-Charlier series' first term of an excess kurtosis."""
    return _hermite()[0] + excess / math.sqrt(24) * _hermite()[4]


def correlations(kernel):
    """K_ts / sqrt(K_tt K_ss)."""
    scale = np.sqrt(np.maximum(np.diag(kernel), 1e-300))
    return np.clip(kernel / np.outer(scale, scale), -1, 1)


def response(f, kernel, excess=0.0):
    """Of Gaussian features of this kernel: E f(u_t) f(u_s) = sum_n a_n(t) a_n(s) rho^n, a_n the Hermite coefficients of
    f(sqrt(K_tt) z); `excess` kurtosis changes E f(u_t)^2."""
    deviation, rho = np.sqrt(np.maximum(np.diag(kernel), 1e-300))[:, None], correlations(kernel)

    def product(y):
        a, square = y @ _hermite().T, (y * y) @ _hermite()[0]
        factor = np.sqrt((y * y) @ density(excess) / np.maximum(square, 1e-300))
        a, rest = a * factor[:, None], factor * np.sqrt(np.maximum(square - (a * a).sum(1), 0))
        total = np.outer(rest, rest)
        for n in reversed(range(ORDERS)):
            total = total * rho + np.outer(a[:, n], a[:, n])
        return total, a[:, 0]

    y = f(deviation * Z)
    (value, mean), (slope, gain) = product(y), product(np.gradient(y, STEP, axis=1) / deviation)
    return Response(value, slope, mean, gain)


def hidden_of(activation, kernel):
    """The Response of the FFN's hidden features to arguments of this kernel. ReLU: the arc-cosine kernels (Cho & Saul 2009).
    SwiGLU: silu(g) u of independent g and u, whose gradient comes back through both."""
    if activation == "relu":
        scale, rho = np.sqrt(np.diag(kernel)), correlations(kernel)
        slope = (math.pi - np.arccos(rho)) / (2 * math.pi)
        value = np.outer(scale, scale) * (np.sqrt(1 - rho * rho) / (2 * math.pi) + slope * rho)
        return Response(value, slope, scale / math.sqrt(2 * math.pi), None)
    if activation == "swiglu":
        silu = response(FUNCTIONS["silu"], kernel)
        return Response(silu.value * kernel, silu.value + silu.slope * kernel, 0 * silu.mean, None)
    return response(FUNCTIONS[activation], kernel)


def kurtosis_of(activation, variance):
    """E h^4 / (E h^2)^2 of the FFN's hidden features of arguments of this variance."""
    y = FUNCTIONS["silu" if activation == "swiglu" else activation](math.sqrt(variance) * Z)
    return float((y**4) @ density(0.0) / ((y * y) @ density(0.0))**2) * (3 if activation == "swiglu" else 1)


# ---- softmax of Gaussian scores ---------------------------------------------------------------------------------

# Weights A_i = e^(s_i) / Z, s_i independent N(0, sigma^2). From 1/Z^k = integral of x^(k-1) e^(-xZ) / Gamma(k) dx and x = e^y, with
#   phi(y) = E exp(-e^(s+y)) and h_k(y) = E e^(k(s+y)) exp(-e^(s+y)):
#   E sum A^k = n / Gamma(k) integral of h_k phi^(n-1) dy,   E ln Z = integral of exp(-e^y) - phi^n dy  (Frullani).
SIGMAS, COUNTS = np.geomspace(0.05, 30, 56), np.array([c << k for k in range(10) for c in (2, 3)], float)


def _score_integrals(sigma, shift=0.0, reach=30.0):
    """(y, [phi, h_1, .. h_4] at y) of scores N(shift, sigma^2); trapezoids, whose error falls as exp(-1/step)."""
    step = min(max(sigma, 2e-3), 0.5)
    half = math.ceil(6.5 * sigma / step)
    weight = np.exp(-(np.arange(-half, half + 1) * step / max(sigma, 1e-300))**2 / 2)
    y = -7 * sigma - reach + step * np.arange(int((14 * sigma + reach + 8) / step) + 1)
    x = np.exp(np.minimum(np.arange(-half, len(y) + half) * step + y[0] + shift, 6.5))
    return y, np.array([np.convolve(x**k * np.exp(-x), weight / weight.sum(), "valid") for k in range(5)])


def exponent_of(n, participation):
    """g of weights whose second moments are e^g to 1, equal weight against another, with sum_i E A_i^2 = participation."""
    y = np.clip(participation, 1 / n, 1 - 1e-9)
    return np.log(np.maximum(y * (n - 1) / (1 - y), 1))


def slope_of(n, y):
    """Q below of weights of participation y, were they one large among equal small ones."""
    return y * (1 - 1 / n)**2 + (1 - y) / n**2


@functools.cache
def _softmax_table():
    """(3, sigmas, counts): logarithms of exponent / sigma^2, of Q / slope_of and of entropy / ln n, which are smooth."""
    table, n = np.zeros((3, len(SIGMAS), len(COUNTS))), COUNTS
    for i, sigma in enumerate(SIGMAS):
        y, (phi, h1, h2, h3, h4) = _score_integrals(sigma)
        step, others = y[1] - y[0], np.maximum(phi, 1e-300)[:, None]**(n - 2)
        single = [n * ((h * phi) @ others) * step for h in (h2, h3, h4)]
        participation = single[0]
        slope = participation - single[1] + single[2] / 6 + n * (n - 1) / 6 * ((h2 * h2) @ others) * step
        log_sum = (np.exp(-np.exp(y))[:, None] - phi[:, None]**2 * others).sum(0) * step
        entropy = log_sum - sigma**2 * (1 - participation)  # E sum A s = sigma^2 (1 - E sum A^2)  (Stein)
        table[:, i] = np.log([exponent_of(n, participation) / sigma**2, slope / slope_of(n, participation), entropy / np.log(n)])
    return table


def softmax_moments(n, sigma):
    """Arrays of n >= 2 and sigma: (participation E sum A^2, Q = E sum A^2 - 2 sum A^3 + (sum A^2)^2 of the softmax's Jacobian,
    entropy in nats), within 1e-3."""
    beyond = np.maximum(sigma / SIGMAS[-1], 1)
    row = np.interp(np.log(np.maximum(sigma, SIGMAS[0])), np.log(SIGMAS), np.arange(len(SIGMAS)))
    column = np.interp(np.log(n), np.log(COUNTS), np.arange(len(COUNTS)))
    i, j = np.minimum(row.astype(int), len(SIGMAS) - 2), np.minimum(column.astype(int), len(COUNTS) - 2)
    a, b, table = row - i, column - j, _softmax_table()
    gamma, slope, entropy = np.exp((1 - a) * ((1 - b) * table[:, i, j] + b * table[:, i, j + 1]) +
                                   a * ((1 - b) * table[:, i + 1, j] + b * table[:, i + 1, j + 1]))
    y = 1 / (1 + (n - 1) * np.exp(-gamma * np.minimum(sigma, SIGMAS[-1])**2))
    return 1 - (1 - y) / beyond, slope * slope_of(n, y) / beyond, entropy * np.log(n) / beyond


@functools.lru_cache(maxsize=4096)
def shifted_softmax(n, sigma, shift):
    """Of n scores, one of which is `shift` higher: (E ln Z, E A of that one, E A of another, E A^2 of that one, of another)."""
    beyond = max(sigma / SIGMAS[-1], 1)
    y, h = _score_integrals(sigma / beyond, 0, 30 + shift)
    own = _score_integrals(sigma / beyond, shift, 30 + shift)[1]
    step, others = y[1] - y[0], np.maximum(h[0], 1e-300)**(n - 2)
    log_sum = (np.exp(-np.exp(y)) - own[0] * h[0] * others).sum() * step
    mean = (own[1] * h[0] * others).sum() * step
    squares = [(own[2] * h[0] * others).sum() * step, (own[0] * h[2] * others).sum() * step]
    return math.log(n) + beyond * (log_sum - math.log(n)), mean, (1 - mean) / (n - 1), *squares


# ---- norms ------------------------------------------------------------------------------------------------------

# Features of the stream: kernel K (T, T); `mean` (T) over the features, which sinusoids have; `share` (T): x = share times the
# token's embedding plus what is independent of it; `excess`: kurtosis of a feature beyond a Gaussian's.
Signal = namedtuple("Signal", "kernel mean share excess")
STATISTICS = ("layernorm", "rmsnorm", "groupnorm")
NOT_GAUSSIAN = 0.03  # excess kurtosis times the nonlinear part of a pointwise norm, beyond which gradients are 10% off


def mean_square(kernel):
    return float(np.mean(np.diag(kernel)))


def branch_signal(kernel, mean=0.0):
    """What a sum over many features is: Gaussian, and independent of the embeddings."""
    zero = np.zeros(len(kernel))
    return Signal(kernel, zero + mean, zero, 0.0)


def normed(model, present, x):
    """(N(x), R) with the gradient's kernel of x that of N(x) times R; (x, 1) without a norm. With statistics over features
    R = r_t r_s, r = 1/sqrt(variance + eps), and so is N(x): what lies along x and 1 is a share of order 1/C of a gradient.
    Pointwise: E f f and E f' f' of features near to Gaussian."""
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
    """R of a norm that reads a branch, to order 1/width: E 1/V over 1/E V, V the mean square, less the part along x and 1. That is
    1 + 1/width for Gaussian features, and + `variance`, the relative variance of the square that the last matrix reads."""
    if isinstance(factor, float) or model["norm"] in POINTWISE:
        return factor
    return factor * (1 + (model["norm_groups"] if model["norm"] == "groupnorm" else 1) / width + variance)


# ---- attention --------------------------------------------------------------------------------------------------


def centred(a):
    """Less its means over rows and columns."""
    a = a - a.mean(0)
    return a - a.mean(1, keepdims=True)


def _later(a):
    """Sums over all rows and columns from each on."""
    return a[::-1].cumsum(0)[::-1, ::-1].cumsum(1)[:, ::-1]


class Attention:
    """Causal attention on kernels. Scores of a query with its keys are Gaussian, so weights A of two queries t, t' have moments
      M_ss' = E A_ts A_t's'  proportional to  exp(sqrt(gamma_t gamma_t') beta K_tt' K~_ss'),  sum 1,
    with beta = C Var(q) C Var(k), K~ the keys' kernel centred over s <= t, s' <= t' (a common part of the scores cancels), and
    gamma such that sum_s M_ss of t = t' is the exact participation (softmax_moments). Rope multiplies the scores' covariance by
    the mean over its frequencies of cos((s-t) - (s'-t')). qk_norm: keys have the kernel K r_t r_s, r = (K_tt + eps/C Var(k))^-1/2.
    Neighbouring queries share the exponents of the last in their cell."""
    CELLS = 1.4  # ratio of the ends of two cells

    def __init__(self, kernel, model, query, value):
        """`query` C Var(q), `value` C Var(v)."""
        T, D, eps = len(kernel), model["d_model"] // model["n_head"], model["norm_eps"]
        self.size, diagonal = T, np.diag(kernel)
        part = query * diagonal / (query * diagonal + eps) if model["qk_norm"] or model["qkv_norm"] else np.zeros(T)
        r = 1 / np.sqrt(diagonal + eps / query)
        self.normed, self.beta = part.any(), 1.0 if part.any() else query**2
        self.key = kernel * np.outer(r, r) if self.normed else kernel
        # Back through W_q or W_k, of scores in the scale of the keys.
        self.score_scale = np.outer(r, r) * (D - 1) / max(D - 2, 1) if self.normed else query**2
        r = 1 / np.sqrt(diagonal + eps / value)
        self.value_scale = np.outer(r, r) if model["qkv_norm"] else value
        self.value = kernel * self.value_scale
        self.turn = np.ones(4 * T + 1)  # at lags -2T .. 2T
        if model["position"] == "rope":
            self.turn = np.cos(np.outer(np.arange(-2 * T, 2 * T + 1), 10000.0**(-2 * np.arange(D // 2) / D))).mean(1)
        self.cells = [0]
        while self.cells[-1] < T:
            self.cells.append(min(max(self.cells[-1] + 1, int(self.cells[-1] * self.CELLS)), T))
        self._moments(part, D, model["n_head"])

    def _moments(self, part, D, heads):
        T = self.size
        n, position = np.arange(1, T + 1.0), np.arange(T)
        turned = self.key * self.turn[position[:, None] - position + 2 * T]
        own = np.diag(self.key)
        total = np.cumsum(2 * np.tril(turned).sum(1) - own)
        variance = np.zeros(T)  # of a query's scores about their mean
        variance[1:] = np.maximum(self.beta * own * (np.cumsum(own) - total / n), 0)[1:] / (n[1:] - 1)
        # |q|^2 / E |q|^2 is chi^2_D / D (by Wilson and Hilferty's cube of a normal variable), or nearly 1 after a norm.
        z, weights = np.polynomial.hermite_e.hermegauss(5)
        length = np.maximum(1 - 2 / (9 * D) + z * math.sqrt(2 / (9 * D)), 0)[:, None]**3
        length = length / (1 - part + part * length)
        moments = np.array(softmax_moments(np.maximum(n, 2), np.sqrt(variance * length)))
        participation, slope, entropy = np.einsum("mzt,z->mt", moments, weights / weights.sum())
        sharp = (n > 1) & (variance > 1e-10)
        self.gamma, self.factor = np.ones(T), np.ones(T)
        self.gamma[sharp] = (exponent_of(n, participation) / np.maximum(variance, 1e-300))[sharp]
        self.factor[sharp] = np.sqrt(slope / slope_of(n, participation))[sharp]
        self.entropy, self.score_std = float(np.mean(entropy * (n > 1))), math.sqrt(variance[-1])
        keys = np.diag(centred(turned))
        unequal = self.score_std * float(keys.std() / max(keys.mean(), 1e-300))
        if not (self.score_std <= SATURATED * min(heads / 4, 1) and unequal <= UNEQUAL):
            raise NoPrediction(f"attention is saturated: scores have a standard deviation of {self.score_std:.3g} with {heads} "
                               "heads, and rare near-ties decide the gradient; try qk_norm, or norms before attention")

    def _passes(self):
        """Pairs of queries (t, t') of two cells [a, b) and [c, d), those with t = t' apart: (a, b, c, d, mask of the pairs, K~
        with rope's cosines, those cosines, M but for its sum); arrays (b, d)."""
        for i, (a, b) in enumerate(zip(self.cells, self.cells[1:])):
            for c, d in zip(self.cells[:i + 1], self.cells[1:]):
                for same in (False, True) if a == c else (False,):
                    mask = (np.arange(a, b)[:, None] == np.arange(c, d)) == same
                    if not mask.any():
                        continue
                    pairs = self.key[a:b, c:d] * np.sqrt(np.outer(self.gamma[a:b], self.gamma[c:d]))
                    lag = (a + b) // 2 - (c + d) // 2
                    turn = self.turn[np.arange(b)[:, None] - np.arange(d) - lag + 2 * self.size]
                    x = centred(self.key[:b, :d] * turn)
                    yield a, b, c, d, mask, x, turn, np.exp(np.minimum(self.beta * pairs[mask].mean() * x, 200))

    def _moved(self, b, d, weights):
        """A_ts A_t's' (v_s - mean v).(v_s' - mean v), whose sums over s and over s' are 0."""
        return centred(weights * centred(self.value[:b, :d]))

    def forward(self):
        """The kernel of the heads' outputs. Sets `response`: their mean square change, to first order, by noise in the scores that
        has the scores' own covariance."""
        out, responses = np.zeros_like(self.key), np.zeros(self.size)
        for a, b, c, d, mask, x, _, w in self._passes():
            def read(of):
                return of.cumsum(0)[a:b].cumsum(1)[:, c:d]
            total = read(w)
            out[a:b, c:d] += mask * read(w * self.value[:b, :d]) / total
            if a == c and mask[0, 0]:
                responses[a:b] = np.diag(read(self._moved(b, d, w) * x) / total)
        self.response = float(np.mean(self.factor**2 * self.beta * np.diag(self.key) * responses))
        return np.tril(out) + np.tril(out, -1).T

    def backward(self, gradient):
        """The kernel of the gradient of attention's input. Values: G^v_ss' = sum_tt' M G_tt'. Scores: ds_ts = A_ts da_t.(v_s -
        mean v), so that with f, the factor by which a sharp softmax passes less,
          G^q_tt' = f G_tt' sum_ss' M K~^v_ss' K~^k_ss',  G^k_ss' = sum_tt' f G_tt' M K~^v_ss' K^q_tt'."""
        values, scores = np.zeros_like(gradient), np.zeros_like(gradient)
        for a, b, c, d, mask, x, turn, w in self._passes():
            moved = self._moved(b, d, w)
            once = 0.5 if a == c else 1.0  # only pairs of a cell and an earlier one are visited
            through = mask * once * gradient[a:b, c:d] / w.cumsum(0)[a:b].cumsum(1)[:, c:d]
            through_scores = through * np.outer(self.factor[a:b], self.factor[c:d])
            scores[a:b, c:d] += through_scores * (moved * x).cumsum(0)[a:b].cumsum(1)[:, c:d]
            values[:b, :d] += np.pad(_later(through), ((a, 0), (c, 0)), "edge") * w
            scores[:b, :d] += np.pad(_later(through_scores * self.key[a:b, c:d]), ((a, 0), (c, 0)), "edge") * moved * turn
        return self.value_scale * (values + values.T) + self.score_scale * (scores + scores.T)


# ---- the model's two ends ---------------------------------------------------------------------------------------


def embedded(model, text):
    """What the first block receives, but for a norm of the embeddings."""
    T, C, variance = model["context"], model["d_model"], model["init"]["embed_std"]**2
    lag = np.arange(T)[:, None] - np.arange(T)
    kernel, mean = variance * text.same[lag + T], np.zeros(T)
    if model["position"] == "learned":
        kernel = kernel + variance * np.eye(T)
    elif model["position"] == "sinusoidal":
        angle = np.arange(T)[:, None] * 10000.0**(-2 * np.arange(C // 2) / C)
        waves = np.hstack([np.sin(angle), np.cos(angle)])
        kernel, mean = kernel + waves @ waves.T / C, waves.mean(1)
    return Signal(kernel, mean, np.ones(T), 0.0)


Head = namedtuple("Head", "loss logits logits_gradient gradient passed")


def head_of(x, width, variance, tied, tokens, text):
    """Logits, loss and the gradient of the head's input x. `variance` of an entry of the head. A tied head is the embedding, so that
    the logit of the character just read is C variance share higher than the others.
      G_ts = variance/N^2 E (p_t - y_t).(p_s - y_s),
    p with mean own on c_t and other elsewhere, and a covariance by the participation of V scores; y the next character. `passed`: G
    without the part along x, which the norm that made x takes out: for a token whose embedding has a share a^2 of its mean square,
    a^2 variance (p - y)_c^2."""
    T, V, scale = len(x.kernel), text.size, width * variance
    sigma = np.sqrt(scale * np.diag(x.kernel))
    shift = scale * x.share if tied else np.zeros(T)
    log_sum, own, other, own2, other2 = np.array([shifted_softmax(V, *pair) for pair in zip(sigma.round(9), shift.round(9))]).T
    square = own2 + (V - 1) * other2  # E |p|^2
    exponent = exponent_of(V, square - own**2 - (V - 1) * other**2 + 1 / V)
    rho, delta = correlations(x.kernel), own - other
    e = np.exp(np.sqrt(np.outer(exponent, exponent)) * rho)
    d = np.arange(T) - np.arange(T)[:, None] + T  # of (t, s): the index of lag s - t
    same, next_, twice, every = text.same[d], text.same[d + 1], text.twice[d], text.all[d]  # next_: c_t = y_s
    repeat = text.same[T + 1]  # c = y
    means = V * np.outer(other, other) + np.outer(delta, other) + np.outer(other, delta) + same * np.outer(delta, delta)
    targets = other[:, None] + delta[:, None] * next_
    gradient = means + e / (V - 1 + e) - 1 / V - targets - targets.T + same
    a2 = np.minimum(variance * x.share**2 / np.diag(x.kernel), 1) if tied else np.zeros(T)
    # E (p - y)_t,ct (p - y)_s,ct, and E (p - y)_t,ct (p - y)_s,cs x_t.x_s / |x_t||x_s|.
    cross = own[:, None] * (other + delta * same - next_) - (other * repeat + delta * text.then[d] - text.then[d + 1])
    both = np.outer(own, own) - (own[:, None] + own) * repeat + twice
    alike = np.outer(own, own) * same - own[:, None] * text.then[d].T - own * text.then[d] + every
    a = np.sqrt(a2)
    along = a2[:, None] * cross
    passed = gradient - along - along.T + np.outer(a, a) * (np.outer(a, a) * alike + (rho - np.outer(a, a) * same) * both)
    diagonal = np.arange(T), np.arange(T)
    passed[diagonal] = gradient[diagonal] - a2 * (own2 - 2 * own * repeat + repeat)
    loss = np.mean(log_sum - shift * repeat)
    right = other + delta * repeat  # E p of the target
    return Head(float(loss), float(np.mean(sigma**2 + shift**2 / V)), float(np.mean(square - 2 * right + 1)) / V / tokens**2,
                gradient * variance / tokens**2, passed * variance / tokens**2)


# ---- the recursion ----------------------------------------------------------------------------------------------

# `sites` {(layer, site): (rms, grad_rms)} in the order of layers.csv; `layers` of 0 .. L: dicts of `token_cosine` of two tokens of
# a sequence, `input_cosine` of x_0 and x_l, and but for 0 `entropy` (nats), `score_std` and `max_score` of attention;
# `amplification` A: noise of relative variance v in every matrix changes the stream by A v, relatively.
Prediction = namedtuple("Prediction", "sites layers loss amplification")


def power(row, n):
    """(base n)^exponent of a placement's row, or (ln(base n))^exponent."""
    base, exponent, *form = row
    return (math.log(base * n) if form == ["log"] else base * n)**exponent


def sites_of(n_layer):
    return [(0, "stream"), *((layer, site) for layer in range(1, n_layer + 1) for site in (*SITES[1:], "stream")),
            (n_layer + 1, "final"), (n_layer + 1, "logits")]


class Sublayer:
    """y = N_out(alpha x + a N_branch(F(s N_in(x)))): kernels forward, then gradients backward."""

    def __init__(self, model, row, layer, is_ffn):
        self.model, self.row, self.layer, self.is_ffn = model, row, layer, is_ffn
        self.depth = model["n_layer"]
        self.alpha = power(row["alpha"], self.depth) if model["residual"] else 0.0
        self.input_scale = power(row["input_scale"], layer)
        # On the variance of v, attn.out, ffn.in, ffn.gate and ffn.out.
        gain = power(row["init_gain"], self.depth)**2
        width = model["d_ff"] if is_ffn else model["d_model"]
        self.into = model["d_model"] * gain * variance_of(model, width, model["d_model"])
        self.out = width * gain * variance_of(model, model["d_model"], width)
        if model["init"]["residual_scaling"]:
            self.out /= 2 * self.depth
        self.branch = 0.0 if row["learned_scale"] else branch_scale(model)
        self.inner = model["inner_norm"] or row["inner_norm"]

    def forward(self, x, sites, layers, noise):
        """(the sum's Signal, its amplification); sets mean squares of the sites."""
        name = "ffn" if self.is_ffn else "attn"
        y, self.norm_in = normed(self.model, self.row["norm_in"], x)
        kernel = y.kernel * self.input_scale**2
        sites[self.layer, name + "_in"] = mean_square(kernel)
        kernel, matrices = self._feed_forward(kernel, sites) if self.is_ffn else self._attention(kernel, layers[self.layer])
        kernel = kernel * self.out
        sites[self.layer, name + "_out"] = mean_square(kernel)
        y, factor = normed(self.model, self.row["norm_branch"], branch_signal(kernel))
        inner = not isinstance(self.norm_inner, float)  # leaves no variance
        self.norm_branch = of_branch(self.model, factor, self.model["d_model"], 0.0 if inner else self.variance)
        added, kept = y.kernel * self.branch**2, x.kernel * self.alpha**2
        share = mean_square(added) / mean_square(added + kept)
        total = Signal(kept + added, self.alpha * x.mean, self.alpha * x.share, x.excess * (1 - share)**2)
        total, self.norm_out = normed(self.model, self.row["norm_out"], total)
        sites[self.layer, "stream" if self.is_ffn else "stream_mid"] = mean_square(total.kernel)
        # A branch passes on the stream's noise as it does its first matrices', and adds its own matrices'.
        return total, (1 - share) * noise + share * (matrices + noise * (matrices - 1))

    def _attention(self, kernel, layer):
        C = self.model["d_model"]
        self.attention = Attention(kernel, self.model, C * variance_of(self.model, C, C), self.into)
        layer.update(entropy=self.attention.entropy, score_std=self.attention.score_std,
                     max_score=self.attention.score_std * math.sqrt(2 * math.log(len(kernel))))
        kernel = self.attention.forward()
        matrices = 2 + 2 * self.attention.response / mean_square(kernel)  # v and o; q and k by the scores
        y, factor = normed(self.model, self.inner, branch_signal(kernel))
        self.norm_inner, self.variance = of_branch(self.model, factor, C, 0.0), 2 / C
        return y.kernel, matrices

    def _feed_forward(self, kernel, sites):
        model, kernel, self.inner_slope = self.model, kernel * self.into, 1.0
        hidden = hidden_of(model["activation"], kernel)
        self.slope, self.variance = hidden.slope, (kurtosis_of(model["activation"], mean_square(kernel)) - 1) / model["d_ff"]
        sites[self.layer, "ffn_hidden"] = mean_square(hidden.value)
        matrices = 1 + mean_square(kernel * hidden.slope) / mean_square(hidden.value)  # the last; what the activation passes
        if not (self.inner and model["norm"] in POINTWISE):
            y, factor = normed(model, self.inner, branch_signal(hidden.value, hidden.mean))
            self.norm_inner = of_branch(model, factor, model["d_ff"], self.variance - 2 / model["d_ff"])
            return y.kernel, matrices
        if model["activation"] == "swiglu":
            raise NoPrediction(f"swiglu leaves features that are far from Gaussian for an inner {model['norm']}; try rmsnorm")
        f, norm = FUNCTIONS[model["activation"]], POINTWISE[model["norm"]]
        both = response(lambda u: norm(f(u)), kernel)  # N(phi(u)) of Gaussian u
        self.slope, self.norm_inner = both.slope, 1.0
        self.inner_slope = mean_square(both.slope) / mean_square(hidden.slope)  # about E N'(phi)^2
        return both.value, matrices

    def backward(self, gradient, sites):
        """From the gradient's kernel of y to that of x; sets mean squares of the sites' gradients."""
        model, name = self.model, "ffn" if self.is_ffn else "attn"
        gradient = gradient * self.norm_out
        dy = gradient * self.branch**2 * self.norm_branch
        sites[self.layer, name + "_out"] = mean_square(dy)
        ratio = model["d_model"] / model["d_ff"] if self.is_ffn else 1.0
        dy = dy * self.out * ratio * self.norm_inner
        if self.is_ffn:
            sites[self.layer, "ffn_hidden"] = mean_square(dy) * self.inner_slope
            dy = dy * self.slope * self.into / ratio
        else:
            dy = self.attention.backward(dy)
        dx = self.alpha**2 * gradient + dy * self.input_scale**2 * self.norm_in
        # Without a norm or a factor in between F reads the stream itself.
        own = isinstance(self.norm_in, float) and self.input_scale == 1
        sites[self.layer, name + "_in"] = mean_square(dx if own else dy)
        sites[(self.layer, "stream_mid") if self.is_ffn else (self.layer - 1, "stream")] = mean_square(dx)
        return dx


def variance_of(model, out, into):
    """Of an entry of a matrix (out, into), before a placement's factor."""
    scheme = model["init"]["scheme"]
    if scheme == "gpt2":
        return model["init"]["std"]**2
    return 2 / into if scheme == "kaiming_normal" else 2 / (out + into)


def branch_scale(model):
    """A number, or L^-a."""
    scale = model["branch_scale"]
    return model["n_layer"]**float(scale.removeprefix("L^")) if isinstance(scale, str) else float(scale)


KNOWN = {*STATISTICS, *POINTWISE, *FUNCTIONS, "none", "swiglu", "learned", "rope", "sinusoidal", "gpt2", "xavier_normal", "xavier_uniform",
         "kaiming_normal"}


def _require_known(model):
    for name in (model["norm"], model["activation"], model["position"], model["init"]["scheme"]):
        if name not in KNOWN:
            raise NoPrediction(f"no theory of {name}")
    if model["norm"] in POINTWISE and model["norm_alpha"] != 0.5:
        raise NoPrediction(f"model.norm_alpha is {model['norm_alpha']}; the theory has 0.5 only")
    if model["norm_detach"]:
        raise NoPrediction("model.norm_detach: the theory's gradients pass through the statistics")
    if model["init"]["zero_branches"]:
        raise NoPrediction("model.init.zero_branches leaves no branches to predict")
    if model["context"] > LONGEST_CONTEXT:
        raise NoPrediction(f"model.context is {model['context']}; at most {LONGEST_CONTEXT}")


def width_error(model):
    """About how far gradients are from the limit of wide layers: a part in C a block, and four without residuals, where what one
    block is off multiplies the next."""
    groups = model["norm_groups"] if model["norm"] == "groupnorm" else 1
    return model["n_layer"] * groups / model["d_model"] * (1 if model["residual"] else 4)


def allowed(model, seeds, tolerance=TOLERANCE):
    """(of an activation, of a gradient): how far the logarithm of a measured rms may be from the prediction's. The spread of one seed
    is unknown: it has three times the tolerance."""
    limit = math.log1p(tolerance * (3 if seeds == 1 else 1))
    return limit, limit + width_error(model)


def tokens_of(config):
    """N: tokens over which a step's loss is a mean."""
    train = config["train"]
    return train["batch_size"] * train.get("grad_accum", 1) * config["model"]["context"]


def resolved(config, settings=()):
    """The resolved config of a file."""
    done = ask("config", argument(config), *(f"--set={setting}" for setting in settings), purpose="knows the keys")
    if done.returncode:
        raise ScriptError("\n".join(map(printable, done.stderr.decode("utf-8", "replace").splitlines())), done.returncode)
    return json.loads(done.stdout)


def predict(config, text=None, tokens=None, narrow=False):
    """The Prediction for a resolved config; `text`: its Text, if it need not be read; `tokens` N, over which the loss is a mean;
    `narrow`: also of a model too narrow for it. NoPrediction where the theory has none."""
    model = completed(config["model"])
    if width_error(model) > TOO_NARROW and not narrow:
        raise NoPrediction(f"{model['n_layer']} blocks are too many for width {model['d_model']}: the theory's error would be "
                           f"about {width_error(model):.0%}; widen model.d_model")
    if config.get("train", {}).get("branch_warmup_steps", 0) > 0:
        raise NoPrediction("train.branch_warmup_steps scales the branches of the first steps")
    rows = [[PLACEMENTS[name] for name in pair] for pair in placements(model, model["n_layer"])]
    _require_known(model)
    text = text or text_of_config(config)
    tokens = tokens or tokens_of(config)
    L, width = model["n_layer"], model["d_model"]
    squares, slopes = {}, {}  # mean squares of the sites, and of their gradients
    x, _ = normed(model, model["embed_norm"] or rows[0][0]["embed_norm"], embedded(model, text))
    start, squares[0, "stream"], noise = x, mean_square(x.kernel), 0.0
    layers, sublayers = [_layer(x, start)], []
    for layer, pair in enumerate(rows, 1):
        layers.append({})
        for is_ffn, row in enumerate(pair):
            sublayers.append(Sublayer(model, row, layer, bool(is_ffn)))
            x, noise = sublayers[-1].forward(x, squares, layers, noise)
        layers[layer].update(_layer(x, start))
    x, final_norm = normed(model, model["final_norm"], x)
    variance = model["init"]["embed_std"]**2 if model["tie_embeddings"] else variance_of(model, text.size, width)
    head = head_of(x, width, variance, model["tie_embeddings"], tokens, text)
    squares[L + 1, "final"], squares[L + 1, "logits"] = mean_square(x.kernel), head.logits
    slopes[L + 1, "final"], slopes[L + 1, "logits"] = mean_square(head.gradient), head.logits_gradient
    made_by_norm = model["norm"] in STATISTICS and (model["final_norm"] or sublayers[-1].row["norm_out"])
    gradient = (head.passed if made_by_norm else head.gradient) * final_norm
    slopes[L, "stream"] = slopes[L + 1, "final"] if isinstance(final_norm, float) else mean_square(gradient)
    for sublayer in reversed(sublayers):
        gradient = sublayer.backward(gradient, slopes)
    sites = {site: tuple(_root(site, of[site]) for of in (squares, slopes)) for site in sites_of(L)}
    return Prediction(sites, layers, head.loss, noise)


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
