#!/usr/bin/python3
"""Property tests of configs: random ones with lists and pairs of placements are read, written, trained and changed key by key."""

import functools
import json
import random
import re
import unittest

from cli import LONG, TINY, CliTest, Run, merged

from lib.keys import NORMS, PLACEMENTS

CONFIGS, CHANGES = (200, 6) if LONG else (6, 4)  # how many configs, and how many changes of each are trained
# Values of which a random config takes one where it has the key.
VALUES = {
    "model.n_layer": (1, 2, 3), "model.n_head": (1, 2, 4), "model.d_ff": (12, 24), "model.context": (8, 12),
    "model.mix_post_fraction": (0, 1), "model.norm": tuple(NORMS), "model.norm_eps": (1e-5, 0.1, 0), "model.norm_eps_outside": (True, False),
    "model.norm_affine": (True, False), "model.norm_bias": (True, False), "model.norm_groups": (1, 2, 4),
    "model.final_norm": (True, False), "model.embed_norm": (True, False), "model.norm_alpha": (0.5, 1),
    "model.norm_detach": (True, False), "model.qk_norm": (True, False), "model.qkv_norm": (True, False),
    "model.inner_norm": (True, False), "model.residual": (True, True, False), "model.branch_scale": (1, 0.7, "L^-0.5"),
    "model.branch_scale_learned": ("none", "scalar", "vector"), "model.activation": ("relu", "silu", "swiglu"),
    "model.bias": (True, False), "model.ffn_bias": (True, False), "model.position": ("learned", "rope", "none"),
    "model.tie_embeddings": (True, False), "model.dropout": (0, 0.3),
    "model.init.scheme": ("gpt2", "xavier_normal", "kaiming_normal"), "model.init.std": (0.02, 0.3),
    "model.init.embed_std": (0.1, 0.7), "model.init.residual_scaling": (True, False), "model.init.zero_branches": (True, False),
    "data.val_fraction": (0.1, 0.3, 0), "data.val_path": ("", "", "more.txt"),
    "train.steps": (4, 5), "train.batch_size": (2, 3), "train.grad_accum": (1, 2), "train.seed": (1, 2),
    "train.optimizer": ("adamw", "sgd", "muon"), "train.lr": (0.1, 0.01), "train.min_lr": (0.003, 0),
    "train.schedule": ("cosine", "linear", "constant", "wsd"), "train.warmup_steps": (0, 1, 3, 5), "train.cooldown": (0.5, 1, 0),
    "train.branch_warmup_steps": (0, 10), "train.beta1": (0.5, 0.9), "train.beta2": (0.5, 0.99), "train.adam_eps": (1e-8, 1e-3),
    "train.momentum": (0, 0.5, 0.9), "train.weight_decay": (0, 0.5), "train.grad_clip": (0.01, 0), "train.precision": ("fp32", "bf16"),
    "eval.every": (0, 2, 9), "eval.batches": (1, 2),
}
# Settings, a key that one sublayer, a placement or another key could be taken to settle, and whether it is reported.
EDGES = (
    ({"model.norm_placement": {"attn": "subln", "ffn": "pre"}, "model.inner_norm": True}, "model.inner_norm", False),
    ({"model.norm_placement": ["subln", {"attn": "pre", "ffn": "subln"}], "model.inner_norm": True}, "model.inner_norm", False),
    ({"model.norm_placement": "subln", "model.inner_norm": False}, "model.inner_norm", True),
    ({"model.norm_placement": ["peri", "post"], "model.embed_norm": False}, "model.embed_norm", True),
    ({"model.norm_placement": ["rezero", "pre"], "model.branch_scale": 0.7}, "model.branch_scale", False),
    ({"train.schedule": "wsd", "train.cooldown": 0, "train.min_lr": 0}, "train.min_lr", True),
    ({"train.steps": 4, "train.warmup_steps": 3, "train.schedule": "linear"}, "train.schedule", True),
    ({"model.init.zero_branches": True, "model.init.residual_scaling": True}, "model.init.residual_scaling", True),
    ({"model.init.scheme": "xavier_normal", "model.init.embed_std": 0.7, "model.init.std": 0.3}, "model.init.std", True),
    ({"model.init.scheme": "xavier_normal", "model.init.std": 0.5}, "model.init.embed_std", False),
    ({"data.val_fraction": 0, "eval.every": 2}, "eval.every", True),
)
# Weights of 0.3: with 0.02 attention is so even that rounding can hide the effect of a key such as n_head.
BASE = {"model": {"d_model": 8, "context": 8, "init": {"std": 0.3}}, "train": {"steps": 4, "batch_size": 2}, "log": {"layers_every": 0}}


def value_of(config, key):
    """The value of a dotted key; None where the config leaves it out."""
    return functools.reduce(lambda section, name: section.get(name, {}), key.split("."), config) if has(config, key) else None


def has(config, key):
    *sections, name = key.split(".")
    return name in functools.reduce(lambda section, part: section.get(part, {}), sections, config)


