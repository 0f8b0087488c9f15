#!/usr/bin/python3
"""When each config key has an effect. A key counts if another value of it gives another run. The program must know
this: a resolved config holds the keys that count and no others, keys that are set without effect are reported, and a
resolved config that is read again is the same config. The keys are tried one by one, then in random configs.

The long form draws 200 configs instead of 6.
"""

import functools
import json
import random
import re
import unittest

from cli import LONG, TINY, CliTest, Run, merged

from lib.base.keys import HISTORY, PLACED, PLACEMENTS, fields

CONFIGS, CHANGES = (200, 6) if LONG else (6, 4)  # the number of random configs, and of changes of each that are trained
# Values of each key. A random config takes one; a run with the first of them is compared with a run with another.
VALUES = {key: field.get("enum", [True, False]) for key, field in fields().items()
          if "enum" in field or field.get("type") == "boolean"}
# The key that only runs with a loss that is not finite depend on.
ONLY_WHERE_LOST = {"train.on_nonfinite": VALUES.pop("train.on_nonfinite")}
VALUES |= {
    "model.n_layer": (1, 2, 3), "model.n_head": (1, 2, 4), "model.d_model": (8, 16), "model.d_ff": (12, 24),
    "model.context": (8, 12), "model.mix_post_fraction": (0, 1),
    "model.norm_placement": ("keel", "pre"),  # no other placement is keel's, even without a norm
    "model.norm_eps": (1e-5, 0.1, 0), "model.norm_groups": (2, 4, 1), "model.norm_alpha": (0.5, 1),
    "model.branch_scale": (1, 0.7, "L^-0.5"), "model.dropout": (0, 0.3),
    "model.init.std": (0.02, 0.3), "model.init.embed_std": (0.1, 0.7),
    "data.path": ("text.txt", "more.txt"), "data.val_fraction": (0.1, 0.3, 0), "data.val_path": ("", "more.txt"),
    "train.steps": (4, 5), "train.batch_size": (2, 3), "train.grad_accum": (1, 2), "train.seed": (1, 2),
    "train.lr": (0.1, 0.01), "train.min_lr": (0.003, 0), "train.warmup_steps": (0, 2, 3, 5),
    "train.cooldown": (1, 0.5, 0), "train.branch_warmup_steps": (0, 10), "train.beta1": (0.5, 0.9),
    "train.beta2": (0.5, 0.99), "train.adam_eps": (1e-8, 1e-3), "train.momentum": (0, 0.5, 0.9),
    "train.weight_decay": (0, 0.5), "train.grad_clip": (0.01, 0), "eval.every": (2, 0, 9), "eval.batches": (1, 2),
    "train.gemm": ("openblas", "native"),  # "auto" is one of them
    "train.schedule": ("cosine", "constant", "linear", "wsd")}  # cosine is linear at half of its way, and at its end
XAVIER, GROUPS = {"model.init.scheme": "xavier_normal"}, {"model.norm": "groupnorm"}
RMS, BATCH, DYT, NO_NORM = ({"model.norm": name} for name in ("rmsnorm", "batchnorm", "dyt", "none"))
SGD, MUON = ({"train.optimizer": name} for name in ("sgd", "muon"))
LINEAR, WSD = ({"train.schedule": name} for name in ("linear", "wsd"))


def placed(placement, **more):
    return {"model.norm_placement": placement, **more}


def warmed_up(steps):  # 4 steps are trained
    return {"train.warmup_steps": steps}


