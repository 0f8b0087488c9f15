"""Causal attention of fresh weights, as a map of kernels.

T tokens; C d_model; D head width; t, t' queries; s, s' keys. A kernel (T, T) holds E x_t.x_s / C."""

import math
from collections import namedtuple

from lib.logs import np
from lib.theory.gaussian import NoPrediction, exponent_of, slope_of, softmax_moments

# Limits beyond which rare near-ties of a sharp softmax decide the mean gradient: the scores' standard deviation with 4
# or more heads; the product of that and the relative spread of the scores' variance over the keys.
SATURATED, UNEQUAL = 20, 1
CELL_RATIO = 1.4  # of the ends of two cells of queries
LARGEST_EXPONENT = 200

# Queries of two cells: slices `queries` of t in [a, b) and `others` of t' in [c, d). `mask` (b - a, d - c): the pairs
# (t, t') that are meant. Arrays (b, d) over keys s < b, s' < d, shared by all these pairs: `turn`, the mean cosine of
# rope; `keys`, K~_ss' with that cosine; `moments`, M_ss' before it is divided by its sum.
CellPair = namedtuple("CellPair", "queries others mask turn keys moments")


def centred(a):
    """The array less its means over rows and over columns."""
    a = a - a.mean(0)
    return a - a.mean(1, keepdims=True)


def sums_to(a, pair):
    """Sums over the keys s <= t and s' <= t' of an array (keys, keys), for each query t and t' of a CellPair."""
    return a.cumsum(0)[pair.queries.start:].cumsum(1)[:, pair.others.start:]


def sums_from(a, pair):
    """Sums over the queries t >= s and t' >= s' of an array (queries, queries) of a CellPair, for each key."""
    padding = (pair.queries.start, 0), (pair.others.start, 0)
    return np.pad(a[::-1].cumsum(0)[::-1, ::-1].cumsum(1)[:, ::-1], padding, "edge")


