#!/usr/bin/python3
"""A run that leaves the numbers: exit 3, the first tensor that was not finite, nothing saved of the step that broke."""

import re
import shutil
import unittest

import numpy as np
from cli import SITES, CliTest, Run, merged, read_safetensors, with_metadata, write_safetensors

# A rate at which the weights overflow within a few steps, and no norm to hold them.
WILD = {"model": {"norm_placement": "none"},
        "train": {"steps": 60, "optimizer": "sgd", "lr": 100, "schedule": "constant", "grad_clip": 0, "weight_decay": 0,
                  "momentum": 0.9},
        "eval": {"every": 0}, "checkpoint": {"every": 1}}


class Divergence(CliTest):
    def diverge(self, out, *options, changes=None):
        config = self.config(changes or WILD, name="wild.json")
        return Run(self.path(out)), self.normscope("train", config, "--out", out, *options, code=3)

    def test_exit_3_says_where_and_the_broken_step_is_logged_but_never_saved(self):
        run, result = self.diverge("run", "--quiet")
        summary, first = run.summary, run.summary["first_nonfinite"]
        self.assertEqual((summary["status"], summary["steps"], summary["final_val_loss"]),
                         ("diverged", first["step"] - 1, None))
        self.assertRegex(result.stderr, rf"^\[train\] diverged at step {first['step']}: [^\n]*\n$")
        last = run.rows("metrics.csv")[-1]
        self.assertEqual(int(last["step"]), first["step"])
        self.assertTrue({"nan", "inf", "-inf"} & set(last.values()), last)
        rows = {(int(row["layer"]), row["site"]): row for row in run.rows("layers.csv")
                if int(row["step"]) == first["step"]}
        self.assertEqual(len(rows), 17)
        count = "grad_nonfinite" if first["kind"] == "gradient" else "nonfinite"
        self.assertGreater(int(rows[first["layer"], first["site"]][count]), 0)
        self.assertEqual(int(run.metadata("checkpoint.safetensors")["step"]), first["step"] - 1)
        self.assertNotIn("model.safetensors", run.contents())

    def test_heads_of_logits_that_are_no_numbers_have_no_largest(self):
        run, _ = self.diverge("run", changes=merged(WILD, {"log": {"layers_every": 1}}))
        lost = {row["max_logit"] for row in run.rows("heads.csv") if row["entropy"] == "nan"}
        self.assertEqual(lost, {"nan"})

    def test_it_is_found_exactly_with_logging_off_and_after_a_resume(self):
        logged, first = self.diverge("logged")
        silent, _ = self.diverge("silent", "--set", "log.layers_every=0", "--set", "log.every=1000")
        for key in ("first_nonfinite", "trajectory_hash", "steps", "status"):
            self.assertEqual(silent.summary[key], logged.summary[key], key)
        shutil.copytree(logged.path, self.path("before"))
        _, again = self.diverge("logged", "--resume")
        self.assertEqual(again.stderr, first.stderr)
        self.assert_same_results(logged, Run(self.path("before")))

    def test_an_update_that_ruins_the_model_is_divergence(self):
        """The step's loss and gradient are finite, the model that it leaves is not."""
        broken = self.diverge("whole")[0].summary["first_nonfinite"]["step"]
        for name, steps, changes in (("last", broken - 1, {"train": {"steps": broken - 1}}),
                                     ("evaluated", broken - 1, {"eval": {"every": 1}}),
                                     ("sampled", 1, {"train": {"steps": 1}, "model": {"init": {"std": 10}},
                                                     "data": {"val_fraction": 0}})):
            with self.subTest(name):
                run, result = self.diverge(name, changes=merged(WILD, changes))
                self.assertEqual((run.summary["status"], run.summary["steps"]), ("diverged", steps))
                self.assertIn(f"diverged at step {steps}: ", result.stderr)
                self.assertNotIn("model.safetensors", run.contents())

    def test_weights_that_are_not_finite_are_never_saved(self):
        run = self.train("run", merged(WILD, {"train": {"steps": 2}}))
        tensors, metadata = read_safetensors(run.file("checkpoint.safetensors"))
        del metadata["checksum"]
        huge = {name: np.full_like(x, 3e38) if name.startswith("optim.m.") else x for name, x in tensors.items()}
        write_safetensors(run.file("checkpoint.safetensors"), huge, metadata)
        self.normscope("train", "tiny.json", "--out", "run", "--resume", "--set", "train.steps=5", "--set",
                       "train.on_nonfinite=skip", code=3)
        self.assertEqual((run.summary["steps"], run.metadata("checkpoint.safetensors")["step"]), (3, "2"))
        write_safetensors(self.path("nan"), {name: x * np.float32("nan") for name, x in tensors.items()}, metadata)
        for of_eval, of_sample in (([], []), (["--json"], ["--greedy"])):
            result = self.normscope("eval", "nan", *of_eval, code=3)
            self.assertRegex(result.stderr, r"^\[eval\] nan: the loss is -?nan; [^\n]*\n$")
            self.assertIn("unigram", result.stdout)
            self.refused("sample", "nan", *of_sample, code=1, says=["logits are not finite"])

    def test_skipping_goes_on_until_too_many_in_a_row(self):
        run, result = self.diverge("run", "--set", "train.on_nonfinite=skip", "--set", "train.steps=1000",
                                   "--set", "log.layers_every=1")
        skipped = [int(step) for step in re.findall(r"(?m)^step (\d+): .* the update is skipped$", result.stderr)]
        self.assertEqual((run.summary["status"], run.summary["skipped"]), ("diverged", len(skipped)))
        broken = run.summary["first_nonfinite"]["step"]
        self.assertEqual(skipped[-19:], list(range(broken - 19, broken)), "the 20th in a row is the end")
        self.assertNotIn(broken - 20, skipped)
        # The weights are those of the last update: no skipped one left a trace.
        self.assertEqual(int(run.metadata("checkpoint.safetensors")["step"]), broken - 1)
        last, _ = self.diverge("last", "--set", "train.on_nonfinite=skip", "--set", f"train.steps={broken - 19}")
        self.assertEqual(int(last.metadata("checkpoint.safetensors")["step"]), broken - 20)
        for name, tensor in last.tensors("checkpoint.safetensors").items():
            self.assertTrue(np.isfinite(tensor).all(), name)
        self.assertTrue(run.weights("checkpoint.safetensors") == last.weights("checkpoint.safetensors"))
        for name, count in (("layers.csv", 17), ("params.csv", 14)):
            rows = run.rows(name)
            for step in range(1, broken):
                self.assertEqual(sum(int(row["step"]) == step for row in rows), count, (name, step))
        self.assertEqual({row["update_rms"] for row in run.rows("params.csv") if int(row["step"]) == broken - 1}, {"0"})

    def test_adamw_corrects_its_bias_by_the_updates_made(self):
        """As PyTorch's, whose step counts no skipped update: m̂ = m/(1 - β1^t), v̂ = v/(1 - β2^t), t updates."""
        changes = {"train": {"steps": 3, "lr": 0.01, "schedule": "constant", "weight_decay": 0.1},
                   "checkpoint": {"every": 1}}
        run = self.train("run", changes)
        file = run.file("checkpoint.safetensors")
        self.write(file, with_metadata(run.bytes("checkpoint.safetensors"), {"skipped": "2", "updates": "1"}))
        before = run.tensors("checkpoint.safetensors")
        self.normscope("train", "tiny.json", "--out", "run", "--resume", "--set", "train.steps=4")
        after = run.tensors("checkpoint.safetensors")
        for name, weights in before.items():
            if name.startswith("optim."):
                continue
            m, v = (after[f"optim.{moment}.{name}"].astype(float) for moment in "mv")
            t = 4 - 2
            decayed = weights * (1 - 0.01 * 0.1 * (weights.ndim > 1))
            expected = decayed - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
            np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)

    def test_skipping_leaves_running_statistics_alone(self):
        changes = merged(WILD, {"model": {"norm": "batchnorm", "norm_placement": "pre", "init": {"std": 100}},
                                "train": {"steps": 300, "on_nonfinite": "skip"}})
        run, result = self.diverge("run", changes=changes)
        self.assertIn("skipped", result.stderr)
        running = {name: tensor for name, tensor in run.tensors("checkpoint.safetensors").items()
                   if re.search(r"^blocks.*running|^final.*running", name)}
        self.assertEqual(len(running), 10)  # of two norms in each of two blocks, and the final one
        for name, tensor in running.items():
            self.assertTrue(np.isfinite(tensor).all(), name)

    def test_a_probe_writes_its_rows_and_says_where(self):
        config = self.config({"model": {"n_layer": 12, "norm": "none", "init": {"std": 100}}})
        result = self.normscope("probe", config, "--seeds", "2", "--out", "probe", code=3)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 2)
        for seed, line in zip((1, 2), lines, strict=True):
            site = re.fullmatch(rf"\[probe\] seed {seed}, batch 1: block (\d+) (\w+) is not finite; the rows are in "
                                rf"probe/seed-{seed}/layers\.csv; try .*", line)
            self.assertIsNotNone(site, line)
            run = Run(self.path("probe", f"seed-{seed}"))
            self.assertEqual({run.summary[key] for key in ("final_train_loss", "grad_first_last", "growth")}, {None})
            rows = run.rows("layers.csv")
            self.assertEqual(len(rows), 12 * len(SITES) + 3)
            first = next(row for row in rows if int(row["nonfinite"]) > 0)
            self.assertEqual((first["layer"], first["site"]), site.groups())
        self.assertNotIn("-nan", result.stdout)


if __name__ == "__main__":
    unittest.main()
