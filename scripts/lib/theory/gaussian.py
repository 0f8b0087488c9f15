"""Means over Gaussian variables: of functions of features, and of the weights of a softmax.

T tokens; a kernel (T, T) holds E u_t u_s of features u."""

import functools
import math
from collections import namedtuple

from lib.base.command import ScriptError
from lib.logs import np
from lib.model.forward import ACTIVATIONS, erf


class NoPrediction(ScriptError):
    """The theory has no answer for this config, or its error is not known."""

    def __init__(self, why):
        super().__init__(f"no prediction: {why}", 2)
        self.why = why


# ---- functions of features --------------------------------------------------------------------------------------

ORDERS = 40  # terms of a Hermite series
SPACING = 0.025  # of the points Z, at which means over a standard normal variable are taken
Z = np.arange(-8, 8 + SPACING / 2, SPACING)
FUNCTIONS = {name: functools.partial(ACTIVATIONS[name], np) for name in ("relu", "gelu", "gelu_tanh", "silu")}
POINTWISE = {"dyt": lambda x: np.tanh(0.5 * x), "derf": lambda x: erf(0.5 * x)}  # norms, at their first alpha
# Moments of f(u_t): `value` E f(u_t) f(u_s), `slope` E f'(u_t) f'(u_s), (T, T); `mean` E f(u_t), `gain` E f'(u_t), (T).
Response = namedtuple("Response", "value slope mean gain")


@functools.cache
def _hermite():
    """(orders, points): the normalised Hermite polynomials He_n / sqrt(n!) at Z, times the weight of each point."""
    rows = [np.exp(-Z * Z / 2) / np.exp(-Z * Z / 2).sum()]
    rows.append(Z * rows[0])
    for n in range(2, ORDERS):
        rows.append((Z * rows[-1] - math.sqrt(n - 1) * rows[-2]) / math.sqrt(n))
    return np.array(rows)


def slope_at(f, x):
    """f'(x), by a difference that is wide beside the points of forward.erf()."""
    return (f(x + SPACING) - f(x - SPACING)) / (2 * SPACING)


def density(excess):
    """The weights at Z of a nearly normal variable of variance 1 with this excess kurtosis: the normal density plus the
    term of He_4 in the Gram-Charlier series."""
    return _hermite()[0] + excess / math.sqrt(24) * _hermite()[4]


def mean_square(kernel):
    """The mean square of a feature, averaged over tokens."""
    return float(np.mean(np.diag(kernel)))


def correlations(kernel):
    """K_ts / sqrt(K_tt K_ss)."""
    scale = np.sqrt(np.maximum(np.diag(kernel), 1e-300))
    return np.clip(kernel / np.outer(scale, scale), -1, 1)


def response(f, kernel, excess=0.0):
    """The Response of Gaussian features of this kernel: E f(u_t) f(u_s) = sum_n a_n(t) a_n(s) rho^n, with the Hermite
    coefficients a_n(t) = E f(sqrt(K_tt) z) He_n(z) / sqrt(n!). The part of E f^2 beyond ORDERS terms is multiplied by
    rho^ORDERS. An `excess` kurtosis of the features changes E f(u_t)^2, and all coefficients in proportion."""
    deviation, rho = np.sqrt(np.maximum(np.diag(kernel), 1e-300))[:, None], correlations(kernel)

    def product(y):
        """(E y_t y_s, E y_t) of y, the function at the points Z, (T, points)."""
        a, square = y @ _hermite().T, (y * y) @ _hermite()[0]
        factor = np.sqrt((y * y) @ density(excess) / np.maximum(square, 1e-300))
        a, rest = a * factor[:, None], factor * np.sqrt(np.maximum(square - (a * a).sum(1), 0))
        total = np.outer(rest, rest)
        for n in reversed(range(ORDERS)):
            total = total * rho + np.outer(a[:, n], a[:, n])
        return total, a[:, 0]

    y = f(deviation * Z)
    (value, mean), (slope, gain) = product(y), product(np.gradient(y, SPACING, axis=1) / deviation)
    return Response(value, slope, mean, gain)