# {key: (settings under which it counts, settings under which it does not)}; the other keys always count.
SOMETIMES = {
    "model.mix_post_fraction": ([placed("mix")], [{}, placed("post")]),
    "model.norm": ([{}, placed(["pre", "none"])], [placed("rezero"), placed(["none", "rezero"])]),
    "model.norm_eps": ([{}, RMS, BATCH, GROUPS, {"model.norm": "instancenorm"}, {**DYT, "model.qk_norm": True},
                        {**NO_NORM, "model.qkv_norm": True}], [DYT, NO_NORM, placed("rezero")]),
    "model.norm_eps_outside": ([{**norm, "model.norm_eps": 0.1} for norm in ({}, RMS, {"model.norm": "instancenorm"})],
                               [{"model.norm_eps": 0}, {**DYT, "model.norm_eps": 0.1},
                                {**NO_NORM, "model.qk_norm": True, "model.norm_eps": 0.1}]),
    "model.norm_affine": ([{}, DYT, RMS], [NO_NORM, placed("none")]),
    "model.norm_bias": ([{}, DYT], [RMS, NO_NORM, {"model.norm_affine": False}]),
    "model.qk_norm": ([{}, NO_NORM], [{"model.qkv_norm": True}]),
    "model.qkv_norm": ([{}, {"model.qk_norm": True}], [placed("hybrid")]),
    "model.inner_norm": ([{}, RMS, placed({"attn": "subln", "ffn": "pre"}),
                          placed(["subln", {"attn": "pre", "ffn": "subln"}])], [NO_NORM, placed("subln")]),
    "model.embed_norm": ([{}, RMS], [NO_NORM, placed("peri"), placed(["peri", "post"])]),
    "model.norm_alpha": ([DYT, {"model.norm": "derf"}], [{}]),
    "model.norm_detach": ([{}, RMS, GROUPS], [DYT, BATCH, NO_NORM]),
    "model.branch_scale": ([{}, {"model.branch_scale_learned": "vector"}, placed(["rezero", "pre"])],
                           [placed("rezero")]),
    "model.branch_scale_learned": ([{}, {"model.branch_scale": 0.5}], [placed("rezero")]),
    "model.norm_groups": ([GROUPS], [{}, BATCH]),
    "model.final_norm": ([{}, placed("post")], [NO_NORM, placed("rezero")]),
    "model.init.std": ([{}, {"model.tie_embeddings": False}, XAVIER],
                       [{**XAVIER, "model.tie_embeddings": False}, {**XAVIER, "model.init.embed_std": 0.2}]),
    "model.init.embed_std": ([{"model.tie_embeddings": False}, {**XAVIER, "model.init.std": 0.5}], []),
    "model.init.residual_scaling": ([{}, placed("deepnorm")], [XAVIER, {"model.init.zero_branches": True}]),
    "data.val_fraction": ([{}], [{"data.val_path": "more.txt"}]),
    "train.min_lr": ([{}, LINEAR],
                     [{"train.schedule": "constant"}, warmed_up(4), warmed_up(3), {**WSD, "train.cooldown": 0}]),
    "train.schedule": ([warmed_up(2)], [warmed_up(4), warmed_up(3)]),
    **{f"train.{key}": ([{}, MUON], [SGD]) for key in ("beta1", "beta2", "adam_eps")},
    "train.momentum": ([SGD, MUON], [{}]),
    "train.cooldown": ([WSD], [{}, LINEAR, {**WSD, **warmed_up(3)}]),
    "eval.every": ([{}, {"data.val_fraction": 0, "data.val_path": "more.txt"}], [{"data.val_fraction": 0}]),
    "eval.batches": ([{}], [{"eval.every": 0}, {"data.val_fraction": 0}])}
BOOKKEEPING = {
    "name": ("one", "other"), "train.threads": (1, 2), "log.every": (1, 10), "log.layers_every": (0, 1),
    "log.layers_first": (0, 3), "checkpoint.every": (0, 2), "checkpoint.keep_every": (0, 2)}
# Weights of 0.3: with 0.02 attention is so even that rounding can hide the effect of a key such as n_head.
BASE = merged(TINY, {"model": {"d_model": 8, "context": 8, "init": {"std": 0.3}}, "eval": {"every": 2, "batches": 1},
                     "train": {"steps": 4, "batch_size": 2, "lr": 0.1}, "log": {"layers_every": 0}})


def value_of(config, key):
    """The value of a dotted key; None where the config leaves it out."""
    *sections, name = key.split(".")
    return functools.reduce(lambda section, part: section.get(part, {}), sections, config).get(name)


def changed(config, changes):
    """The config with other values of some keys, and without the keys for which the value is None."""
    config = json.loads(json.dumps(config))
    for key, value in changes.items():
        *sections, name = key.split(".")
        section = functools.reduce(lambda part, inner: part.setdefault(inner, {}), sections, config)
        section.pop(name, None)
        if value is not None:
            section[name] = value
    return config


def random_placement(draw, n_layer):
    """A placement, a pair, or a list with one or the other for each block."""
    listed = [name for name, row in PLACEMENTS.items() if not row["embed_norm"]]

    def entry(pairs=0.5):
        first, second = draw.choice(listed), draw.choice(listed)
        return {"attn": first, "ffn": second} if draw.random() < pairs else first

    kind = draw.choice(("name", "pair", "list", "list"))
    if kind == "name":
        return draw.choice(PLACED)
    if kind == "pair":
        return entry(pairs=1)
    first = ["peri"] if draw.random() < 0.2 else [entry()]
    return first + [entry() for _ in range(n_layer - 1)]


def random_config(draw):
    keys = draw.sample([key for key in VALUES if key != "model.norm_placement"], draw.randint(4, 20))
    config = changed(BASE, {key: draw.choice(VALUES[key]) for key in keys})
    return changed(config, {"model.norm_placement": random_placement(draw, config["model"]["n_layer"])})


