#!/usr/bin/python3
"""The model that a PyTorch user would train on a CPU: a config's pre-norm LayerNorm transformer, timed step by step.

bench_peers.py starts one process for each measurement, which prints a line of JSON: step_ms (median) and peak_mb (of
the process). Unlike torch_model.py it has one kind of model and is written for speed: two forms of attention to choose
from, fused layer norm and AdamW, no needless copy. Parameter names are normscope's. Letters: B batch, T context, C =
d_model, H heads, D = C/H, V vocabulary.
"""

import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

WARM_UP_STEPS = 5  # the first one compiles
VOCABULARY = 65  # that of `normscope bench`, whose text is random


class Attention(nn.Module):
    """Causal attention, fused or written out. The faster one depends on the processor and the precision: for bf16
    without AMX, written out is faster by half of a whole step."""

    def __init__(self, config, fused):
        super().__init__()
        width, self.n_head, self.fused = config["d_model"], config["n_head"], fused
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        future = torch.ones(config["context"], config["context"], dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x):
        # Three views (B, H, T, D) of the product, which the fused kernel reads as they lie.
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            y = scores.masked_fill(self.future, -math.inf).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.ModuleDict):
    def __init__(self, config):
        width = config["d_model"]
        super().__init__({"in": nn.Linear(width, 4 * width, bias=False),
                          "out": nn.Linear(4 * width, width, bias=False)})

    def forward(self, x):
        return self["out"](functional.gelu(self["in"](x)))


class Block(nn.Module):
    def __init__(self, config, fused_attention):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.LayerNorm(config["d_model"]), nn.LayerNorm(config["d_model"])
        self.attn, self.ffn = Attention(config, fused_attention), FeedForward(config)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Peer(nn.Module):
    """A transformer of a config's `model` section whose context is T; called on tokens and targets (B, T), it returns
    their mean cross-entropy in nats."""

    def __init__(self, config, vocab_size, fused_attention):
        super().__init__()
        width = config["d_model"]
        self.embed = nn.ModuleDict(
            {"token": nn.Embedding(vocab_size, width), "position": nn.Embedding(config["context"], width)})
        self.blocks = nn.ModuleList(Block(config, fused_attention) for _ in range(config["n_layer"]))
        self.final_norm = nn.LayerNorm(width)
        self.head = None if config["tie_embeddings"] else nn.Linear(width, vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed["token"](tokens) + self.embed["position"].weight
        for block in self.blocks:
            x = block(x)
        head = self.embed["token"].weight if self.head is None else self.head.weight
        logits = functional.linear(self.final_norm(x), head)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(config, steps, fused_attention, compiled):
    """The seconds of each step after the warm-up, on random tokens. A step is forward, backward and update,
    without drawing the batch, gradient clipping or reading the loss."""
    model, batch = config["model"], config["train"]["batch_size"]
    peer = Peer(model, VOCABULARY, fused_attention)
    bf16 = config["train"]["precision"] == "bf16"
    settings = {"lr": 1e-3, "betas": (0.9, 0.99), "weight_decay": 0.1}
    try:
        optimizer = torch.optim.AdamW(peer.parameters(), **settings, fused=True)
    except (RuntimeError, TypeError):  # before PyTorch 2.4: only on a GPU
        optimizer = torch.optim.AdamW(peer.parameters(), **settings)
    forward, seconds = torch.compile(peer) if compiled else peer, []
    for _ in range(WARM_UP_STEPS + steps):
        text = torch.randint(VOCABULARY, (batch, model["context"] + 1))
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP_STEPS:]


def peak_mb():
    """The largest memory in MiB that this process has held. getrusage() would begin with the parent's."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def main():
    parser = argparse.ArgumentParser(description="Time PyTorch's training steps of a config.")
    parser.add_argument("config", help="plain JSON with the keys that bench_peers.py writes")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="steps measured")
    parser.add_argument("--attention", choices=("fused", "written_out"), required=True)
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    with open(arguments.config, encoding="utf-8") as file:
        config = json.load(file)
    seconds = train(config, arguments.steps, arguments.attention == "fused", arguments.compile)
    print(json.dumps({"step_ms": 1e3 * statistics.median(seconds), "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
