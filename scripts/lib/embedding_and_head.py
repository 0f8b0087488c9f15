"""The embedding and the head, with its loss, of a decoder with fresh weights, and the statistics of the text that they
depend on.

T context, C d_model, V vocabulary, N tokens of a step; t, s two positions; c_t the character at t, y_t the next one."""

import functools
import json
import math
from collections import namedtuple
from pathlib import Path

from lib.gaussian import correlations, exponent_of, shifted_softmax
from lib.runs import np

# ---- the text ---------------------------------------------------------------------------------------------------

# `size` V; of the lags d = -T .. T, at index d + T, probabilities that characters c_i of the training part agree:
# `same` c_0 = c_d; `then` c_0 = c_1 = c_d; `twice` c_0 = c_1 and c_d = c_(d+1); `all` c_0 = c_1 = c_d = c_(d+1).
Text = namedtuple("Text", "size same then twice all")
MOST_CHARACTERS = 1 << 21  # of the text are counted


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
    return Text(size, *(np.append(left[:0:-1], right) for left, right in sides))


@functools.lru_cache(maxsize=8)
def _text_of(data, context):
    data = json.loads(data)
    paths = data["path"] if isinstance(data["path"], list) else [data["path"]]
    text, held_out = ("".join(Path(path).read_bytes().decode("utf-8-sig", "replace") for path in of)
                      for of in (paths, filter(None, [data.get("val_path")])))
    train = len(text) if held_out else math.floor((1 - data.get("val_fraction", 0.1)) * len(text) + 1e-9)
    counted = text[:min(train, MOST_CHARACTERS)].encode("utf-32-le")
    return text_of(np.frombuffer(counted, np.uint32), len(set(text + held_out)), context)


def text_of_config(config):
    """The Text of a resolved config's training part."""
    return _text_of(json.dumps(config["data"]), config["model"]["context"])


# ---- embedding and head -----------------------------------------------------------------------------------------

# Features of the stream: kernel K (T, T); `mean` (T) over the features, not 0 with sinusoids; `share` (T): x is share
# times the token's embedding plus a part independent of it; `excess`: kurtosis of a feature less a Gaussian's.
Signal = namedtuple("Signal", "kernel mean share excess")


def embedded(model, text):
    """The Signal that the first block receives, before a norm of the embeddings."""
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


# `loss`; mean squares of the `logits` and of their gradient; kernels (T, T) of the gradient of the head's input:
# `gradient`, and `passed`, less its part along the input, which the norm that made the input removes.
Head = namedtuple("Head", "loss logits logits_gradient gradient passed")
# Of the softmax p_t over the vocabulary, arrays (T) over tokens: E ln sum exp of the logits; E p of the character c_t
# just read and of another character; E p^2 of both.
Probabilities = namedtuple("Probabilities", "log_sum own other own2 other2")


def head_of(x, width, variance, tied, tokens, text):
    """The Head on the Signal x. `variance`: of an entry of the head's matrix. With tied embeddings the logit of the
    character just read is C variance share higher than the others."""
    V, scale = text.size, width * variance
    sigma = np.sqrt(scale * np.diag(x.kernel))
    shift = scale * x.share if tied else np.zeros(len(sigma))
    p = Probabilities(*np.array([shifted_softmax(V, *pair) for pair in zip(sigma.round(9), shift.round(9))]).T)
    square = p.own2 + (V - 1) * p.other2  # E |p|^2
    gradient = _error_kernel(x, p, square, text)
    passed = _across(x, p, gradient, variance, text) if tied else gradient
    repeat = text.same[len(sigma) + 1]  # probability that the next character is the one just read
    loss = np.mean(p.log_sum - shift * repeat)
    target = p.other + (p.own - p.other) * repeat  # E p of the next character
    logits = float(np.mean(sigma**2 + shift**2 / V))
    logits_gradient = float(np.mean(square - 2 * target + 1)) / V / tokens**2
    return Head(float(loss), logits, logits_gradient,
                gradient * variance / tokens**2, passed * variance / tokens**2)


def _lags(text, T):
    """The index into the statistics of the text of lag s - t, for each (t, s)."""
    return np.arange(T) - np.arange(T)[:, None] + T


def _error_kernel(x, p, square, text):
    """E (p_t - y_t).(p_s - y_s), (T, T), y the next character: the means of p are own on c_t and other elsewhere, its
    covariance is that of a softmax whose participation is that of V scores."""
    V, lag, delta = text.size, _lags(text, len(x.kernel)), p.own - p.other
    exponent = exponent_of(V, square - p.own**2 - (V - 1) * p.other**2 + 1 / V)
    e = np.exp(np.sqrt(np.outer(exponent, exponent)) * correlations(x.kernel))
    same, is_next = text.same[lag], text.same[lag + 1]  # c_t = c_s; c_t = y_s
    means = (V * np.outer(p.other, p.other) + np.outer(delta, p.other) + np.outer(p.other, delta)
             + same * np.outer(delta, delta))
    targets = p.other[:, None] + delta[:, None] * is_next
    return means + e / (V - 1 + e) - 1 / V - targets - targets.T + same


def _across(x, p, gradient, variance, text):
    """The error kernel `gradient` of a tied head less the part along x: for a token whose embedding has a share a^2 of
    its mean square, a^2 (p - y)_c^2."""
    T = len(x.kernel)
    lag, delta, repeat = _lags(text, T), p.own - p.other, text.same[T + 1]
    a2 = np.minimum(variance * x.share**2 / np.diag(x.kernel), 1)
    a = np.sqrt(a2)
    same, is_next, then = text.same[lag], text.same[lag + 1], text.then[lag]
    # E (p - y)_t,ct (p - y)_s,ct
    cross = p.own[:, None] * (p.other + delta * same - is_next) - (p.other * repeat + delta * then - text.then[lag + 1])
    # E (p - y)_t,ct (p - y)_s,cs, over all pairs and where c_t = c_s
    both = np.outer(p.own, p.own) - (p.own[:, None] + p.own) * repeat + text.twice[lag]
    alike = np.outer(p.own, p.own) * same - p.own[:, None] * then.T - p.own * then + text.all[lag]
    along = a2[:, None] * cross
    passed = gradient - along - along.T + np.outer(a, a) * (np.outer(a, a) * alike
                                                            + (correlations(x.kernel) - np.outer(a, a) * same) * both)
    np.fill_diagonal(passed, np.diag(gradient) - a2 * (p.own2 - 2 * p.own * repeat + repeat))
    return passed