class Attention:
    """Causal attention on kernels: `forward` takes the kernel K of the input to that of the heads' outputs, `backward`
    the gradient's the other way.

    Scores: q_t.k_s is Gaussian, and that of t and s has with that of t' and s' the covariance beta K_tt' K_ss', beta =
    C Var(q) C Var(k), where the D terms of the product and the scale 1/D of its square cancel; Var is the variance of
    an entry of a matrix. Rope multiplies it by the mean over its frequencies of cos((s-t) - (s'-t')). With qk_norm beta
    is 1, and keys have the kernel K_ss' r_s r_s', r_s = (K_ss + eps/C Var(k))^-1/2.

    Weights: what all keys of a query share cancels in the softmax, so K_ss' becomes K~_ss', the keys' kernel centred
    over s <= t and s' <= t'. The weights A of two queries have the second moments

      M_ss' = E A_ts A_t's'  proportional to  exp(sqrt(gamma_t gamma_t') beta K_tt' K~_ss'),  with sum 1 over s and s'.

    gamma_t is such that for t = t' the diagonal has the exact sum, the participation (gaussian.softmax_moments).

    Cells: to save time the queries are divided into cells, and all pairs of queries from two cells share one M but for
    its sum: with the mean of sqrt(gamma_t gamma_t') K_tt' over these pairs, the keys' kernel centred for the last query
    of each cell, and rope's cosine for the cells' middles."""

    def __init__(self, kernel, model, query_gain, value_gain, repeats=False):
        """`kernel` (T, T): that of the input; `query_gain`: C Var(q) = C Var(k); `value_gain`: C Var(v). `repeats`:
        tokens are equal or independent, and equal keys count once. NoPrediction if attention is saturated; this is not
        asked of repeated tokens."""
        T, D, eps, diagonal = len(kernel), model["d_model"] // model["n_head"], model["norm_eps"], np.diag(kernel)
        self.size, self.key_kernel = T, kernel
        self.beta = self.score_scale = query_gain**2  # score_scale: from the scores' gradient to the input's
        normed = 0.0  # mean square (T) of a normed query, 1 but for eps; 0 without a norm
        if model["qk_norm"] or model["qkv_norm"]:
            r = 1 / np.sqrt(diagonal + eps / query_gain)
            normed = diagonal * r**2
            self.beta, self.key_kernel = 1.0, kernel * np.outer(r, r)
            # E D / |q|^2 = D / (D - 2) of a Gaussian q, and the norm removes one of D directions of the gradient.
            self.score_scale = np.outer(r, r) * (D - 1) / max(D - 2, 1)
        r = 1 / np.sqrt(diagonal + eps / value_gain)
        self.value_scale = np.outer(r, r) if model["qkv_norm"] else value_gain
        self.value_kernel = kernel * self.value_scale
        self.turn = np.ones(4 * T + 1)  # the mean cosine at the lags -2T .. 2T
        if model["position"] == "rope":
            self.turn = np.cos(np.outer(np.arange(-2 * T, 2 * T + 1), 10000.0**(-2 * np.arange(D // 2) / D))).mean(1)
        self.cells = [0]  # the first query of each cell, and T
        while self.cells[-1] < T:
            self.cells.append(min(max(self.cells[-1] + 1, int(self.cells[-1] * CELL_RATIO)), T))
        self._set_moments(normed, D, model["n_head"], repeats)

    def _set_moments(self, normed, D, heads, repeats):
        """Sets gamma and damping of each query, the mean entropy of attention (nats) and the standard deviation of the
        last query's scores. damping^2 is f = Q / slope_of: a sharp softmax passes less gradient than M says."""
        T = self.size
        n, position = np.arange(1, T + 1.0), np.arange(T)
        turned = self.key_kernel * self.turn[position[:, None] - position + 2 * T]
        own = np.diag(self.key_kernel)
        total = np.cumsum(2 * np.tril(turned).sum(1) - own)  # sum of `turned` over s, s' <= t
        # The mean square of a query's scores about their mean, and from it their variance.
        spread = np.maximum(self.beta * own * (np.cumsum(own) - total / n), 0) / n
        if repeats:  # the number of different keys, were all repeated as often
            n = np.round(n * np.cumsum(own) / total, 6)
        variance = spread / np.maximum(1 - 1 / n, 1e-6)
        self.score_std, keys = math.sqrt(variance[-1]), np.diag(centred(turned))
        unequal = self.score_std * float(keys.std() / max(keys.mean(), 1e-300))
        if not (repeats or self.score_std <= SATURATED * min(heads / 4, 1) and unequal <= UNEQUAL):
            raise NoPrediction(f"attention is saturated: scores have a standard deviation of {self.score_std:.3g} with "
                               f"{heads} heads, and rare near-ties decide the gradient; try qk_norm, or norms before "
                               "attention")
        # Means over the length of a query: |q|^2 / E |q|^2 is chi^2_D / D, by Wilson and Hilferty the cube of a normal
        # variable, or nearly 1 after a norm.
        z, weights = np.polynomial.hermite_e.hermegauss(5)
        length = np.maximum(1 - 2 / (9 * D) + z * math.sqrt(2 / (9 * D)), 0)[:, None]**3
        length = length / (1 - normed + normed * length)
        moments = np.array(softmax_moments(np.maximum(n, 2), np.sqrt(variance * length)))
        participation, slope, entropy = np.einsum("mzt,z->mt", moments, weights / weights.sum())
        has_spread = (n > 1) & (variance > 1e-10)
        exponent = exponent_of(n, participation)
        self.gamma = np.where(has_spread, exponent / np.maximum(variance, 1e-300), 1.0)
        self.damping = np.where(has_spread, np.sqrt(slope / slope_of(n, participation)), 1.0)
        self.entropy = float(np.mean(entropy * (n > 1)))

    def _cell_pairs(self):
        """Yields a CellPair for each cell of t with itself and with each earlier one of t'; the pairs with t = t' of a
        cell have a CellPair of their own."""
        cells = list(zip(self.cells, self.cells[1:]))
        for i, (a, b) in enumerate(cells):
            for c, d in cells[:i + 1]:
                is_equal = np.arange(a, b)[:, None] == np.arange(c, d)  # t = t'
                for mask in (~is_equal, is_equal):
                    if mask.any():
                        yield self._cell_pair(slice(a, b), slice(c, d), mask)

    def _cell_pair(self, queries, others, mask):
        """The CellPair of the pairs (t, t') of `mask`."""
        weights = np.sqrt(np.outer(self.gamma[queries], self.gamma[others]))
        mean_query = (self.key_kernel[queries, others] * weights)[mask].mean()  # of sqrt(gamma_t gamma_t') K_tt'
        lag = (queries.start + queries.stop) // 2 - (others.start + others.stop) // 2  # of the cells' middles
        s, s2 = np.arange(queries.stop)[:, None], np.arange(others.stop)
        turn = self.turn[s - s2 - lag + 2 * self.size]
        keys = centred(self.key_kernel[:queries.stop, :others.stop] * turn)
        moments = np.exp(np.minimum(self.beta * mean_query * keys, LARGEST_EXPONENT))
        return CellPair(queries, others, mask, turn, keys, moments)

    def _weighted_values(self, pair):
        """A_ts A_t's' (v_s - v_t) . (v_s' - v_t'), v_t being the mean value of query t: M K~^v, centred again so that
        its sums over s and over s' are 0. Array (b, d) over keys, but for the sum of M."""
        return centred(pair.moments * centred(self.value_kernel[:pair.queries.stop, :pair.others.stop]))

    def forward(self):
        """The kernel of the heads' outputs, sum_ss' M_ss' K^v_ss', K^v = K C Var(v); its diagonal is the variance
        before the output matrix, which mean_field.sublayer multiplies by gain_out for `attn_out`. Sets `response`:
        their mean square change, to first order, by noise in the scores that has the scores' own covariance."""
        out, responses = np.zeros_like(self.key_kernel), np.zeros(self.size)
        for pair in self._cell_pairs():
            total = sums_to(pair.moments, pair)
            values = self.value_kernel[:pair.queries.stop, :pair.others.stop]
            out[pair.queries, pair.others] += pair.mask * sums_to(pair.moments * values, pair) / total
            if pair.queries == pair.others and pair.mask[0, 0]:  # t = t'
                change = sums_to(self._weighted_values(pair) * pair.keys, pair) / total
                responses[pair.queries] = np.diag(change)
        self.response = float(np.mean(self.damping**2 * self.beta * np.diag(self.key_kernel) * responses))
        return np.tril(out) + np.tril(out, -1).T

    def backward(self, gradient):
        """The gradient (2, T, T) of attention's input; `gradient` (G, P): that of the heads' outputs a.

        Values: dv_s = sum_t A_ts da_t.  Scores: ds_ts = A_ts da_t.(v_s - v_t), v_t the mean value of query t; they pass
        to the queries as dq_t = sum_s ds_ts k_s and to the keys as dk_s = sum_t ds_ts q_t. In kernels, with f as in
        _set_moments,

          G^v_ss' = sum_tt' M G_tt'
          G^q_tt' = f G_tt' sum_ss' M K~^v_ss' K~^k_ss'
          G^k_ss' = sum_tt' f G_tt' M K~^v_ss' K^q_tt'

        and the input gets value_scale G^v + score_scale (G^q + G^k). Its part along the inputs, P, passes through the
        values as G does; what it adds to the scores is small."""
        values, scores = np.zeros_like(gradient), np.zeros_like(self.key_kernel)
        parts = [part for part in (0, 1) if gradient[part].any()]
        for pair in self._cell_pairs():
            t, u = pair.queries, pair.others
            # Both orders of t and t' are counted by the transpose below, which takes the pairs of one cell twice.
            share = 0.5 if t == u else 1.0
            over_sum = pair.mask * share / sums_to(pair.moments, pair)  # of M
            for part in parts:  # G^v, P^v
                arriving = sums_from(gradient[part, t, u] * over_sum, pair)
                values[part, :t.stop, :u.stop] += arriving * pair.moments
            output_of_scores = gradient[0, t, u] * over_sum * np.outer(self.damping[t], self.damping[u])  # with f
            weighted = self._weighted_values(pair)  # M K~^v
            scores[t, u] += output_of_scores * sums_to(weighted * pair.keys, pair)  # G^q
            to_keys = sums_from(output_of_scores * self.key_kernel[t, u], pair)
            scores[:t.stop, :u.stop] += to_keys * weighted * pair.turn  # G^k
        values = self.value_scale * (values + values.transpose(0, 2, 1))
        values[0] += self.score_scale * (scores + scores.T)
        return values
