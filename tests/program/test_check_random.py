#!/usr/bin/python3
"""`normscope check` passes every sound config: the shipped ones and hundreds drawn at random, among them what rounding
makes hard: no eps, heads of one feature, groups of two, a text of one character, weights a thousand times too large.

test_check_random.py [COUNT [FIRST_SEED]] draws so many of each kind; without it 30, in the long form 400.
"""

import concurrent.futures
import json
import os
import random
import re
import sys
import unittest

from cli import LONG, ROOT, TEXT, CliTest
from lib.base import keys

COUNT, FIRST_SEED = 400 if LONG else 30, 0
NORMS, PLACEMENTS = list(keys.NORMS), list(keys.PLACEMENTS)
PLACED = [*PLACEMENTS[:7], "mix", *PLACEMENTS[7:], "hybrid", "hybrid_star"]  # a seed draws the same as ever
LEAKING = {name for name, row in keys.NORMS.items() if row["over"] in ("batch", "sequence")}
ACTIVATIONS = ["relu", "gelu", "gelu_tanh", "silu", "swiglu"]
TEXTS = {"text.txt": TEXT} | {
    f"of_{n}.txt": "".join(random.Random(n).choices("abcdefghijklmnopqrst"[:n], k=1500)) for n in (1, 2, 5, 20)}
SHIPPED = {"deep_pre": "bf16", "nanogpt_cpu": "fp32"}  # test_readme.py checks deep_post


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def drawn(seed):
    """A config; about one in three is refused."""
    r = random.Random(seed)
    layers, width = r.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12]), r.choice([*range(1, 10), 12, 15, 16, 17, 24, 32, 33,
                                                                            63, 64])
    placements = r.choice(PLACED)
    if r.random() < 0.2:
        placements = [r.choice(PLACEMENTS) for _ in range(layers)]
        placements[1:] = [p.replace("peri", "sandwich") for p in placements[1:]]
    init = {"scheme": r.choice(["gpt2", "gpt2", "xavier_normal", "xavier_uniform", "kaiming_normal"])}
    if r.random() < 0.4:
        init["embed_std"] = r.choice([0.01, 0.1, 1, 1, 3, 10])
    if init["scheme"] == "gpt2" and r.random() < 0.4:
        init["std"] = r.choice([0.001, 0.1, 0.5, 1])
    model = {
        "n_layer": layers, "n_head": r.choice(divisors(width)), "d_model": width, "init": init,
        "d_ff": r.choice([1, 2, 3, 5, 8, 13, width, 2 * width, 4 * width, 4 * width + 1, 100]),
        "context": r.choice([1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 24, 33, 64]), "norm": r.choice(NORMS),
        "norm_eps": r.choice([0, 1e-12, 1e-8, 1e-5, 1e-5, 1e-5, 1e-3, 0.1, 1]), "norm_eps_outside": r.random() < 0.2,
        "norm_affine": r.random() < 0.85, "norm_bias": r.random() < 0.7, "norm_groups": r.choice(divisors(width)),
        "norm_placement": placements, "mix_post_fraction": r.choice([0, 0.1, 0.25, 0.5, 1]),
        "inner_norm": r.random() < 0.15, "qkv_norm": r.random() < 0.1,
        "branch_scale": r.choice([1, 1, 1, 0.3, "L^-0.5"]),
        "branch_scale_learned": r.choice(["none", "none", "none", "scalar", "vector"]),
        "residual": r.random() < 0.85, "activation": r.choice(ACTIVATIONS), "bias": r.random() < 0.4,
        "ffn_bias": r.random() < 0.4, "qk_norm": r.random() < 0.3,
        "position": r.choice(["learned", "rope", "sinusoidal", "none"]), "tie_embeddings": r.random() < 0.5,
        "dropout": r.choice([0, 0, 0.1, 0.5]),
    }
    if r.random() < 0.2:
        model["final_norm"] = r.random() < 0.5
    train = {"steps": 1, "batch_size": r.choice([1, 2, 3, 4, 8]), "seed": r.randrange(1000),
             "precision": r.choice(["fp32", "fp32", "bf16"]), "gemm": r.choice(["auto", "auto", "native"])}
    data = {"path": r.choice(["text.txt", *TEXTS]), "val_fraction": 0.1}
    init["zero_branches"], model["embed_norm"] = r.random() < 0.1, r.random() < 0.15
    if r.random() < 0.15:
        model["activation"] = "relu2"
    model["norm_detach"] = r.random() < 0.2
    model["norm_alpha"] = r.choice([0.5, 0.1, 0.8, 2])
    train["branch_warmup_steps"] = r.choice([0, 0, 0, 1, 3, 100])
    return {"model": model, "data": data, "train": train}


