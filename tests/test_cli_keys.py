#!/usr/bin/python3
"""Tests by training when each config key has an effect, as the table of keys says it."""

import json
import re
import unittest

from cli import TINY, CliTest, Run, merged

from lib import runs
from lib.groups import difference, group_by_config
from lib.keys import fields

XAVIER = {"model.init.scheme": "xavier_normal"}
PEAKED = {"train.warmup_steps": 2, "train.lr": 0.1}
# Two values for each key. SOMETIMES has settings under which the key counts, then settings under which it does not.
ALWAYS = {
    "model.n_layer": (1, 3), "model.n_head": (1, 4), "model.d_model": (8, 16), "model.d_ff": (24, 32),
    "model.context": (8, 12), "model.norm_placement": ("pre", "post"), "model.residual": (True, False),
    "model.activation": ("relu", "silu"), "model.bias": (True, False), "model.ffn_bias": (True, False),
    "model.position": ("rope", "none"), "model.tie_embeddings": (True, False),
    "model.dropout": (0, 0.3), "model.init.scheme": ("kaiming_normal", "xavier_uniform"),
    "model.init.embed_std": (0.1, 1), "data.path": ("text.txt", "more.txt"), "data.val_path": ("", "more.txt"),
    "train.steps": (6, 7), "train.batch_size": (3, 4), "train.grad_accum": (1, 2), "train.seed": (1, 2),
    "train.optimizer": ("adamw", "sgd"), "train.lr": (0.1, 0.01), "train.warmup_steps": (0, 3),
    "train.weight_decay": (0, 0.5), "train.grad_clip": (0.01, 0), "train.precision": ("fp32", "bf16"), "train.gemm": ("openblas", "native"),
    "train.branch_warmup_steps": (0, 10), "train.fixed_batch": (False, True), "model.init.zero_branches": (True, False),
}
SOMETIMES = {
    "model.mix_post_fraction": ((0.25, 0.75), [{"model.norm_placement": "mix"}], [{}, {"model.norm_placement": "post"}]),
    "model.norm": (("layernorm", "rmsnorm"), [{}, {"model.norm_placement": ["pre", "none"]}],
                   [{"model.norm_placement": "rezero"}, {"model.norm_placement": ["none", "rezero"]}]),
    "model.norm_eps": ((1e-5, 0.1), [{}, {"model.norm": "rmsnorm"}, {"model.norm": "batchnorm"},
                                     {"model.norm": "groupnorm"}, {"model.norm": "instancenorm"},
                                     {"model.norm": "dyt", "model.qk_norm": True},
                                     {"model.norm": "none", "model.qkv_norm": True}],
                       [{"model.norm": "dyt"}, {"model.norm": "none"}, {"model.norm_placement": "rezero"}]),
    "model.norm_eps_outside": ((True, False), [{"model.norm_eps": 0.1}, {"model.norm": "rmsnorm", "model.norm_eps": 0.1},
                                               {"model.norm": "instancenorm", "model.norm_eps": 0.1}],
                               [{"model.norm_eps": 0}, {"model.norm": "dyt", "model.norm_eps": 0.1},
                                {"model.norm": "none", "model.qk_norm": True, "model.norm_eps": 0.1}]),
    "model.norm_affine": ((True, False), [{}, {"model.norm": "dyt"}, {"model.norm": "rmsnorm"}],
                          [{"model.norm": "none"}, {"model.norm_placement": "none"}]),
    "model.norm_bias": ((True, False), [{}, {"model.norm": "dyt"}],
                        [{"model.norm": "rmsnorm"}, {"model.norm": "none"}, {"model.norm_affine": False}]),
    "model.qk_norm": ((True, False), [{}, {"model.norm": "none"}], [{"model.qkv_norm": True}]),
    "model.qkv_norm": ((False, True), [{}, {"model.qk_norm": True}], [{"model.norm_placement": "hybrid"}]),
    "model.inner_norm": ((False, True), [{}, {"model.norm": "rmsnorm"}, {"model.norm_placement": {"attn": "subln", "ffn": "pre"}}], [{"model.norm": "none"}, {"model.norm_placement": "subln"}]),
    "model.embed_norm": ((False, True), [{}, {"model.norm": "rmsnorm"}], [{"model.norm": "none"}, {"model.norm_placement": "peri"}]),
    "model.norm_alpha": ((0.5, 1), [{"model.norm": "dyt"}, {"model.norm": "derf"}], [{}]),
    "model.norm_detach": ((False, True), [{}, {"model.norm": "rmsnorm"}, {"model.norm": "groupnorm"}],
                          [{"model.norm": "dyt"}, {"model.norm": "batchnorm"}, {"model.norm": "none"}]),
    "model.branch_scale": ((1, "L^-0.5"), [{}, {"model.branch_scale_learned": "vector"}, {"model.norm_placement": ["rezero", "pre"]}],
                           [{"model.norm_placement": "rezero"}]),
    "model.branch_scale_learned": (("none", "vector"), [{}, {"model.branch_scale": 0.5}], [{"model.norm_placement": "rezero"}]),
    "model.norm_groups": ((2, 8), [{"model.norm": "groupnorm"}], [{}, {"model.norm": "batchnorm"}]),
    "model.final_norm": ((True, False), [{}, {"model.norm_placement": "post"}],
                         [{"model.norm": "none"}, {"model.norm_placement": "rezero"}]),
    "model.init.std": ((0.1, 0.5), [{}, {"model.tie_embeddings": False}, XAVIER],
                       [{**XAVIER, "model.tie_embeddings": False}, {**XAVIER, "model.init.embed_std": 0.2}]),
    "model.init.residual_scaling": ((True, False), [{}, {"model.norm_placement": "deepnorm"}],
                                    [XAVIER, {"model.init.zero_branches": True}]),
    "data.val_fraction": ((0.1, 0.3), [{}], [{"data.val_path": "more.txt"}]),
    "train.min_lr": ((0.1, 0), [{}, {"train.schedule": "linear"}],
                     [{"train.schedule": "constant"}, {"train.warmup_steps": 6}, {"train.warmup_steps": 5},
                      {"train.schedule": "wsd", "train.cooldown": 0}]),
    "train.schedule": (("cosine", "constant"), [PEAKED], [{**PEAKED, "train.warmup_steps": 6}, {**PEAKED, "train.warmup_steps": 5}]),
    **{f"train.{key}": (values, [{}, {"train.optimizer": "muon"}], [{"train.optimizer": "sgd"}])
       for key, values in {"beta1": (0.5, 0.9), "beta2": (0.5, 0.99), "adam_eps": (1e-8, 0.1)}.items()},
    "train.momentum": ((0, 0.9), [{"train.optimizer": "sgd"}, {"train.optimizer": "muon"}], [{}]),
    "train.cooldown": ((0.5, 1), [{"train.schedule": "wsd"}],
                       [{}, {"train.schedule": "linear"}, {"train.schedule": "wsd", "train.warmup_steps": 5}]),
    "eval.every": ((0, 2), [{}, {"data.val_fraction": 0, "data.val_path": "more.txt"}], [{"data.val_fraction": 0}]),
    "eval.batches": ((1, 0), [{"eval.every": 2}], [{"eval.every": 0}, {"data.val_fraction": 0}]),
}
BOOKKEEPING = {
    "name": ("one", "other"), "train.threads": (1, 2), "log.every": (1, 10), "log.layers_every": (0, 1),
    "log.layers_first": (0, 3), "checkpoint.every": (0, 2)}