def hidden_of(activation, kernel):
    """The Response of the FFN's hidden features to arguments of this kernel K, rho its correlations. ReLU: the
    arc-cosine kernels (Cho & Saul 2009), E f f = sqrt(K_tt K_ss) (sqrt(1 - rho^2) + (pi - arccos rho) rho) / 2 pi and
    E f' f' = (pi - arccos rho) / 2 pi. SwiGLU: f = silu(g) u of independent g and u, so E f f = K E silu silu, and the
    gradient that comes back through both has the factor E silu silu + K E silu' silu'."""
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

# n weights A_i = e^(s_i) / Z, Z = sum_i e^(s_i), of independent scores s_i from N(0, sigma^2). With
#   1/Z^k = integral of x^(k-1) e^(-xZ) / Gamma(k) dx,   x = e^y,
#   phi(y) = E exp(-e^(s+y)),   h_k(y) = E e^(k(s+y)) exp(-e^(s+y)),
# the moments are integrals over y:
#   E sum_i A_i^k             = n / Gamma(k) integral of h_k phi^(n-1)
#   E sum_(i!=j) A_i^2 A_j^2  = n (n-1) / Gamma(4) integral of h_2^2 phi^(n-2)
#   E ln Z                    = integral of exp(-e^y) - phi^n           (Frullani)
#   E sum_i A_i s_i           = sigma^2 (1 - E sum_i A_i^2)             (Stein)
# E sum_i A_i^2 is called the participation: 1/n if all weights are equal, 1 if one of them is 1.
# The grid of the table of moments:
SIGMAS, COUNTS = np.geomspace(0.05, 30, 56), np.array([c << k for k in range(10) for c in (2, 3)], float)


def _score_integrals(sigma, shift=0.0, reach=30.0):
    """(y, [phi, h_1, .. h_4] at y) of scores N(shift, sigma^2), by trapezoids, whose error falls as exp(-1/step);
    `reach`: how far below the scores' range y begins."""
    step = min(max(sigma, 2e-3), 0.5)
    half = math.ceil(6.5 * sigma / step)
    weight = np.exp(-(np.arange(-half, half + 1) * step / max(sigma, 1e-300))**2 / 2)
    y = -7 * sigma - reach + step * np.arange(int((14 * sigma + reach + 8) / step) + 1)
    x = np.exp(np.minimum(np.arange(-half, len(y) + half) * step + y[0] + shift, 6.5))
    return y, np.array([np.convolve(x**k * np.exp(-x), weight / weight.sum(), "valid") for k in range(5)])


def exponent_of(n, participation):
    """g such that E A_i^2 : E A_i A_j = e^g : 1, given the participation y = sum_i E A_i^2. As y = e^g / (e^g + n - 1),
    e^g = y (n - 1) / (1 - y)."""
    y = np.clip(participation, 1 / n, 1 - 1e-9)
    return np.log(np.maximum(y * (n - 1) / (1 - y), 1))


def slope_of(n, participation):
    """An estimate of Q (see softmax_moments), from the second moments M_ij = E A_i A_j alone, with centring over the
    keys instead of over the weights: sum_ij M_ij (delta_ij - 1/n)^2."""
    return participation * (1 - 1 / n)**2 + (1 - participation) / n**2


def _moments_by_integrals(n, sigma):
    """(participation, Q, entropy in nats) of the softmax of n scores from N(0, sigma^2); n: an array. Q: see
    softmax_moments. The entropy is E ln Z - E sum_i A_i s_i."""
    y, (phi, _, *h) = _score_integrals(sigma)
    step = y[1] - y[0]
    rest = np.maximum(phi, 1e-300)[:, None]**(n - 2)  # phi^(n-2), (points, n)
    squares, cubes, fourths = (n / math.factorial(k - 1) * ((h_k * phi) @ rest) * step for k, h_k in enumerate(h, 2))
    squares_of_pairs = n * (n - 1) / math.factorial(3) * ((h[0] * h[0]) @ rest) * step
    log_sum = (np.exp(-np.exp(y))[:, None] - phi[:, None]**2 * rest).sum(0) * step
    return squares, squares - 2 * cubes + fourths + squares_of_pairs, log_sum - sigma**2 * (1 - squares)


