#!/usr/bin/env python3
"""The PyTorch twin of normscope's model: same formulas, same parameter names, same measured sites.

    import torch_model
    model, vocab = torch_model.load("runs/quickstart/pre")  # a run folder or a safetensors file

As a script it loads a model and prints its size and kind. Letters: B batch, T context, C = d_model, H heads,
D = C/H, F = d_ff, V vocabulary, L blocks. Dropout is left out, because nothing here trains.
"""

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.system_python import restart

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as import_error:
    advice = f"install python3-torch, or give the script to a Python that has it: /path/to/python {sys.argv[0]} ..."
    restart(import_error, advice, topic="torch")

from lib import run_weights
from lib.command import printable
from lib.keys import NORMS, PLACEMENTS, completed, placements

ACTIVATIONS = {
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x) ** 2,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "swiglu": functional.silu,  # of the gate, which then multiplies `in`
}


def norm_count(placement):
    """The number of norms in a sublayer, from the placement's row. The first is called `<sublayer>_norm`, wherever it
    is in the sublayer, the second `<sublayer>_post_norm`."""
    return sum(PLACEMENTS[placement][name] for name in ("norm_in", "norm_branch", "norm_out"))


class Norm(nn.Module):
    """A norm of (B, T, C). All but dyt and derf differ only in the axes of the mean and the variance."""

    def __init__(self, config, width):
        super().__init__()
        self.kind, self.groups = config["norm"], config["norm_groups"]
        self.eps, self.eps_outside = config["norm_eps"], config["norm_eps_outside"]
        self.detached = config["norm_detach"]
        affine = config["norm_affine"]
        has_bias = affine and config["norm_bias"] and NORMS[self.kind]["bias"]
        self.weight = nn.Parameter(torch.ones(width)) if affine else None
        self.bias = nn.Parameter(torch.zeros(width)) if has_bias else None
        if self.kind in ("dyt", "derf"):
            self.alpha = nn.Parameter(torch.full((1,), 0.5))
        if self.kind == "derf":
            self.shift = nn.Parameter(torch.zeros(1))
        if self.kind == "batchnorm":
            self.register_buffer("running_mean", torch.zeros(width))
            self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        y = self.normalise(x)
        if self.weight is not None:
            y = self.weight * y
        return y if self.bias is None else y + self.bias

    def normalise(self, x):
        """The norm of x (B, T, C) before gain and bias. ValueError: the norm is not known."""
        if self.kind == "layernorm":
            return self.standardise(x, dims=-1)
        if self.kind == "rmsnorm":
            return x / self.root(self.mean(x * x, -1))
        if self.kind == "groupnorm":  # groups of features of one token
            return self.standardise(x.unflatten(-1, (self.groups, -1)), dims=-1).flatten(-2)
        if self.kind == "instancenorm":  # over the T tokens of one sequence: sees the future
            return self.standardise(x, dims=1)
        if self.kind == "batchnorm":  # over all B*T tokens: sees the future, and the other sequences
            if not self.training:
                return (x - self.running_mean) / self.root(self.running_var)
            with torch.no_grad():
                tokens = x.flatten(0, 1)
                self.running_mean.lerp_(tokens.mean(0), 0.1)
                self.running_var.lerp_(tokens.var(0, unbiased=True), 0.1)
            return self.standardise(x, dims=(0, 1))
        if self.kind == "dyt":
            return torch.tanh(self.alpha * x)
        if self.kind == "derf":
            return torch.erf(self.alpha * x + self.shift)
        raise ValueError(f"[model] norm: '{self.kind}' is not known")

    def standardise(self, x, dims):
        centred = x - self.mean(x, dims)
        return centred / self.root(self.mean(centred * centred, dims))

    def mean(self, x, dims):
        """The mean over dims, with norm_detach a constant in the backward pass."""
        mean = x.mean(dims, keepdim=True)
        return mean.detach() if self.detached else mean

    def root(self, variance):
        return variance.sqrt() + self.eps if self.eps_outside else (variance + self.eps).sqrt()