def hard(seed):
    """A config whose norms have few features or tokens, with any eps from 1e-12 to 1, half of them detached."""
    r, config = random.Random(f"hard {seed}"), drawn(seed + 100000)
    width, model = r.choice([2, 3, 4, 6, 8, 12, 12, 16, 24]), config["model"]
    model |= {
        "d_model": width, "n_head": r.choice([1, *divisors(width)]),
        "d_ff": r.choice([2, 3, 4, 6, 8, 12, width, 2 * width, 4 * width]), "n_layer": r.choice([1, 2, 3, 4, 5, 6]),
        "norm": r.choice([*["groupnorm"] * 3, *["layernorm", "rmsnorm"] * 2, "instancenorm", "batchnorm", "none"]),
        "norm_groups": r.choice([*[d for d in divisors(width) if 1 < width // d <= 4], 1]),
        "inner_norm": r.random() < 0.5, "norm_detach": r.random() < 0.5, "context": r.choice([1, 2, 2, 2, 3, 4, 9, 16]),
        "norm_eps": r.choice([10.0**exponent for exponent in range(-12, 1)]), "qk_norm": r.random() < 0.4,
        "activation": r.choice(["relu", "relu", "relu2", "gelu", "silu", "swiglu"])}
    return config


class CheckRandom(CliTest):
    def broken(self, norm, *arguments):
        """The output of `check` if it is wrong for a sound config, else None."""
        done = self.call("check", *arguments)
        failed = set(re.findall(r"^FAIL +\S+ +\S+ +(\d+)", done.stdout, re.MULTILINE))
        if norm in LEAKING:
            failed -= {"2"}  # causality: that they leak is what they are
        is_right = not failed and done.returncode in (0, 1) and re.search(r"^\d+ laws hold", done.stdout, re.MULTILINE)
        is_right = is_right and not re.search(r"\b(inf|nan)\b", done.stdout)
        return None if is_right else f"{arguments}\n{done.stdout}{done.stderr}"

    def all_pass(self, tasks):
        """Asserts that `check` passes. A task is a norm and the arguments of `check`."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            outputs = [output for output in pool.map(lambda task: self.broken(*task), tasks) if output]
        if outputs:
            self.fail(f"{len(outputs)} of {len(tasks)} sound configs fail:\n" + "\n".join(outputs[:10]))

    def test_configs_drawn_at_random(self):
        for name, text in TEXTS.items():
            self.write(name, text)
        for draw in (drawn, hard):
            tasks, seed = [], FIRST_SEED
            while len(tasks) < COUNT:
                config, path = draw(seed), self.path(f"{draw.__name__}_{seed}.json")
                self.write(path, json.dumps(config))
                if self.call("config", path).returncode == 0:
                    tasks.append((config["model"]["norm"], path))
                seed += 1
            with self.subTest(draw.__name__):
                self.all_pass(tasks)

    def test_shipped_configs(self):
        text = f"data.path={ROOT}/data/austen.txt"
        self.all_pass([
            ("layernorm", f"{ROOT}/configs/{name}.json", "--set", f"train.precision={precision}", "--set", text)
            for name, precision in SHIPPED.items()])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        COUNT, FIRST_SEED = int(sys.argv[1]), int((sys.argv + [0])[2])
    unittest.main(argv=sys.argv[:1])
