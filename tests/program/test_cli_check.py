#!/usr/bin/python3
"""`normscope check`: the laws that it tries on a config, its report and its exit code."""

import re
import unittest

from cli import CliTest

UNTIED = {"tie_embeddings": False, "init": {"scheme": "xavier_normal", "embed_std": 1}}


class Check(CliTest):
    def check(self, code=0, train=None, **model):
        """{law: its errors}, output. No error: the law does not apply. The limits are in self.limits."""
        self.config({"model": {**UNTIED, **model}, "train": train or {}})
        result = self.call("check", "tiny.json")
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        errors, self.limits = {}, {}
        for line in result.stdout.splitlines():
            if match := re.match(r"(?:ok|FAIL) +(\S+) +(\S+) +(\d+) +\S", line):
                error, limit = float(match[1]), float(match[2])
                self.assertEqual(line.startswith("ok"), error <= limit, line)
                errors.setdefault(int(match[3]), []).append(error)
                self.limits[int(match[3])] = limit
            elif match := re.match(r"- +(\d+) +.*does not apply, \S", line):
                errors[int(match[1])] = []
        self.assertEqual(list(errors), sorted(errors))
        self.assertEqual(set(errors), set(range(1, 7)), result.stdout)
        broken = {law for law, values in errors.items() if not max(values, default=0) <= self.limits.get(law, 0)}
        self.assertIn(f"\n{6 - len(broken) - len(self.skipped(errors))} laws hold, {len(broken)} fail\n", result.stdout)
        return errors, result

    def skipped(self, errors):
        return {law for law, values in errors.items() if not values}

    def test_laws_of_each_placement_and_variant(self):
        for model, skipped in (
            ({}, set()),
            ({"norm_placement": "post"}, set()),
            ({"norm_placement": "res_post", "norm": "rmsnorm", "activation": "relu"}, set()),
            ({"norm_placement": "peri", "qk_norm": True, "position": "rope"}, set()),
            ({"norm_placement": "rezero"}, {1}),
            ({"norm": "dyt"}, {1}),
            ({"norm_placement": "mix", "norm": "groupnorm", "bias": True, "activation": "swiglu"}, set()),
            ({"norm_placement": "post", "norm": "rmsnorm"}, {1}),
        ):
            with self.subTest(model):
                errors, result = self.check(**model)
                self.assertEqual(self.skipped(errors), skipped, result.stdout)
                self.assertEqual(result.stderr, "")
                self.assertRegex(result.stdout, r" gradients of \d+ tensors equal the exact derivatives")
                # Not all of it can be exact: double was rounded, float compared with double.
                self.assertGreater(errors[4][0], 1e-9)
                self.assertGreater(errors[3][0], 0)

    def test_norms_over_tokens_are_caught_looking_ahead(self):
        for norm, words in (("batchnorm", "statistics run over all tokens of the batch"),
                            ("instancenorm", "over the whole sequence")):
            errors, result = self.check(code=1, norm=norm)
            self.assertGreater(errors[2][0], 0)
            self.assertIn(words, result.stdout)
            self.assertRegex(result.stderr, r"^\[check\] tiny: 2 \(causality\) fails; .*\n$")
        errors, _ = self.check(code=1, norm="batchnorm")
        self.assertEqual(errors[2][1], 0)  # in evaluation it does not leak

    def test_limits_are_those_of_the_precision(self):
        errors, result = self.check(train={"precision": "bf16"})
        self.assertTrue(1e-4 < errors[4][0] < self.limits[4], errors[4])
        self.assertEqual(self.limits[4], 5e-2)
        self.assertIn("the engine that trains (bf16)", result.stdout)
        self.check()
        self.assertEqual(self.limits[4], 1e-4)

    def test_chaotic_configs_are_named(self):
        # A norm over the sequence amplifies the rounding of activations from block to block. It leaks: 1.
        errors, result = self.check(code=1, n_layer=12, norm="instancenorm", norm_placement="post",
                                    train={"precision": "bf16"})
        self.assertIn(4, self.skipped(errors))
        self.assertRegex(result.stdout,
                         r"precision: does not apply, chaotic: rounding alone moves \S+ by ")

    def test_gradients_that_are_small_beside_the_loss(self):
        self.check(norm_placement="rezero", activation="swiglu", n_layer=3, d_model=64, tie_embeddings=True,
                   init={"scheme": "gpt2", "embed_std": 0.02})

    def test_zeros_are_no_failures(self):
        self.check(norm="groupnorm", d_model=8, norm_placement="sandwich")  # groups of 2 features, which are +-1
        # One unit that is off leaves zeros, and a norm without eps makes 0/0 of them.
        errors, result = self.check(activation="relu", d_ff=1, norm_eps=0, norm_placement="res_post")
        self.assertIn("with norm_eps 0, a norm here divides 0 by 0", result.stdout)
        self.assertLessEqual({3, 4, 5}, self.skipped(errors))
        self.write("text.txt", "a" * 500)  # one character: the loss is 0
        self.check()


if __name__ == "__main__":
    unittest.main()