class HeadNorm(nn.Module):
    """The norm of qk_norm and qkv_norm: rmsnorm over the D features of a head, with one gain (D) for all heads."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * x / ((x * x).mean(-1, keepdim=True) + self.eps).sqrt()


def rotate(x):
    """rope of (B, H, T, D): feature i of each half is rotated, as a pair, by the angle t * 10000^(-2i/D)."""
    length, width = x.shape[-2:]
    position = torch.arange(length, dtype=x.dtype, device=x.device)
    rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=x.dtype, device=x.device) / width)
    angle = position[:, None] * rate
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=-1)


def sinusoid(length, like):
    """The position table (T, C) of Vaswani et al. 2017: sine at even features, cosine at odd ones."""
    width = like.shape[-1]
    position = torch.arange(length, dtype=like.dtype, device=like.device)
    rate = 10000.0 ** (-torch.arange(0, width, 2, dtype=like.dtype, device=like.device) / width)
    angle = position[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def inner_norm(config, width):
    """The norm before the output matrix of a sublayer, if the config has one."""
    return Norm(config, width) if config["inner_norm"] and config["norm"] != "none" else nn.Identity()


class Attention(nn.Module):
    """Causal attention of H heads, scale 1/sqrt(D)."""

    def __init__(self, config):
        super().__init__()
        width, self.n_head = config["d_model"], config["n_head"]
        self.rope = config["position"] == "rope"
        self.qkv = nn.Linear(width, 3 * width, bias=config["bias"])
        self.inner_norm, self.out = inner_norm(config, width), nn.Linear(width, width, bias=config["bias"])
        for part, normed in (("q", config["qk_norm"]), ("k", config["qk_norm"]), ("v", False)):
            has_norm = normed or config["qkv_norm"]
            norm = HeadNorm(width // self.n_head, config["norm_eps"]) if has_norm else nn.Identity()
            self.add_module(f"{part}_norm", norm)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        q, k, v = self.q_norm(q), self.k_norm(k), self.v_norm(v)
        if self.rope:
            q, k = rotate(q), rotate(k)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, T, T)
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(diagonal=1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.out(self.inner_norm((weights @ v).transpose(1, 2).flatten(-2)))


class FeedForward(nn.ModuleDict):
    """out(act(in(x))), or for swiglu out(silu(gate(x)) * in(x))."""

    def __init__(self, config):
        width, hidden, bias = config["d_model"], config["d_ff"], config["ffn_bias"]
        super().__init__({"in": nn.Linear(width, hidden, bias=bias)})
        if config["activation"] == "swiglu":
            self["gate"] = nn.Linear(width, hidden, bias=bias)
        self["inner_norm"], self["out"] = inner_norm(config, hidden), nn.Linear(hidden, width, bias=bias)
        self.activation = ACTIVATIONS[config["activation"]]

    def hidden(self, x):
        if "gate" in self:
            return self.activation(self["gate"](x)) * self["in"](x)
        return self.activation(self["in"](x))


class Block(nn.Module):
    """Attention, then the FFN, each with the norms of its placement."""

    def __init__(self, config, number, placements):
        super().__init__()
        self.number, self.placements, self.residual = number, dict(zip(("attn", "ffn"), placements)), config["residual"]
        self.n_layer = config["n_layer"]
        attn, ffn = ({**config, "inner_norm": config["inner_norm"] or name == "subln"} for name in placements)
        self.attn, self.ffn = Attention(attn), FeedForward(ffn)
        width, written, learned = config["d_model"], config["branch_scale"], config["branch_scale_learned"]
        self.scale = config["n_layer"] ** float(written[2:]) if isinstance(written, str) else float(written)  # "L^-0.5"
        for name, placement in self.placements.items():
            count = 0 if config["norm"] == "none" else norm_count(placement)
            self.add_module(f"{name}_norm", Norm(config, width) if count >= 1 else nn.Identity())
            self.add_module(f"{name}_post_norm", Norm(config, width) if count == 2 else nn.Identity())
            if placement == "rezero" or learned != "none":
                size = width if learned == "vector" and placement != "rezero" else 1
                start = torch.full((size,), 0.0 if placement == "rezero" else self.scale)
                self.register_parameter(f"{name}_scale", nn.Parameter(start))

    def forward(self, x, tap, warm_up=1.0):
        """The stream (B, T, C) after the block. tap(site, tensor) sees every site; `warm_up` multiplies both
        branches."""

        def attention(h):
            tap("attn_in", h)
            y = self.attn(h)
            tap("attn_out", y)
            return y

        def feed_forward(h):
            tap("ffn_in", h)
            hidden = self.ffn.hidden(h)
            tap("ffn_hidden", hidden)
            y = self.ffn["out"](self.ffn["inner_norm"](hidden))
            tap("ffn_out", y)
            return y

        x = self.sublayer("attn", attention, x, warm_up)
        tap("stream_mid", x)
        x = self.sublayer("ffn", feed_forward, x, warm_up)
        tap("stream", x)
        return x

    def sublayer(self, name, F, x, warm_up):
        """The stream after a sublayer F that reads the stream x; a line for each placement."""
        N, N2 = getattr(self, f"{name}_norm"), getattr(self, f"{name}_post_norm")
        scale = warm_up * getattr(self, f"{name}_scale", self.scale)
        placement, skip = self.placements[name], x if self.residual else 0.0
        if placement in ("pre", "subln"):
            return skip + scale * F(N(x))
        if placement == "post":
            return N(skip + scale * F(x))
        if placement in ("sandwich", "peri"):
            return skip + scale * N2(F(N(x)))
        if placement == "res_post":
            return skip + scale * N(F(x))
        if placement == "deepnorm":
            return N((2 * self.n_layer) ** 0.25 * skip + scale * F(x))
        if placement == "keel":
            return N2(2 * self.n_layer * skip + scale * F(N(x)))
        if placement == "pre_scaled":  # in block 1 the factor is 1, and F reads N(x) itself
            return skip + scale * F(N(x) / math.sqrt(self.number) if self.number > 1 else N(x))
        if placement == "rezero":
            return skip + scale * F(x)
        if placement == "none":
            return skip + scale * F(x)
        raise ValueError(f"[model] norm_placement: '{placement}' is not known")


class Transformer(nn.Module):
    """The decoder of a resolved config (or of its `model` section) for V characters."""

    def __init__(self, config, vocab_size):
        super().__init__()
        config = completed(config.get("model", config))
        pairs = placements(config)
        self.config, self.context = config, config["context"]
        self.branch_progress = math.inf  # s/T at step s of a run with train.branch_warmup_steps = T
        width = config["d_model"]
        self.embed = nn.ModuleDict({"token": nn.Embedding(vocab_size, width)})
        if config["position"] == "learned":
            self.embed["position"] = nn.Embedding(self.context, width)
        has_norms = config["norm"] != "none"
        embed_norm = config["embed_norm"] or pairs[0][0] == "peri"
        self.embed_norm = Norm(config, width) if has_norms and embed_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(config, number, pair) for number, pair in enumerate(pairs, start=1))
        self.final_norm = Norm(config, width) if has_norms and config["final_norm"] else nn.Identity()
        self.head = None if config["tie_embeddings"] else nn.Linear(width, vocab_size, bias=False)

    def forward(self, tokens, sites=None):
        """Logits (B, T, V) of tokens (B, T). A dict given as `sites` receives {(layer, site): tensor}, blocks
        numbered from 1, each tensor keeping its gradient."""

        def tap(layer, site, tensor):
            if sites is not None:
                sites[layer, site] = tensor
                if tensor.requires_grad:
                    tensor.retain_grad()

        x = self.embed["token"](tokens)
        if "position" in self.embed:
            x = x + self.embed["position"].weight[: tokens.shape[1]]
        elif self.config["position"] == "sinusoidal":
            x = x + sinusoid(tokens.shape[1], like=x)
        x = self.embed_norm(x)
        tap(0, "stream", x)
        for block in self.blocks:
            warm_up = min(self.branch_progress / block.number, 1.0)
            x = block(x, lambda site, tensor, layer=block.number: tap(layer, site, tensor), warm_up)
        x = self.final_norm(x)
        tap(len(self.blocks) + 1, "final", x)
        logits = functional.linear(x, self.embed["token"].weight) if self.head is None else self.head(x)
        tap(len(self.blocks) + 1, "logits", logits)
        return logits


def cross_entropy(logits, targets, reduction="mean"):
    """The cross-entropy of logits (B, T, V) and targets (B, T) in nats, its mean over characters unless `reduction` is
    "sum"."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction)


