"""The embedding and the head, with its loss, of a decoder with fresh weights, and the statistics of the text that they
depend on.

T context, C d_model, V vocabulary, N tokens of a step; t, s two positions; c_t the character at t, y_t the next one, as
a one-hot vector over the vocabulary; p_t the softmax of the logits; d_t = p_t - y_t, the gradient of the logits up to
1/N."""

import functools
import json
from collections import namedtuple

from lib.logs import np
from lib.logs.run_text import split_text
from lib.theory.gaussian import correlations, exponent_of, shifted_softmax

# ---- the text ---------------------------------------------------------------------------------------------------

# Statistics of a text's training part. `size`: V. The others are arrays over the lags d = -T .. T, at index d + T, of
# probabilities that characters are equal:
#   same   c_0 = c_d                    twice  c_0 = c_1 and c_d = c_(d+1)
#   then   c_0 = c_1 = c_d              all    c_0 = c_1 = c_d = c_(d+1)
# and `windows` (windows, T, T): 1 where two characters of a window of the text are equal, else 0.
Text = namedtuple("Text", "size same then twice all windows")
WINDOWS = 8
MOST_CHARACTERS = 1 << 21  # the characters of the text that are counted


def text_of(characters, size, context):
    """The Text of an array of characters, of `size` kinds."""
    c = np.asarray(characters)[:MOST_CHARACTERS]
    repeated, rows = c[1:] == c[:-1], []
    for d in range(context + 1):
        n = len(c) - 1 - d
        equal, first, second = c[:n] == c[d:n + d], repeated[:n], repeated[d:n + d]
        cases = (equal, equal & first, equal & second, first & second, equal & first & second)
        rows.append([np.mean(case) for case in cases])
    same, then, before, twice, every = np.array(rows).T
    sides = (same, same), (before, then), (twice, twice), (every, every)  # of lags below 0 and from 0
    starts = np.linspace(0, max(len(c) - context, 0), WINDOWS, dtype=int)
    windows = [np.equal.outer(window, window) for window in (c[start:start + context] for start in starts)]
    return Text(size, *(np.append(left[:0:-1], right) for left, right in sides), np.array(windows, float))


@functools.lru_cache(maxsize=8)
def _text_of(data, context):
    train, held_out = split_text(json.loads(data))
    counted = train[:MOST_CHARACTERS].encode("utf-32-le")
    return text_of(np.frombuffer(counted, np.uint32), len(set(train + held_out)), context)


def text_of_config(config):
    """The Text of a resolved config's training part."""
    return _text_of(json.dumps(config["data"]), config["model"]["context"])


# ---- embedding and head -----------------------------------------------------------------------------------------

# Features x_t of the stream:
#   kernel  (T, T), K_ts = E x_t.x_s / C
#   mean    (T), the mean over the features, not 0 with sinusoids
#   share   (T), x_t is share times the embedding of c_t plus a vector independent of it
#   excess  a number, the kurtosis of a feature less that of a Gaussian variable
Signal = namedtuple("Signal", "kernel mean share excess")


def embedded(model, text):
    """The Signal that the first block receives, before a norm of the embeddings: K_ts = s^2 P(c_t = c_s), s the
    embeddings' standard deviation, plus the kernel of the position vectors: s^2 if t = s when they are learned, the
    scalar product over C of sinusoids."""
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


# `loss`; mean squares of the `logits` and of their gradient; `gradient`, the kernel (T, T) of the gradient of the
# head's input x; `passed` (2, T, T), its part across x in the form of sublayers.py: a norm that made x removes the part
# along it.
Head = namedtuple("Head", "loss logits logits_gradient gradient passed")
# Moments of the softmax p_t over the vocabulary, arrays (T): `log_sum`, E ln sum exp of the logits; `own` and `other`,
# E p_t at the character c_t just read and at another one; `own2` and `other2`, E p_t^2 there.
Probabilities = namedtuple("Probabilities", "log_sum own other own2 other2")


def head_of(x, width, variance, tied, tokens, text):
    """The Head on the Signal x. `variance`: that of an entry of the head's matrix W. The logits of a token are Gaussian
    with variance C variance K_tt. With tied embeddings the logit of the character just read is C variance share higher
    than the others. Loss = E ln sum exp(logits) - E logit of the next character; the kernel of the gradient W^T d_t / N
    is variance / N^2 times that of d."""
    V, scale = text.size, width * variance
    sigma = np.sqrt(scale * np.diag(x.kernel))
    shift = scale * x.share if tied else np.zeros(len(sigma))
    p = Probabilities(*np.array([shifted_softmax(V, *pair) for pair in zip(sigma.round(9), shift.round(9))]).T)
    square = p.own2 + (V - 1) * p.other2  # E |p|^2
    gradient = _error_kernel(x, p, square, text)
    passed = _part_across_x(x, p, gradient, variance, text) if tied else gradient
    repeat = text.same[len(sigma) + 1]  # probability that the next character is the one just read
    loss = np.mean(p.log_sum - shift * repeat)
    target = p.other + (p.own - p.other) * repeat  # E p of the next character
    # The embedding of c_t is in x_t with the factor share_t, and in W^T d_t / N with the factor d_(t,c_t) / N.
    along = tied * variance * x.share * (p.own - repeat) / np.diag(x.kernel) / tokens
    logits = float(np.mean(sigma**2 + shift**2 / V))
    logits_gradient = float(np.mean(square - 2 * target + 1)) / V / tokens**2
    return Head(float(loss), logits, logits_gradient,
                gradient * variance / tokens**2, np.stack([passed * variance / tokens**2, -np.diag(along)]))


