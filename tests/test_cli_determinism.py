#!/usr/bin/python3
"""Same config, same bits: whatever the threads, whatever is logged; and what two configs share, they share exactly."""

import unittest

import numpy as np
from cli import CliTest, Run

# Wide enough for products of several tiles, tall enough for several blocks of rows, and with dropout's draws.
WIDE = {"model": {"d_model": 80, "context": 32, "n_head": 2, "dropout": 0.1, "bias": True},
        "train": {"steps": 6, "batch_size": 6, "grad_accum": 2}, "log": {"every": 1, "layers_every": 3},
        "eval": {"every": 3}, "checkpoint": {"every": 3}}
BYTES = ("checkpoint.safetensors", "checkpoint.previous.safetensors", "model.safetensors", "best.safetensors")


class Bits(CliTest):
    def test_any_number_of_threads(self):
        for gemm, precision in (("auto", "fp32"), ("openblas", "fp32"), ("native", "fp32"), ("native", "bf16")):
            options = ["--set", f"train.gemm={gemm}", "--set", f"train.precision={precision}"]
            runs = [self.train(f"{gemm}-{precision}-{n}", WIDE, "--threads", str(n), *options) for n in (1, 2, 3)]
            for n, run in enumerate(runs, start=1):
                self.assertEqual([run.summary[key] for key in ("threads", "gemm", "precision")], [n, gemm, precision])
                self.assert_same_results(run, runs[0], files=BYTES)

    def test_bf16_rounds_the_operands_and_learns_the_same(self):
        exact, rounded = self.train("fp32"), self.train("bf16", {"train": {"precision": "bf16"}})
        for step, loss in losses(exact).items():
            self.assertNotEqual(losses(rounded)[step], loss)
            self.assertAlmostEqual(float(losses(rounded)[step]), float(loss), delta=0.02)
        self.assertAlmostEqual(rounded.summary["final_val_loss"], exact.summary["final_val_loss"], delta=0.02)
        # Evaluating the run later uses its precision.
        result = self.normscope("eval", rounded.path).stdout
        self.assertIn(f"{rounded.summary['final_val_loss']:.6f}", result)
        self.refused("train", self.config({"train": {"precision": "bf16", "gemm": "openblas"}}), "--out", "no",
                     says=["train.gemm", "auto or native"])

    def test_the_same_again(self):
        self.assert_same_results(self.train("one", WIDE), self.train("two", WIDE), files=(*BYTES, "sample.txt"))

    def test_logging_changes_nothing(self):
        loud = self.train("loud", {"log": {"every": 1, "layers_every": 1}, "eval": {"every": 1}})
        quiet = self.train("quiet", {"log": {"every": 5, "layers_every": 0}, "eval": {"every": 0},
                                     "checkpoint": {"every": 0}})
        self.assertEqual(loud.summary["trajectory_hash"], quiet.summary["trajectory_hash"])
        for key in ("final_train_loss", "final_val_loss", "grad_first_last", "growth"):
            self.assertEqual(loud.summary[key], quiet.summary[key], key)
        self.assertEqual(losses(quiet), {step: loss for step, loss in losses(loud).items() if step in losses(quiet)})
        for name, tensor in loud.tensors().items():
            self.assertEqual(tensor.tobytes(), quiet.tensors()[name].tobytes(), name)

    def test_accumulating_two_halves_is_the_whole_within_rounding(self):
        changes = {"log": {"every": 1, "layers_every": 1}, "eval": {"every": 0}}
        whole = self.train("whole", changes | {"train": {"steps": 10, "batch_size": 16}})
        halves = self.train("halves", changes | {"train": {"steps": 10, "batch_size": 8, "grad_accum": 2}})
        for name, columns in (("metrics.csv", ("tokens", "train_loss", "grad_norm", "val_loss")),
                              ("layers.csv", ("rms", "abs_max", "grad_rms", "grad_abs_max", "grad_norm"))):
            for a, b in zip(whole.rows(name), halves.rows(name), strict=True):
                place = [[row.get(key) for key in ("step", "layer", "site")] for row in (a, b)]
                self.assertEqual(*place)
                for column in columns:
                    if a[column] or b[column]:
                        np.testing.assert_allclose(float(a[column]), float(b[column]), rtol=1e-5, err_msg=column)


def losses(run):
    return {row["step"]: row["train_loss"] for row in run.rows("metrics.csv")}


class Shared(CliTest):
    """A parameter's draw depends on the seed and its name, a batch on the seed and the step; on nothing else."""

    def start_of(self, **model):
        """Every tensor of the first batch of the untrained model."""
        name = "-".join(f"{key}-{value}" for key, value in model.items())
        self.normscope("probe", self.config({"model": model}), "--out", name, "--dump", f"{name}.safetensors")
        return Run(self.folder).tensors(f"{name}.safetensors")

    def test_configs_that_differ_in_norm_or_placement_start_alike(self):
        pre = self.start_of(norm_placement="pre")
        others = [{"norm_placement": p} for p in ("post", "sandwich", "peri", "res_post", "rezero", "none", "mix")]
        for model in (*others, {"norm": "rmsnorm"}, {"norm": "none"}, {"norm_affine": False}, {"qk_norm": True}):
            other = self.start_of(**model)
            shared = [n for n in pre if n in other and not n.startswith(("act", "grad", "logits", "loss"))]
            self.assertLessEqual({"tokens", "targets", "embed.token.weight", "blocks.1.ffn.out.weight"}, set(shared))
            for name in shared:
                np.testing.assert_array_equal(pre[name], other[name], err_msg=f"{model} {name}")

    def test_deepnorm_scales_the_same_draws(self):
        pre, deep = self.start_of(norm_placement="pre"), self.start_of(norm_placement="deepnorm")
        beta = (8 * 2) ** -0.25
        # In pre, but not in deepnorm, what writes the stream is scaled by 1/√(2L) = 1/2.
        expected = {"attn.out": beta * 2, "ffn.in": beta, "ffn.out": beta * 2}
        for name, ratio in expected.items():
            a, b = pre[f"blocks.0.{name}.weight"], deep[f"blocks.0.{name}.weight"]
            np.testing.assert_allclose(b, a * ratio, rtol=1e-5, err_msg=name)
        a, b = pre["blocks.0.attn.qkv.weight"], deep["blocks.0.attn.qkv.weight"]
        np.testing.assert_array_equal(a[:32], b[:32])
        np.testing.assert_allclose(b[32:], a[32:] * beta, rtol=1e-5)

    def test_another_seed_is_another_start(self):
        one, two = self.train("one"), self.train("two", {"train": {"seed": 2}})
        self.assertNotEqual(losses(one)["1"], losses(two)["1"])

    def test_batches_do_not_depend_on_how_long_the_run_is(self):
        short = self.train("short", {"train": {"steps": 10, "schedule": "constant"}})
        long = self.train("long", {"train": {"steps": 20, "schedule": "constant"}})
        self.assertEqual(losses(short)["10"], losses(long)["10"])


if __name__ == "__main__":
    unittest.main()
