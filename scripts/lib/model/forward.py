"""The decoder's forward pass, written a second time on purpose. Its arrays are numpy's (`xp` is numpy), for
measure.py and papers, or PyTorch's, for torch_model.py, with which the engine is compared (test_with_torch.py).
test_measure.py compares these two.

The equations of activations, norms and placements are tables by name. A name without an equation is refused.

B batch, T context, C d_model, H heads, D = C/H, F d_ff, L blocks, V vocabulary. A norm is called as its tensors are,
without their last part: `blocks.0.attn_norm`, `final_norm`."""

import math

from lib.base.command import ScriptError
from lib.base.keys import PLACEMENTS, placements
from lib.logs import np

# ---- what numpy and PyTorch do not share ------------------------------------------------------------------------

_ERF_AT = np.linspace(-6, 6, 24001)
_ERF = np.array([math.erf(x) for x in _ERF_AT])


def erf(x):
    """The error function; of a numpy array, by linear interpolation."""
    return x.erf() if hasattr(x, "erf") else np.interp(x, _ERF_AT, _ERF)


def constant(x):
    """x, through which no gradient passes."""
    return x.detach() if hasattr(x, "detach") else x


def array_like(x, table):
    """A numpy table as an array of x's library and type."""
    return x.new_tensor(table) if hasattr(x, "new_tensor") else table


# ---- the equations ----------------------------------------------------------------------------------------------


def equation(table, key, name):
    """The entry of a table of equations, for a value of the model's key. ScriptError: the table has no such name."""
    if name not in table:
        raise ScriptError(f"[model] {key}: '{name}' has no equation in scripts/lib/model/forward.py; "
                          f"expected one of {', '.join(table)}")
    return table[name]


def silu(xp, x):
    return 0.5 * x * (1 + xp.tanh(0.5 * x))


ACTIVATIONS = {
    "relu": lambda xp, x: x * (x > 0),
    "relu2": lambda xp, x: (x * (x > 0)) ** 2,
    "gelu": lambda xp, x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda xp, x: 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": silu,
    "swiglu": silu,  # of `gate`, which then multiplies `in`
}

# y(net, name, x) of x (B, T, features), before gain and bias; net is a Decoder, name that of the norm.
NORMS = {
    "layernorm": lambda net, name, x: net.scaled(name, x - net.mean(x, -1), -1),
    "rmsnorm": lambda net, name, x: net.scaled(name, x, -1),
    "groupnorm": lambda net, name, x: net.in_groups(name, x),
    "instancenorm": lambda net, name, x: net.scaled(name, x - net.mean(x, 1), 1),  # over the T tokens: sees the future
    "batchnorm": lambda net, name, x: net.by_feature(name, x),  # over all B*T tokens: sees other sequences too
    "dyt": lambda net, name, x: net.xp.tanh(net.weights[f"{name}.alpha"] * x),
    "derf": lambda net, name, x: erf(net.weights[f"{name}.alpha"] * x + net.weights[f"{name}.shift"]),
    "none": lambda net, name, x: x,
}


def branch_scale(model):
    """The number that multiplies each branch, or starts a learned scale. It is written as a number, or as L^-a."""
    scale = model["branch_scale"]
    return model["n_layer"] ** float(scale.removeprefix("L^")) if isinstance(scale, str) else float(scale)


def no_tap(layer, site, x):
    """The tap of a pass that keeps no site."""