class Keys(CliTest):
    def setUp(self):
        super().setUp()
        self.write("more.txt", "the quick brown fox jumps over the lazy dog.\n" * 40)

    def resolved(self, config):
        """The resolved config; None if the program refuses it."""
        self.write("config.json", json.dumps(config))
        result = self.call("config", "config.json")
        return json.loads(result.stdout) if result.returncode == 0 else None

    def outcome(self, config):
        """(the results of a run: its trajectory, losses and weights; the resolved config; the keys that are reported as
        set without effect)"""
        self.write("config.json", json.dumps(config))
        result = self.call("train", "config.json", "--out", "run", "--overwrite")
        self.assertIn(result.returncode, (0, 3), result.stderr)
        run = Run(self.path("run"))
        losses = [(row["step"], row["val_loss"]) for row in run.rows("metrics.csv") if row["val_loss"]]
        weights = run.weights() if result.returncode == 0 else b""
        computed = {key: run.summary.get(key)
                    for key in ("status", "steps", "trajectory_hash", "best_val_loss", "final_val_loss")}
        note = re.search(r"note: set without effect: (.*)", result.stdout)
        reported = re.findall(r"(?:^|, )([a-z_0-9.]+) \(", note[1]) if note else []
        return (computed, losses, weights), run.json("config.json"), reported

    def check(self, key, values, settings, is_used):
        """Two values of the key must give different runs if it is used under the settings, and else the same run and
        the same resolved config, and the key is reported."""
        with self.subTest(key=key, settings=settings):
            first, second = (self.outcome(changed(BASE, {**settings, key: value})) for value in values)
            self.assertEqual(first[0] != second[0], is_used)
            self.assertEqual(first[1] != second[1], is_used or key in BOOKKEEPING)
            self.assertEqual(key in first[2] + second[2], not is_used and key not in BOOKKEEPING)

    def test_every_key_is_tried(self):
        known = set(fields()) - {"$schema", "extends", "$derived", "$idle", "model.$blocks", *HISTORY}
        self.assertEqual(known, set(VALUES) | set(BOOKKEEPING) | set(ONLY_WHERE_LOST))
        self.assertEqual({key for key in known if fields()[key].get("x-bookkeeping")}, set(BOOKKEEPING))

    def test_keys_one_by_one(self):
        for key, values in VALUES.items():
            used, idle = SOMETIMES.get(key, ([{}], []))
            for settings, is_used in [(settings, True) for settings in used] + [(settings, False) for settings in idle]:
                self.check(key, values[:2], settings, is_used)

    def test_bookkeeping_changes_no_number(self):
        for key, values in BOOKKEEPING.items():
            self.check(key, values, {}, is_used=False)

    def test_a_loss_that_is_not_finite(self):
        wild = {**SGD, **NO_NORM, "train.lr": 100, "train.grad_clip": 0, "train.steps": 15, "eval.every": 0}
        stop, skip = (self.outcome(changed(BASE, {**wild, "train.on_nonfinite": value}))[0]
                      for value in ONLY_WHERE_LOST["train.on_nonfinite"])
        self.assertNotEqual(stop, skip)

    def check_reading_again(self, config, before):
        """A resolved config is the same config, also without the keys that are reported."""
        computed, resolved, reported = before
        self.assertEqual(self.resolved(config), resolved)
        self.assertEqual(self.outcome(resolved), (computed, resolved, []))
        self.assertLessEqual(set(reported), set(resolved["$idle"]))
        self.assertEqual(self.resolved(changed(config, dict.fromkeys(reported))), resolved)

    def check_change(self, resolved, key, computed):
        """Another value of a key gives the same run, and is reported, if the resolved config lists the key as idle,
        else another run."""
        for value in VALUES[key]:
            other = changed(resolved, {**dict.fromkeys(resolved["$derived"]), key: value})
            if value == value_of(resolved, key) or self.resolved(other) is None:
                continue
            after, _, reported = self.outcome(other)
            with self.subTest(key=key, was=value_of(resolved, key), value=value):
                if key in resolved["$idle"]:
                    self.assertTrue(computed == after, "the key has an effect, but is listed as idle")
                    self.assertIn(key, reported)
                else:
                    self.assertTrue(computed != after, "the key has no effect, but is not reported")
                    self.assertNotIn(key, reported)
            return

    def test_keys_of_random_configs(self):
        tried = 0
        for seed in range(10 * CONFIGS):
            draw = random.Random(seed)
            config = random_config(draw)
            if tried == CONFIGS or self.resolved(config) is None:
                continue
            computed, resolved, reported = self.outcome(config)
            if computed[0]["status"] != "done":
                continue
            tried += 1
            with self.subTest(seed=seed, config=resolved):
                self.check_reading_again(config, (computed, resolved, reported))
                # A path becomes absolute, and two libraries may give the same bits of small products.
                for key in draw.sample([key for key in VALUES if key not in ("data.path", "train.gemm")], CHANGES):
                    self.check_change(resolved, key, computed)
        self.assertEqual(tried, CONFIGS)


if __name__ == "__main__":
    unittest.main()