def measure(model, tokens, targets):
    """The tensors of an exchange file, all but the parameters, from one forward and backward pass over tokens (B,
    T)."""
    sites = {}
    model.zero_grad()
    logits = model(tokens, sites)
    loss = cross_entropy(logits, targets)
    loss.backward()
    tensors = {"tokens": tokens, "targets": targets, "logits": logits, "loss": loss.reshape(1)}
    tensors.update({f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()})
    tensors.update({f"act.{layer}.{site}": tensor for (layer, site), tensor in sites.items()})
    tensors.update({f"act_grad.{layer}.{site}": tensor.grad for (layer, site), tensor in sites.items()})
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def load(path, dtype=torch.float32):
    """The model of a safetensors file, or of the newest weights in a run folder (lib/run_weights.py), ready for
    evaluation, and its vocabulary, a list of code points. model.source says which file and step."""
    file, tensors, metadata = run_weights.newest_weights(path)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("optim.")}
    if "config" not in metadata or "vocab" not in metadata:
        raise ValueError(f"[model] {file}: no config or vocab in its metadata; not a file of normscope")
    config, vocab = json.loads(metadata["config"]), json.loads(metadata["vocab"])
    model = Transformer(config, len(vocab)).to(dtype)
    model.branch_progress = run_weights.branch_progress(config, metadata)
    model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in tensors.items()}, strict=True)
    model.source = f"{file}, step {metadata.get('step', 'unknown')}"
    return model.eval(), vocab