class Decoder:
    """The model of a resolved config, or of its section `model`, with these weights {name: array} of the library xp.
    `progress`: of the branches' warm-up, as run_weights.branch_progress has it."""

    def __init__(self, xp, config, weights, progress=math.inf):
        self.xp, self.weights, self.progress = xp, weights, progress
        self.model = config.get("model", config)

    def logits(self, tokens, tap=no_tap):
        """Logits (B, T, V) of tokens (B, T). tap(layer, site, x) sees every logged site, blocks numbered from 1."""
        pairs = placements(self.model)
        x = self.embedded(tokens, PLACEMENTS[pairs[0][0]]["embed_norm"])
        tap(0, "stream", x)
        for block, (attn, ffn) in enumerate(pairs, start=1):
            x = self.sublayer(x, block, "attn", attn, tap)
            tap(block, "stream_mid", x)
            x = self.sublayer(x, block, "ffn", ffn, tap)
            tap(block, "stream", x)
        return self.output(x, tap)

    def embedded(self, tokens, norm_of_placement):
        """x_0 (B, T, C) of tokens (B, T)."""
        x = self.weights["embed.token.weight"][tokens]
        if self.model["position"] == "learned":
            x = x + self.weights["embed.position.weight"][: tokens.shape[1]]
        elif self.model["position"] == "sinusoidal":
            x = x + self.xp.stack(self.waves(x), -1).reshape(x.shape[1:])
        return self.norm("embed_norm", x) if self.model["embed_norm"] or norm_of_placement else x

    def output(self, x, tap=no_tap):
        """Logits of the last stream, or what the head makes of an earlier one."""
        last = self.model["n_layer"] + 1
        x = self.norm("final_norm", x) if self.model["final_norm"] else x
        tap(last, "final", x)
        logits = x @ self.weights.get("head.weight", self.weights["embed.token.weight"]).T
        tap(last, "logits", logits)
        return logits

    def sublayer(self, x, block, name, placement, tap):
        """The stream after a sublayer, "attn" or "ffn", that reads the stream x (B, T, C)."""
        prefix, L = f"blocks.{block - 1}.{name}", self.model["n_layer"]
        branch = self.attention if name == "attn" else self.feed_forward
        has_inner_norm = self.model["inner_norm"] or PLACEMENTS[placement]["inner_norm"]

        def N(h):
            return self.norm(f"{prefix}_norm", h)

        def N2(h):
            return self.norm(f"{prefix}_post_norm", h)

        def F(h):
            tap(block, f"{name}_in", h)
            y = branch(h, prefix, has_inner_norm, lambda site, value: tap(block, site, value))
            tap(block, f"{name}_out", y)
            return y

        a = self.weights.get(f"{prefix}_scale", branch_scale(self.model)) * min(self.progress / block, 1)
        skip = x if self.model["residual"] else 0.0
        equations = {
            "pre": lambda: skip + a * F(N(x)),
            "post": lambda: N(skip + a * F(x)),
            "sandwich": lambda: skip + a * N2(F(N(x))),
            "peri": lambda: skip + a * N2(F(N(x))),
            "res_post": lambda: skip + a * N(F(x)),
            "deepnorm": lambda: N((2 * L) ** 0.25 * skip + a * F(x)),
            # In block 1 the factor is 1, and F reads N(x) itself: without a norm, the stream.
            "pre_scaled": lambda: skip + a * F(N(x) / math.sqrt(block) if block > 1 else N(x)),
            "rezero": lambda: skip + a * F(x),
            "none": lambda: skip + a * F(x),
            "keel": lambda: N2(2 * L * skip + a * F(N(x))),
            "subln": lambda: skip + a * F(N(x)),
        }
        return equation(equations, "norm_placement", placement)()

    def linear(self, name, x):
        """x (B, T, in) times the matrix (out, in) of this name, plus its bias if it has one."""
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def attention(self, x, prefix, has_inner_norm, tap):
        """Causal attention of H heads; a branch has no scale here."""
        xp, (B, T, C) = self.xp, x.shape
        qkv = self.linear(f"{prefix}.qkv", x).reshape(B, T, 3, self.model["n_head"], -1).swapaxes(1, 3)
        q, k, v = (self.head_norm(f"{prefix}.{name}_norm", qkv[:, :, i]) for i, name in enumerate("qkv"))
        if self.model["position"] == "rope":
            q, k = self.rotated(q), self.rotated(k)
        scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])  # (B, H, T, T)
        scores = xp.where(xp.tril(xp.ones_like(scores)) > 0, scores, array_like(scores, -math.inf))
        shares = xp.exp(scores - constant(xp.amax(scores, -1, keepdims=True)))
        y = (shares / shares.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, C)
        return self.linear(f"{prefix}.out", self.norm(f"{prefix}.inner_norm", y) if has_inner_norm else y)

    def head_norm(self, name, x):
        """RMSNorm of queries, keys or values (B, H, T, D) over a head's features, if there is a gain (D) for it."""
        gain = self.weights.get(f"{name}.weight")
        return x if gain is None else gain * x / self.xp.sqrt((x * x).mean(-1, keepdims=True) + self.model["norm_eps"])

    def rotated(self, x):
        """rope of (B, H, T, D): feature i of each half is rotated, as a pair, by the angle t * 10000^(-2i/D)."""
        (sine, cosine), half = self.waves(x), x.shape[-1] // 2
        first, second = x[..., :half], x[..., half:]
        return self.xp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)

    def waves(self, x):
        """(sine, cosine) of position times rate, (T, width / 2) each, for x (..., T, width)."""
        length, width = x.shape[-2:]
        angle = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
        return array_like(x, np.sin(angle)), array_like(x, np.cos(angle))

    def feed_forward(self, x, prefix, has_inner_norm, tap):
        """out(act(in(x))), or for swiglu out(silu(gate(x)) * in(x)); a branch has no scale here."""
        activation, is_gated = self.model["activation"], self.model["activation"] == "swiglu"
        f = equation(ACTIVATIONS, "activation", activation)
        hidden = f(self.xp, self.linear(f"{prefix}.gate" if is_gated else f"{prefix}.in", x))
        hidden = hidden * self.linear(f"{prefix}.in", x) if is_gated else hidden
        tap("ffn_hidden", hidden)
        return self.linear(f"{prefix}.out", self.norm(f"{prefix}.inner_norm", hidden) if has_inner_norm else hidden)

    # ---- norms

    def norm(self, name, x):
        """N(x) of x (B, T, features) with gain and bias; x itself, not a copy, without a norm."""
        y = equation(NORMS, "norm", self.model["norm"])(self, name, x)
        gain, bias = self.weights.get(f"{name}.weight"), self.weights.get(f"{name}.bias")
        y = y if gain is None else y * gain
        return y if bias is None else y + bias

    def mean(self, x, axis):
        """The mean over an axis, with norm_detach a constant in the backward pass."""
        mean = x.mean(axis, keepdims=True)
        return constant(mean) if self.model["norm_detach"] else mean

    def root(self, square):
        eps = self.model["norm_eps"]
        return self.xp.sqrt(square) + eps if self.model["norm_eps_outside"] else self.xp.sqrt(square + eps)

    def deviation(self, name, y, axis):
        """What the norm `name` divides y by: its root mean square over an axis. --freeze replaces it."""
        return self.root(self.mean(y * y, axis))

    def scaled(self, name, y, axis):
        return y / self.deviation(name, y, axis)

    def in_groups(self, name, x):
        """Layer norm of each of norm_groups groups of a token's features."""
        groups = x.reshape(*x.shape[:2], self.model["norm_groups"], -1)
        return self.scaled(name, groups - self.mean(groups, -1), -1).reshape(x.shape)

    def by_feature(self, name, x):
        mean, square = self.feature_moments(name, x)
        return (x - mean) / self.root(square)

    def feature_moments(self, name, x):
        """Mean and variance of each feature over the batch's B*T tokens. PyTorch's twin keeps running ones."""
        mean = self.mean(x, (0, 1))
        return mean, self.mean((x - mean) ** 2, (0, 1))


def cross_entropy(logits, targets):
    """Nats, mean over the characters, of logits (B, T, V) and targets (B, T) of numpy."""
    right = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return float((np.logaddexp.reduce(logits, axis=-1) - right).mean())
