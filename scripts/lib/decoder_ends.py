"""The two ends of a decoder of fresh weights: statistics of the text, the embedding, and the head with its loss.

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
        rows.append([np.mean(of) for of in (equal, equal & first, equal & second, first & second, equal & first & second)])
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

# Features of the stream: kernel K (T, T); `mean` (T) over the features, which sinusoids have; `share` (T): x = share times the
# token's embedding plus what is independent of it; `excess`: kurtosis of a feature beyond a Gaussian's.
Signal = namedtuple("Signal", "kernel mean share excess")


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