def _lags(text, T):
    """The index into the statistics of the text of lag s - t, for each (t, s)."""
    return np.arange(T) - np.arange(T)[:, None] + T


def _error_kernel(x, p, square, text):
    """E d_t.d_s = E p_t.p_s - E p_t.y_s - E y_t.p_s + E y_t.y_s, (T, T). `square`: E |p_t|^2, (T).

    E p_t is own_t at c_t and other_t elsewhere, that is other_t + delta_t y with y one-hot at c_t, so
      E p_t . E p_s = V other_t other_s + delta_t other_s + other_t delta_s + delta_t delta_s P(c_t = c_s)
      E p_t.y_s     = other_t + delta_t P(c_t = c_(s+1)),   E y_t.y_s = P(c_t = c_s).
    The covariance of p_t and p_s is taken from a softmax of V scores with equal participation, whose moments
    E p_i p_j have the ratio e : 1 for i = j and i != j: its sum over i is e / (V - 1 + e) - 1/V."""
    V, lag, delta = text.size, _lags(text, len(x.kernel)), p.own - p.other
    exponent = exponent_of(V, square - p.own**2 - (V - 1) * p.other**2 + 1 / V)
    e = np.exp(np.sqrt(np.outer(exponent, exponent)) * correlations(x.kernel))
    same, is_next = text.same[lag], text.same[lag + 1]  # P(c_t = c_s); P(c_t = c_(s+1))
    means = (V * np.outer(p.other, p.other) + np.outer(delta, p.other) + np.outer(p.other, delta)
             + same * np.outer(delta, delta))
    targets = p.other[:, None] + delta[:, None] * is_next
    return means + e / (V - 1 + e) - 1 / V - targets - targets.T + same


def _part_across_x(x, p, gradient, variance, text):
    """The kernel of the part of W^T d_t across x_t, over the variance of W, for a tied head; `gradient`: E d_t.d_s.

    A share a_t^2 of the mean square of x_t is the embedding of c_t, a row of W. So the unit vector of x_t has the
    product a_t d_(t,c_t) with W^T d_t, and a_t d_(s,c_t) with W^T d_s. The part across x_t is W^T d_t less a_t
    d_(t,c_t) times this unit vector, and with rho_ts, the product of two unit vectors, its kernel is
      E d_t.d_s - a_t^2 E d_(t,c_t) d_(s,c_t) - a_s^2 E d_(s,c_s) d_(t,c_s) + a_t a_s E rho_ts d_(t,c_t) d_(s,c_s).
    In the last term rho_ts is a_t a_s if c_t = c_s, from the embeddings, plus a part that does not depend on it."""
    T = len(x.kernel)
    lag, delta, repeat = _lags(text, T), p.own - p.other, text.same[T + 1]  # repeat: P(c_t = c_(t+1))
    a2 = np.minimum(variance * x.share**2 / np.diag(x.kernel), 1)
    a = np.sqrt(a2)
    aa = np.outer(a, a)
    same, is_next, then = text.same[lag], text.same[lag + 1], text.then[lag]
    # E d_(t,c_t) d_(s,c_t), in which d_(t,c_t) = own_t - [c_t = c_(t+1)], d_(s,c_t) = p_(s,c_t) - [c_t = c_(s+1)]
    cross = p.own[:, None] * (p.other + delta * same - is_next) - (p.other * repeat + delta * then - text.then[lag + 1])
    # E d_(t,c_t) d_(s,c_s) over all pairs, and with the factor [c_t = c_s]
    own = np.outer(p.own, p.own)
    product = own - (p.own[:, None] + p.own) * repeat + text.twice[lag]
    product_if_same = own * same - p.own[:, None] * then.T - p.own * then + text.all[lag]
    along = a2[:, None] * cross
    passed = gradient - along - along.T + aa * (aa * product_if_same + (correlations(x.kernel) - aa * same) * product)
    # t = s: E d_t.d_t - a_t^2 E d_(t,c_t)^2
    np.fill_diagonal(passed, np.diag(gradient) - a2 * (p.own2 - 2 * p.own * repeat + repeat))
    return passed
