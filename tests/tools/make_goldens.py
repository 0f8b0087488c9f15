#!/usr/bin/python3
"""Writes tests/golden: what PyTorch computes, in float64, for tiny models of every placement, activation, position.

The C++ tests compare with these files and need no PyTorch. An exchange file holds one forward and backward pass
(the layout of `normscope probe --dump`), a trajectory file ten updates of the optimiser.
"""

import argparse
import json
import math
import os
import tempfile
import zlib

import numpy as np
import torch

from cli import ROOT, TESTS
from lib.logs import safetensors_io  # in scripts, which cli.py puts on the path
from lib.theory import mean_field
from torch_combinations import parameters, probe
from torch_model import Transformer, cross_entropy, measure

FOLDER = os.path.join(TESTS, "golden")
VOCAB = [ord(character) for character in "\n abcde"]
STEPS = 10
BASE = {"n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 12, "context": 4, "norm_groups": 2}
ALL_BIASES = {"bias": True, "ffn_bias": True}
SMALL = {"d_model": 6, "n_head": 3, "d_ff": 10}  # also: widths that no vector register divides

# name: changes of BASE. Each placement has a row; the other features share the rows.
EXCHANGES = {
    "pre_layernorm": {},
    "pre_rmsnorm": {"norm": "rmsnorm", "activation": "silu"},
    "post_layernorm": {"norm_placement": "post", "activation": "relu"},
    "post_rmsnorm": {"norm_placement": "post", "norm": "rmsnorm", "activation": "gelu_tanh"},
    "sandwich": {"norm_placement": "sandwich", **SMALL, **ALL_BIASES, "qk_norm": True},
    "peri": {"norm_placement": "peri", "norm": "rmsnorm", "position": "rope", "qk_norm": True, "activation": "swiglu"},
    "res_post": {"norm_placement": "res_post", **SMALL, "position": "rope", "n_head": 1, "bias": True,
                 "ffn_bias": False, "tie_embeddings": False},
    "deepnorm": {"norm_placement": "deepnorm", **SMALL, "activation": "relu", "norm_eps": 0.01,
                 "norm_eps_outside": True},
    "keel": {"norm_placement": "keel", **SMALL, "norm": "derf", "tie_embeddings": False},
    "hybrid": {"norm_placement": "hybrid", **SMALL, "qkv_norm": True, "norm": "rmsnorm", "tie_embeddings": False},
    "hybrid_star": {"norm_placement": "hybrid_star", **SMALL, "n_layer": 3, "qkv_norm": True, "position": "rope"},
    "subln": {"norm_placement": "subln", **SMALL, "branch_scale": 0.5, "branch_scale_learned": "vector"},
    "by_sublayer": {"norm_placement": {"attn": "sandwich", "ffn": "post"}, **SMALL, "branch_scale": "L^-0.5"},
    "pre_scaled": {"norm_placement": "pre_scaled", **SMALL, "norm": "rmsnorm", "norm_affine": False, "norm_eps": 0.01},
    "mix": {"norm_placement": "mix", **SMALL, "n_layer": 3, "norm_bias": False, "position": "none"},
    "rezero": {"norm_placement": "rezero", **SMALL, "activation": "swiglu", "ffn_bias": True, "position": "sinusoidal"},
    "none": {"norm_placement": "none", **SMALL, "activation": "silu", "tie_embeddings": False},
    # The list is the resolved form of a placement per block.
    "no_residual": {"norm_placement": ["post", "pre"], **SMALL, "residual": False, "position": "sinusoidal"},
    "pre_batchnorm": {"norm": "batchnorm"},
    "post_batchnorm": {"norm_placement": "post", "norm": "batchnorm", "norm_eps": 0.01, "norm_eps_outside": True},
    "pre_groupnorm": {"norm": "groupnorm"},
    "post_groupnorm": {"norm_placement": "post", "norm": "groupnorm", "norm_eps": 0.01, "norm_eps_outside": True},
    "pre_instancenorm": {"norm": "instancenorm"},
    "post_instancenorm": {"norm_placement": "post", "norm": "instancenorm"},
    "pre_dyt": {"norm": "dyt"},
    "nanochat": {"norm": "rmsnorm", "norm_affine": False, "activation": "relu2", "position": "rope", "qk_norm": True,
                 "embed_norm": True, "tie_embeddings": False},
    "detached": {"norm": "groupnorm", **SMALL, "norm_detach": True, "norm_eps": 0.01, "norm_eps_outside": True},
    "peri_dyt": {"norm_placement": "peri", "norm": "dyt", "norm_affine": False},
}
# name: (model, train) changes, over SMALL and these: some steps are clipped in each, and some are not. No biases of
# linear layers: that of k has a gradient of 0 but for rounding, which Adam would make into steps.
STEEP = {"batch_size": 8, "lr": 0.06, "warmup_steps": 3}
TRAJECTORIES = {
    "trajectory_pre_layernorm": ({}, {}),
    "trajectory_pre_rmsnorm": ({"norm": "rmsnorm"}, {}),
    "trajectory_post_layernorm": ({"norm_placement": "post"}, {}),
    "trajectory_post_rmsnorm": ({"norm_placement": "post", "norm": "rmsnorm"}, {}),
    "trajectory_pre_batchnorm": ({"norm": "batchnorm"}, {}),
    "trajectory_sgd": ({}, {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9}),
    "trajectory_muon": ({"activation": "swiglu", "ffn_bias": True},
                        {"optimizer": "muon", "lr": 0.02, "momentum": 0.95, "grad_clip": 3.0}),
}


def resolved(name, model, train):
    """The resolved config of a model. Its text has no name that matters, because the batches are drawn here."""
    config = {"name": name, "model": {**BASE, **model}, "train": {"steps": STEPS, "batch_size": 2, **train},
              "data": {"path": os.path.join(ROOT, "data", "austen.txt"), "val_fraction": 0}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        config = mean_field.resolved(file.name)
    config["data"]["path"] = "golden"
    return config


def start_of(config):
    """{name: array} of the parameters and running statistics that the program gives a resolved config."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("golden", 2 * "".join(map(chr, VOCAB))), ("config.json", json.dumps(config))):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(content)
        probe(folder, "--dump", "start.safetensors")
        return parameters(safetensors_io.read(os.path.join(folder, "start.safetensors"))[0])


def build(config, random):
    """A model in float64 whose gradients are all of healthy size. RandomState's stream is frozen for good."""
    model = Transformer(config, start_of(config)).double().train()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            noise = torch.from_numpy(random.standard_normal(tuple(tensor.shape)))
            if name.endswith("running_var"):
                tensor.copy_((1.0 + 0.3 * noise).abs())
            elif tensor.ndim == 1:  # off its start, so that a gain or bias forgotten in a backward shows
                start = 0.0 if name.endswith((".bias", "_scale", "running_mean")) else 0.5 if "alpha" in name else 1.0
                tensor.copy_(start + 0.3 * noise)
            else:
                scale = 0.5 if name.startswith("embed.") else 1.0 / math.sqrt(tensor.shape[1])
                tensor.copy_(scale * noise)
    return model


def draw_batch(config, random):
    """tokens and targets (B, T), the targets a character later. The text goes through the vocabulary in order, or at
    times misses one: learnt soon, so that gradients fall from above the clipping threshold to below it."""
    size = (config["train"]["batch_size"], config["model"]["context"] + 1)
    text = random.randint(len(VOCAB), size=(size[0], 1)) + (1 + (random.uniform(size=size) < 0.1)).cumsum(1)
    text = torch.from_numpy(text.astype(np.int64) % len(VOCAB))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def snapshot(model, prefix=""):
    return {prefix + name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def exchange(config, random):
    """Parameters, batch, logits, loss, and every value and gradient."""
    model = build(config, random)
    start = snapshot(model)
    return {**start, **measure(model, *draw_batch(config, random))}


def learning_rate(step, train):
    """The rate of update 1...S: a linear warm-up, then half a cosine."""
    warmup, lr, min_lr = train["warmup_steps"], train["lr"], train["min_lr"]
    if step <= warmup:
        return lr * step / warmup
    progress = (step - warmup) / (train["steps"] - warmup)
    return min_lr + (lr - min_lr) * (1 + math.cos(math.pi * progress)) / 2


class Muon:
    """torch.optim.Muon with adjust_lr_fn="match_rms_adamw", without its rounding to bfloat16; for PyTorch before
    2.9."""

    def __init__(self, matrices, train):
        self.matrices, self.train = matrices, train
        self.momenta = [torch.zeros_like(matrix) for matrix in matrices]

    @staticmethod
    def orthogonal(x):
        if x.shape[0] > x.shape[1]:
            return Muon.orthogonal(x.T).T
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        return x

    def step(self, lr):
        for matrix, momentum in zip(self.matrices, self.momenta):
            momentum.mul_(self.train["momentum"]).add_(matrix.grad)
            step = matrix.grad + self.train["momentum"] * momentum
            parts = step.chunk(3) if step.shape[0] == 3 * step.shape[1] else [step]  # q, k and v
            rate = lr * 0.2 * math.sqrt(max(parts[0].shape))
            matrix.mul_(1 - lr * self.train["weight_decay"]).sub_(rate * torch.cat([self.orthogonal(p) for p in parts]))


def make_optimizer(model, train):
    """AdamW with decay on tensors of rank 2 and more; or SGD, whose decay (decoupled too) trajectory() applies."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    if train["optimizer"] == "muon":  # Muon updates the matrices of the blocks
        matrices = [p for name, p in model.named_parameters() if p.ndim >= 2 and not name.startswith("blocks.")]
    if train["optimizer"] == "sgd":
        return torch.optim.SGD(matrices + vectors, lr=train["lr"], momentum=train["momentum"])
    groups = [{"params": matrices, "weight_decay": train["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=train["lr"], betas=(train["beta1"], train["beta2"]), eps=train["adam_eps"])


def trajectory(config, random):
    """Ten updates: the batches, lr, loss and gradient norm (before clipping) of each, parameters before and after."""
    train, model = config["train"], build(config, random)
    batches = [draw_batch(config, random) for _ in range(train["steps"])]
    start, optimizer, rates, losses, norms = snapshot(model), make_optimizer(model, train), [], [], []
    of_blocks = [p for name, p in model.named_parameters() if p.ndim >= 2 and name.startswith("blocks.")]
    muon = Muon(of_blocks if train["optimizer"] == "muon" else [], train)
    for step, (tokens, targets) in enumerate(batches, start=1):
        rates.append(learning_rate(step, train))
        model.zero_grad()
        loss = cross_entropy(model(tokens), targets)
        loss.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
        for group in optimizer.param_groups:
            group["lr"] = rates[-1]
        with torch.no_grad():
            for p in model.parameters():
                p.grad *= min(1.0, train["grad_clip"] / norm)
                if train["optimizer"] == "sgd" and p.ndim >= 2:
                    p *= 1.0 - rates[-1] * train["weight_decay"]
            muon.step(rates[-1])
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    tokens, targets = (torch.stack(part).numpy() for part in zip(*batches))
    series = {"lrs": np.array(rates), "losses": np.array(losses), "grad_norms": np.array(norms)}
    return {**start, "tokens": tokens, "targets": targets, **series, **snapshot(model, "final.")}


def make(name, compute, model, train):
    """(tensors, metadata) of one file; its random numbers depend on its name alone."""
    config = resolved(name, model, train)
    metadata = {"format": "pt", "normscope": "1", "config": json.dumps(config), "vocab": json.dumps(VOCAB), "step": "0"}
    return compute(config, np.random.RandomState(zlib.crc32(name.encode()))), metadata


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help="files to write (default: all)")
    parser.add_argument("--out", metavar="DIR", default=FOLDER, help="default: tests/golden")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the same order of every sum, so the same bytes
    jobs = [(name, exchange, model, {"steps": 1}) for name, model in EXCHANGES.items()]
    jobs += [(name, trajectory, {**SMALL, **model}, {**STEEP, **train})
             for name, (model, train) in TRAJECTORIES.items()]
    if unknown := set(arguments.names) - {name for name, *_ in jobs}:
        parser.error(f"no golden is called {', '.join(sorted(unknown))}; the tables EXCHANGES and TRAJECTORIES have them")
    jobs = [job for job in jobs if not arguments.names or job[0] in arguments.names]
    os.makedirs(arguments.out, exist_ok=True)
    for name, compute, model, train in jobs:
        path = os.path.join(arguments.out, f"{name}.safetensors")
        tensors, metadata = make(name, compute, model, train)
        safetensors_io.write(path, tensors, metadata)
        print(f"{name}: {len(tensors)} tensors, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
