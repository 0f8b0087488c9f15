"""A model's forward pass in numpy, in double, in which a caller can change the norms. torch_model.py does the same in
PyTorch.

B batch, T context, C d_model, H heads, D = C/H, V vocabulary. A norm is named as its tensors are, without their last
part: `blocks.0.attn_norm`, `final_norm`."""

import math

from lib.gaussian import FUNCTIONS, erf
from lib.keys import NORMS, PLACEMENTS, completed, placements
from lib.mean_field import branch_scale, depth_factor
from lib.runs import np

ACTIVATIONS = {**FUNCTIONS, "relu2": lambda x: np.maximum(x, 0) ** 2, "swiglu": FUNCTIONS["silu"]}


def statistics(model, x):
    """(x less its mean, where the norm subtracts one; its deviation with the norm's eps), both of x (B, T, F) as (B, T,
    groups, F / groups). `model`: the completed section of the config, with a norm that has statistics."""
    row, eps = NORMS[model["norm"]], model["norm_eps"]
    y = x.reshape(*x.shape[:2], model["norm_groups"] if row["over"] == "groups" else 1, -1)
    axes = {"sequence": 1, "batch": (0, 1)}.get(row["over"], 3)
    if row["centred"]:
        y = y - y.mean(axes, keepdims=True)
    square = (y * y).mean(axes, keepdims=True)
    return y, np.sqrt(square) + eps if model["norm_eps_outside"] else np.sqrt(square + eps)


def normed(model, weights, name, x, deviation=None):
    """N(x) of x (B, T, F) with the gains and biases of the norm `name`. `deviation`: used in place of that of x."""
    kind, alpha = model["norm"], weights.get(f"{name}.alpha")
    if kind == "none":
        return x
    if kind == "dyt":
        y = np.tanh(alpha * x)
    elif kind == "derf":
        y = erf(alpha * x + weights.get(f"{name}.shift", 0))
    else:
        centred, own = statistics(model, x)
        y = (centred / (own if deviation is None else deviation)).reshape(x.shape)
    return y * weights.get(f"{name}.weight", 1) + weights.get(f"{name}.bias", 0)


def waves(positions, width):
    """(sine, cosine) of position times rate, (positions, width / 2) each; rates fall from 1 to almost 1/10000."""
    angle = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return np.sin(angle), np.cos(angle)


class Transformer:
    """The model of a resolved config with these weights {name: array}. `norm`: called as norm(name, x) for N(x) of x
    (B, T, F); without it the norms are the model's own. `progress`: as run_weights.branch_progress has it."""

    def __init__(self, config, weights, norm=None, progress=math.inf):
        self.model, self.progress = completed(config["model"]), progress
        self.weights = {name: array.astype(float, copy=False) for name, array in weights.items()}
        self.norm = norm or (lambda name, x: normed(self.model, self.weights, name, x))
        pairs = placements(self.model)
        self.sublayers = [(block, name, PLACEMENTS[placement]) for block, pair in enumerate(pairs)
                          for name, placement in zip(("attn", "ffn"), pair)]

    def embedded(self, tokens):
        """x_0 (B, T, C) of tokens (B, T)."""
        x = self.weights["embed.token.weight"][tokens]
        if self.model["position"] == "learned":
            x = x + self.weights["embed.position.weight"][:tokens.shape[1]]
        elif self.model["position"] == "sinusoidal":
            x = x + np.stack(waves(tokens.shape[1], x.shape[2]), axis=-1).reshape(x.shape[1:])
        return self.norm("embed_norm", x) if self.model["embed_norm"] or self.sublayers[0][2]["embed_norm"] else x

    def after(self, x, block, name, row):
        """The stream after a sublayer, "attn" or "ffn", that reads the stream x. `block`: counted from 0; `row`: the
        row of the sublayer's placement."""
        model, prefix = self.model, f"blocks.{block}.{name}"
        names = iter((f"{prefix}_norm", f"{prefix}_post_norm"))  # of the norms that the placement has, in their order
        read = self.norm(next(names), x) if row["norm_in"] else x
        F = self.attention if name == "attn" else self.feed_forward
        y = F(read * depth_factor(row["input_scale"], block + 1), prefix, model["inner_norm"] or row["inner_norm"])
        y = self.norm(next(names), y) if row["norm_branch"] else y
        y = y * self.weights.get(f"{prefix}_scale", branch_scale(model)) * min(self.progress / (block + 1), 1)
        y = y + depth_factor(row["alpha"], model["n_layer"]) * x if model["residual"] else y
        return self.norm(next(names), y) if row["norm_out"] else y

    def linear(self, x, name):
        """x (B, T, in) times the matrix (out, in) of this name, plus its bias if it has one."""
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def attention(self, x, prefix, inner):
        """Causal attention of x (B, T, C), without the scale of the branch."""
        B, T, C = x.shape
        qkv = self.linear(x, f"{prefix}.qkv").reshape(B, T, 3, self.model["n_head"], -1)
        q, k, v = (self.normed_and_rotated(qkv[:, :, i].swapaxes(1, 2), f"{prefix}.{name}")
                   for i, name in enumerate("qkv"))
        scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
        scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        y = (shares / shares.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, C)
        return self.linear(self.norm(f"{prefix}.inner_norm", y) if inner else y, f"{prefix}.out")

    def normed_and_rotated(self, x, name):
        """Queries, keys or values (B, H, T, D) after their norm, if they have one, and rope's rotation of queries and
        keys."""
        if (gain := self.weights.get(f"{name}_norm.weight")) is not None:
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.model["norm_eps"]) * gain
        if self.model["position"] != "rope" or name.endswith("v"):
            return x
        (sine, cosine), (first, second) = waves(*x.shape[2:]), np.split(x, 2, axis=-1)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)

    def feed_forward(self, x, prefix, inner):
        """The FFN of x (B, T, C), without the scale of the branch."""
        gated = self.model["activation"] == "swiglu"
        hidden = ACTIVATIONS[self.model["activation"]](self.linear(x, f"{prefix}.gate" if gated else f"{prefix}.in"))
        hidden = hidden * self.linear(x, f"{prefix}.in") if gated else hidden
        return self.linear(self.norm(f"{prefix}.inner_norm", hidden) if inner else hidden, f"{prefix}.out")

    def streams(self, tokens):
        """The stream before each sublayer, and the last one, of tokens (B, T): arrays (B, T, C)."""
        streams = [self.embedded(tokens)]
        for sublayer in self.sublayers:
            streams.append(self.after(streams[-1], *sublayer))
        return streams

    def loss(self, tokens, targets):
        """The mean cross-entropy in nats of the model's logits for tokens (B, T) and targets (B, T)."""
        x = self.streams(tokens)[-1]
        x = self.norm("final_norm", x) if self.model["final_norm"] else x
        return cross_entropy(x @ self.weights.get("head.weight", self.weights["embed.token.weight"]).T, targets)


def cross_entropy(logits, targets):
    """Nats, mean over the characters, of logits (B, T, V) and targets (B, T)."""
    right = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return float((np.logaddexp.reduce(logits, axis=-1) - right).mean())