def changed(config, key, value):
    """The config with another value of the key, or without the key where that is None."""
    config = json.loads(json.dumps(config))
    *sections, name = key.split(".")
    section = functools.reduce(lambda part, inner: part.setdefault(inner, {}), sections, config)
    section.pop(name, None)
    if value is not None:
        section[name] = value
    return config


def random_placement(draw, n_layer):
    """A placement, a pair, or a list with one or the other for each block."""
    listed = [name for name, row in PLACEMENTS.items() if row["pattern"] is None and not row["embed_norm"]]

    def entry():
        return {"attn": draw.choice(listed), "ffn": draw.choice(listed)} if draw.random() < 0.5 else draw.choice(listed)

    kind = draw.choice(("name", "pair", "list", "list"))
    if kind == "name":
        return draw.choice(list(PLACEMENTS))
    if kind == "pair":
        return {"attn": draw.choice(listed), "ffn": draw.choice(listed)}
    first = ["peri"] if draw.random() < 0.2 else [entry()]
    return first + [entry() for _ in range(n_layer - 1)]


def random_config(draw):
    config = merged(TINY, BASE)
    for key in draw.sample(list(VALUES), draw.randint(4, 20)):
        config = changed(config, key, draw.choice(VALUES[key]))
    return changed(config, "model.norm_placement", random_placement(draw, config["model"]["n_layer"]))


class KeysOfRandomConfigs(CliTest):
    def setUp(self):
        super().setUp()
        self.write("more.txt", "the quick brown fox jumps over the lazy dog.\n" * 40)

    def resolved(self, config):
        """The resolved config; None if the program refuses it."""
        self.write("config.json", json.dumps(config))
        result = self.call("config", "config.json")
        return json.loads(result.stdout) if result.returncode == 0 else None

    def outcome(self, config):
        """(what the run computed: its trajectory, losses and weights; the keys that it reports as set without effect)"""
        self.write("config.json", json.dumps(config))
        result = self.call("train", "config.json", "--out", "run", "--overwrite")
        self.assertIn(result.returncode, (0, 3), result.stderr)
        run = Run(self.path("run"))
        losses = [(row["step"], row["val_loss"]) for row in run.rows("metrics.csv") if row["val_loss"]]
        weights = {name: tensor.tobytes() for name, tensor in run.tensors().items()} if result.returncode == 0 else {}
        computed = {key: run.summary.get(key) for key in ("status", "steps", "trajectory_hash", "best_val_loss", "final_val_loss")}
        note = re.search(r"note: set without effect: (.*)", result.stdout)
        reported = re.findall(r"(?:^|, )([a-z_0-9.]+) \(", note[1]) if note else []
        return (computed, losses, weights), reported

    def check_reading_again(self, config, resolved, before, reported):
        """A resolved config is the same config. The keys that are reported can be removed; it keeps every other key that is set."""
        self.assertEqual(self.resolved(resolved), resolved)
        self.assertEqual(self.outcome(resolved), (before, []))
        for key in reported:
            self.assertFalse(has(resolved, key), key)
        without = functools.reduce(lambda part, key: changed(part, key, None), reported, config)
        self.assertEqual(self.resolved(without), resolved)

    def check_change(self, resolved, key, before):
        """Another value of a key gives another run if the resolved config holds the key, and the same run if it does not."""
        for value in VALUES[key]:
            other = changed(resolved, key, value)
            if value == value_of(resolved, key) or not (read := self.resolved(other)):
                continue
            after, reported = self.outcome(other)
            with self.subTest(key=key, was=value_of(resolved, key), value=value):
                if has(resolved, key):
                    self.assertTrue(before != after, "the key has no effect, but is not reported")
                    self.assertNotIn(key, reported)
                else:
                    self.assertTrue(before == after, "the key has an effect, but is left out")
                    self.assertFalse(has(read, key))
            return

    def test_keys_at_the_edge_of_an_effect(self):
        for settings, key, is_reported in EDGES:
            with self.subTest(settings=settings):
                config = functools.reduce(lambda part, name: changed(part, name, settings[name]), settings, merged(TINY, BASE))
                resolved = self.resolved(config)
                before, reported = self.outcome(config)
                self.assertEqual(key in reported, is_reported, reported)
                self.check_reading_again(config, resolved, before, reported)
                self.check_change(resolved, key, before)

    def test_keys_of_random_configs(self):
        tried = 0
        for seed in range(10 * CONFIGS):
            draw = random.Random(seed)
            config = random_config(draw)
            resolved = self.resolved(config)
            if resolved is None or tried == CONFIGS:
                continue
            before, reported = self.outcome(config)
            if before[0]["status"] != "done":
                continue
            tried += 1
            with self.subTest(seed=seed, config=resolved):
                self.check_reading_again(config, resolved, before, reported)
                for key in draw.sample(list(VALUES), CHANGES):
                    self.check_change(resolved, key, before)
        self.assertEqual(tried, CONFIGS)


if __name__ == "__main__":
    unittest.main()
