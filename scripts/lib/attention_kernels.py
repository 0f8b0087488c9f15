"""Causal attention of fresh weights, as a map of kernels.

T tokens; C d_model; D head width; t, t' queries; s, s' keys."""

import math

from lib.gaussian import NoPrediction, exponent_of, slope_of, softmax_moments
from lib.runs import np

# Limits beyond which rare near-ties of a sharp softmax decide the mean gradient: the scores' standard deviation with 4
# or more heads; the product of that and the relative spread of the scores' variance over the keys.
SATURATED, UNEQUAL = 20, 1


def centred(a):
    """The array less its means over rows and over columns."""
    a = a - a.mean(0)
    return a - a.mean(1, keepdims=True)


def sums_to(a, t, u):
    """Sums over s <= t and s' <= t' of an array (keys s, keys s'), for the queries from (t, u) on."""
    return a.cumsum(0)[t:].cumsum(1)[:, u:]


def sums_from(a, t, u):
    """Sums over the queries t >= s and t' >= s' of an array of queries from (t, u) on, for all keys."""
    return np.pad(a[::-1].cumsum(0)[::-1, ::-1].cumsum(1)[:, ::-1], ((t, 0), (u, 0)), "edge")


class Attention:
    """Causal attention on kernels. Scores of a query with its keys are Gaussian, so weights A of two queries t, t' have
    moments
      M_ss' = E A_ts A_t's'  proportional to  exp(sqrt(gamma_t gamma_t') beta K_tt' K~_ss'),  sum 1,
    with beta = C Var(q) C Var(k), K~ the keys' kernel centred over s <= t, s' <= t' (a common part of the scores
    cancels), and gamma such that sum_s M_ss of t = t' is the exact participation (softmax_moments). Rope multiplies the
    scores' covariance by the mean over its frequencies of cos((s-t) - (s'-t')). qk_norm: keys have the kernel K r_t
    r_s, r = (K_tt + eps/C Var(k))^-1/2. Neighbouring queries share the exponents of the last in their cell."""
    CELLS = 1.4  # ratio of the ends of two cells of queries

    def __init__(self, kernel, model, query, value):
        """`kernel` (T, T) of what attention reads; `query` C Var(q) = C Var(k), `value` C Var(v), of the entries of the
        matrices."""
        T, D, eps, diagonal = len(kernel), model["d_model"] // model["n_head"], model["norm_eps"], np.diag(kernel)
        self.size, self.beta, self.key, self.score_scale, normed = T, query**2, kernel, query**2, 0.0
        if model["qk_norm"] or model["qkv_norm"]:
            r = 1 / np.sqrt(diagonal + eps / query)
            normed = diagonal * r**2  # mean square of a normed query, 1 but for eps
            # Back through W_q or W_k, of scores in the scale of the keys.
            self.beta, self.key = 1.0, kernel * np.outer(r, r)
            self.score_scale = np.outer(r, r) * (D - 1) / max(D - 2, 1)
        r = 1 / np.sqrt(diagonal + eps / value)
        self.value_scale = np.outer(r, r) if model["qkv_norm"] else value
        self.value = kernel * self.value_scale
        self.turn = np.ones(4 * T + 1)  # at lags -2T .. 2T
        if model["position"] == "rope":
            self.turn = np.cos(np.outer(np.arange(-2 * T, 2 * T + 1), 10000.0**(-2 * np.arange(D // 2) / D))).mean(1)
        self.cells = [0]
        while self.cells[-1] < T:
            self.cells.append(min(max(self.cells[-1] + 1, int(self.cells[-1] * self.CELLS)), T))
        self._set_moments(normed, D, model["n_head"])

    def _set_moments(self, normed, D, heads):
        """Sets gamma and f of each query, the mean entropy of attention (nats) and the standard deviation of the last
        query's scores."""
        T = self.size
        n, position = np.arange(1, T + 1.0), np.arange(T)
        turned = self.key * self.turn[position[:, None] - position + 2 * T]
        own = np.diag(self.key)
        total = np.cumsum(2 * np.tril(turned).sum(1) - own)
        variance = np.zeros(T)  # of a query's scores about their mean
        variance[1:] = np.maximum(self.beta * own * (np.cumsum(own) - total / n), 0)[1:] / (n[1:] - 1)
        self.score_std, keys = math.sqrt(variance[-1]), np.diag(centred(turned))
        unequal = self.score_std * float(keys.std() / max(keys.mean(), 1e-300))
        if not (self.score_std <= SATURATED * min(heads / 4, 1) and unequal <= UNEQUAL):
            raise NoPrediction(f"attention is saturated: scores have a standard deviation of {self.score_std:.3g} with "
                               f"{heads} heads, and rare near-ties decide the gradient; try qk_norm, or norms before "
                               "attention")
        # |q|^2 / E |q|^2 is chi^2_D / D (by Wilson and Hilferty's cube of a normal variable), or nearly 1 after a norm.
        z, weights = np.polynomial.hermite_e.hermegauss(5)
        length = np.maximum(1 - 2 / (9 * D) + z * math.sqrt(2 / (9 * D)), 0)[:, None]**3
        length = length / (1 - normed + normed * length)
        moments = np.array(softmax_moments(np.maximum(n, 2), np.sqrt(variance * length)))
        participation, slope, entropy = np.einsum("mzt,z->mt", moments, weights / weights.sum())
        sharp = (n > 1) & (variance > 1e-10)
        self.gamma = np.where(sharp, exponent_of(n, participation) / np.maximum(variance, 1e-300), 1.0)
        self.factor = np.where(sharp, np.sqrt(slope / slope_of(n, participation)), 1.0)
        self.entropy = float(np.mean(entropy * (n > 1)))

    def _passes(self):
        """Pairs of queries (t, t') of two cells [a, b) and [c, d), those with t = t' apart: (a, b, c, d, mask of the
        pairs, K~ with rope's cosines, those cosines, M but for its sum); arrays (b, d)."""
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
        """The kernel of the heads' outputs. Sets `response`: their mean square change, to first order, by noise in the
        scores that has the scores' own covariance."""
        out, responses = np.zeros_like(self.key), np.zeros(self.size)
        for a, b, c, d, mask, x, _, w in self._passes():
            total = sums_to(w, a, c)
            out[a:b, c:d] += mask * sums_to(w * self.value[:b, :d], a, c) / total
            if a == c and mask[0, 0]:
                responses[a:b] = np.diag(sums_to(self._moved(b, d, w) * x, a, c) / total)
        self.response = float(np.mean(self.factor**2 * self.beta * np.diag(self.key) * responses))
        return np.tril(out) + np.tril(out, -1).T

    def backward(self, gradient):
        """The kernel of the gradient of attention's input. Values: G^v_ss' = sum_tt' M G_tt'. Scores: ds_ts = A_ts
        da_t.(v_s - mean v), so that with f, the factor by which a sharp softmax passes less,
          G^q_tt' = f G_tt' sum_ss' M K~^v_ss' K~^k_ss',  G^k_ss' = sum_tt' f G_tt' M K~^v_ss' K^q_tt'."""
        values, scores = np.zeros_like(gradient), np.zeros_like(gradient)
        for a, b, c, d, mask, x, turn, w in self._passes():
            moved = self._moved(b, d, w)
            once = 0.5 if a == c else 1.0  # only pairs of a cell and an earlier one are visited
            through = mask * once * gradient[a:b, c:d] / sums_to(w, a, c)
            through_scores = through * np.outer(self.factor[a:b], self.factor[c:d])
            values[:b, :d] += sums_from(through, a, c) * w
            scores[a:b, c:d] += through_scores * sums_to(moved * x, a, c)
            scores[:b, :d] += sums_from(through_scores * self.key[a:b, c:d], a, c) * moved * turn
        return self.value_scale * (values + values.T) + self.score_scale * (scores + scores.T)