@torch.no_grad()
def text_loss(model, tokens):
    """Mean nats per character over windows at 0, T, 2T, ... and a shorter last one."""
    total = 0.0
    for start in range(0, len(tokens) - 1, model.context):
        window = tokens[start : start + model.context + 1]
        total += cross_entropy(model(window[None, :-1]), window[None, 1:], reduction="sum").item()
    return total / (len(tokens) - 1)


def main():
    parser = argparse.ArgumentParser(description="Load a normscope model into PyTorch and print its size and kind.")
    parser.add_argument("model", metavar="RUN_OR_FILE", help="a run folder or a safetensors file of weights")
    parser.add_argument("--loss", metavar="TEXTFILE", help="also print the loss over a UTF-8 text")
    arguments = parser.parse_args()
    model, vocab = load(arguments.model)
    count = sum(parameter.numel() for parameter in model.parameters())
    placement = model.config["norm_placement"]
    placement = placement if isinstance(placement, str) else json.dumps(placement)
    norm, blocks = model.config["norm"], len(model.blocks)
    print(f"{count} parameters, {blocks} blocks, {placement}, {norm}, {len(vocab)} characters")
    print(f"weights of {printable(model.source)}")
    if arguments.loss:
        with open(arguments.loss, encoding="utf-8-sig", newline="") as file:
            text = file.read()
        index = {chr(point): i for i, point in enumerate(vocab)}
        unknown = sorted(set(text) - set(index))
        if unknown or len(text) < 2:
            raise ValueError(f"[data] {arguments.loss}: needs 2 characters or more, all known; unknown: {unknown}")
        loss = text_loss(model, torch.tensor([index[character] for character in text]))
        print(f"loss {loss:.6f} nats, {loss / math.log(2):.6f} bits per character of {len(text)}")


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        sys.exit(f"{error}")