# The key that only runs with a loss that is not finite depend on.
ONLY_WHERE_LOST = {"train.on_nonfinite": ("stop", "skip")}


class Keys(CliTest):
    def setUp(self):
        super().setUp()
        self.write("more.txt", "the quick brown fox jumps over the lazy dog.\n" * 40)
        base = {"train": {"steps": 6}, "model": {"d_model": 16}, "log": {"layers_every": 0}, "eval": {"every": 2}}
        self.write("base.json", json.dumps(merged(TINY, base)))

    def sets(self, settings):
        return [word for key, value in settings.items()
                for word in ("--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}")]

    def outcome(self, out, settings):
        """The trajectory's hash and the validation losses of the base with settings."""
        self.call("train", "base.json", "--out", out, "--overwrite", "--quiet", *self.sets(settings))
        run = Run(self.path(out))
        return run.summary["trajectory_hash"], [row["val_loss"] for row in run.rows("metrics.csv") if row["val_loss"]]

    def resolved(self, settings):
        return json.loads(self.call("config", "base.json", *self.sets(settings)).stdout)

    def check(self, key, values, settings, used):
        """Checks that two values of the key give different runs if it is used under the settings, and else the same run. The
        resolved config has the key only if it is used, and `--origin` says whether it is."""
        with self.subTest(key=key, settings=settings):
            first, second = (self.outcome(out, {**settings, key: value}) for out, value in zip(("first", "second"), values))
            self.assertEqual(first != second, used)
            first, second = (self.resolved({**settings, key: value}) for value in values)
            self.assertEqual(first != second, used or key in BOOKKEEPING)
            shown = self.call("config", "base.json", "--origin", *self.sets({**settings, key: values[0]})).stdout
            line = re.search(rf"(?m)^{key} +(.*)$", shown)[1]
            self.assertEqual("no effect" in line, not used and key not in BOOKKEEPING, line)

    def test_every_key_is_tried(self):
        known = set(fields()) - {"$schema", "extends", "$derived"}
        self.assertEqual(known, set(ALWAYS) | set(SOMETIMES) | set(BOOKKEEPING) | set(ONLY_WHERE_LOST))
        self.assertEqual({key for key in known if fields()[key].get("x-bookkeeping")}, set(BOOKKEEPING))

    def test_keys_that_always_count(self):
        for key, values in ALWAYS.items():
            settings = {"model.tie_embeddings": False} if key == "model.init.embed_std" else {}
            if key in ("model.bias", "model.ffn_bias"):
                settings = {"train.lr": 0.1}
            self.check(key, values, settings, used=True)

    def test_keys_that_count_beside_others_alone(self):
        for key, (values, used, idle) in SOMETIMES.items():
            for settings in used:
                self.check(key, values, {"train.lr": 0.1, **settings}, used=True)
            for settings in idle:
                self.check(key, values, {"train.lr": 0.1, **settings}, used=False)

    def test_bookkeeping_changes_no_number(self):
        for key, values in BOOKKEEPING.items():
            self.check(key, values, {"log.layers_every": 1} if key == "log.layers_first" else {}, used=False)

    def test_what_is_done_with_a_loss_that_is_not_finite(self):
        wild = {"train.optimizer": "sgd", "train.lr": 100, "train.grad_clip": 0, "model.norm": "none",
                "train.steps": 15}
        stop, skip = (self.outcome(out, {**wild, "train.on_nonfinite": value})
                      for out, value in (("one", "stop"), ("other", "skip")))
        self.assertNotEqual(stop, skip)


if __name__ == "__main__":
    unittest.main()