@functools.cache
def _softmax_table():
    """(3, sigmas, counts): logarithms of exponent / sigma^2, Q / slope_of and entropy / ln n. The moments themselves
    fall by powers of ten; these ratios vary slowly with sigma and n, so that linear interpolation suffices."""
    table = np.zeros((3, len(SIGMAS), len(COUNTS)))
    for i, sigma in enumerate(SIGMAS):
        participation, slope, entropy = _moments_by_integrals(COUNTS, sigma)
        table[:, i] = np.log([exponent_of(COUNTS, participation) / sigma**2, slope / slope_of(COUNTS, participation),
                              entropy / np.log(COUNTS)])
    return table


def _table_at(n, sigma):
    """The table's three values, between its points by lines in ln sigma and ln n; at the ends beyond its ends."""
    row = np.interp(np.log(sigma), np.log(SIGMAS), np.arange(len(SIGMAS)))
    column = np.interp(np.log(n), np.log(COUNTS), np.arange(len(COUNTS)))
    i, j = np.minimum(row.astype(int), len(SIGMAS) - 2), np.minimum(column.astype(int), len(COUNTS) - 2)
    a, b, table = row - i, column - j, _softmax_table()
    return np.exp((1 - a) * ((1 - b) * table[:, i, j] + b * table[:, i, j + 1]) +
                  a * ((1 - b) * table[:, i + 1, j] + b * table[:, i + 1, j + 1]))


def softmax_moments(n, sigma):
    """(participation, Q, entropy in nats) of the softmax of n >= 2 scores, for arrays n and sigma, within 1e-3.

    Q = E sum_i A_i^2 |e_i - A|^2 = E [sum A^2 - 2 sum A^3 + (sum A^2)^2] is the mean square of the softmax's Jacobian,
    e_i being a unit vector. Above the table's largest sigma, 1 - participation, Q and entropy fall as 1/sigma: rare
    near-ties with the largest score cause them."""
    excess = np.maximum(sigma / SIGMAS[-1], 1)  # over the largest sigma of the table
    gamma, slope_ratio, entropy_ratio = _table_at(n, np.maximum(sigma, SIGMAS[0]))
    exponent = gamma * np.minimum(sigma, SIGMAS[-1])**2
    participation = 1 / (1 + (n - 1) * np.exp(-exponent))  # the inverse of exponent_of
    return (1 - (1 - participation) / excess, slope_ratio * slope_of(n, participation) / excess,
            entropy_ratio * np.log(n) / excess)


@functools.lru_cache(maxsize=4096)
def shifted_softmax(n, sigma, shift):
    """Moments of the softmax of n scores, one of which is `shift` higher: (E ln Z, E A of that one, E A of another, E
    A^2 of that one, E A^2 of another). Beyond the largest sigma of the table E ln Z - ln n grows in proportion to
    sigma, and the other moments stay."""
    excess = max(sigma / SIGMAS[-1], 1)
    y, h = _score_integrals(sigma / excess, 0, 30 + shift)
    own = _score_integrals(sigma / excess, shift, 30 + shift)[1]
    step, others = y[1] - y[0], np.maximum(h[0], 1e-300)**(n - 2)
    log_sum = (np.exp(-np.exp(y)) - own[0] * h[0] * others).sum() * step
    mean = (own[1] * h[0] * others).sum() * step
    squares = [(own[2] * h[0] * others).sum() * step, (own[0] * h[2] * others).sum() * step]
    return math.log(n) + excess * (log_sum - math.log(n)), mean, (1 - mean) / (n - 1), *squares
