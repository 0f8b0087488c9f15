"""The model that a PyTorch user would train on a CPU, a pre-norm LayerNorm transformer with tied embeddings, timed step
by step.

bench_peers.py starts one process for each measurement, with the arguments of measure() in JSON; it prints what that
returns. Unlike torch_model.py it has one kind of model and is written for speed: two forms of attention to choose from,
fused layer norm and AdamW, no needless copy. Parameter names are normscope's. Letters: B batch, T context, C width, H
heads, D = C/H.
"""

import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WARM_UP_STEPS = 5  # the first one compiles
VOCABULARY = 65  # that of `normscope bench`, whose text is random


class Attention(nn.Module):
    """Causal attention, fused or written out. The faster one depends on the processor and the precision: for bf16
    without AMX, written out is faster by half of a whole step."""

    def __init__(self, n_head, width, context, fused):
        super().__init__()
        self.n_head, self.fused = n_head, fused
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        future = torch.ones(context, context, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x):
        # Three views (B, H, T, D) of the product, which the fused kernel reads as they lie.
        q, k, v = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            y = scores.masked_fill(self.future, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, n_head, width, context, fused_attention):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(n_head, width, context, fused_attention)
        self.ffn = nn.ModuleDict({"in": nn.Linear(width, 4 * width, bias=False),
                                  "out": nn.Linear(4 * width, width, bias=False)})

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.ffn["out"](functional.gelu(self.ffn["in"](self.ffn_norm(x))))


class Peer(nn.Module):
    """A transformer; called on tokens and targets (B, T), it returns their mean cross-entropy in nats."""

    def __init__(self, n_layer, n_head, width, context, fused_attention):
        super().__init__()
        self.embed = nn.ModuleDict(
            {"token": nn.Embedding(VOCABULARY, width), "position": nn.Embedding(context, width)})
        self.blocks = nn.ModuleList(Block(n_head, width, context, fused_attention) for _ in range(n_layer))
        self.final_norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed["token"](tokens) + self.embed["position"].weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.final_norm(x), self.embed["token"].weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure(shape, steps, precision, threads, fused_attention, compiled):
    """{"step_ms": the median after the warm-up, on random tokens; "peak_mb": the largest memory in MiB that this
    process has held}. A step is forward, backward and update, without drawing the batch, gradient clipping or reading
    the loss. `shape`: n_layer, n_head, width, context, batch size."""
    torch.set_num_threads(threads)
    *model, batch_size = shape
    peer = Peer(*model, fused_attention)
    forward = torch.compile(peer) if compiled else peer
    try:
        optimizer = torch.optim.AdamW(peer.parameters(), fused=True)
    except (RuntimeError, TypeError):  # before PyTorch 2.4: only on a GPU
        optimizer = torch.optim.AdamW(peer.parameters())
    seconds = []
    for _ in range(WARM_UP_STEPS + steps):
        tokens, targets = torch.randint(VOCABULARY, (2, batch_size, model[-1]))
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    with open("/proc/self/status", encoding="ascii") as status:  # getrusage() would begin with the parent's memory
        peak_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return {"step_ms": 1e3 * statistics.median(seconds[WARM_UP_STEPS:]), "peak_mb": peak_kb / 1024}


if __name__ == "__main__":
    try:
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    except Exception as error:  # whatever PyTorch raises, some of it in many lines
        sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
