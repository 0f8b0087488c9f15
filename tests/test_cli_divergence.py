#!/usr/bin/python3
"""A run that leaves the numbers: exit 3, the first tensor that was not finite, nothing saved of the step that broke."""

import math
import re
import unittest

import numpy as np
from cli import SITES, CliTest, Run, merged

# A rate at which the weights overflow within a few steps, and no norm to hold them.
WILD = {"model": {"norm_placement": "none"},
        "train": {"steps": 60, "optimizer": "sgd", "lr": 100, "schedule": "constant", "grad_clip": 0, "weight_decay": 0,
                  "momentum": 0.9},
        "checkpoint": {"every": 1}}


class Divergence(CliTest):
    def diverge(self, out, *options, changes=None):
        config = self.config(changes or WILD, name="wild.json")
        return Run(self.path(out)), self.normscope("train", config, "--out", out, *options, code=3)

    def test_it_ends_with_exit_3_and_says_where(self):
        run, result = self.diverge("run")
        summary = run.summary
        first = summary["first_nonfinite"]
        self.assertEqual(summary["status"], "diverged")
        self.assertEqual(summary["steps"], first["step"] - 1)
        self.assertIsNone(summary["final_val_loss"])
        self.assertEqual({"step", "layer"} & set(first), {"step", "layer"})
        self.assertEqual(("site" in first) + ("param" in first), 1)
        self.assertTrue(first.get("site") in ["loss", "final", "logits", *SITES] or first["param"], first)
        self.assertTrue(0 <= first["layer"] <= 3)
        self.assertIn(f"diverged at step {first['step']}", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)

    def test_the_broken_step_is_logged_but_never_saved(self):
        run, _ = self.diverge("run")
        broken = run.summary["first_nonfinite"]["step"]
        last = run.rows("metrics.csv")[-1]
        self.assertEqual(int(last["step"]), broken)
        self.assertTrue({"nan", "inf", "-inf"} & set(last.values()), last)
        self.assertEqual(int(run.metadata("checkpoint.safetensors")["step"]), broken - 1)
        self.assertNotIn("model.safetensors", run.contents())

    def test_layers_csv_shows_the_first_bad_site(self):
        run, _ = self.diverge("run")
        first = run.summary["first_nonfinite"]
        rows = [row for row in run.rows("layers.csv") if int(row["step"]) == first["step"]]
        self.assertEqual(len(rows), 17)
        if "site" in first:
            row = next(r for r in rows if (int(r["layer"]), r["site"]) == (first["layer"], first["site"]))
            self.assertGreater(int(row["grad_nonfinite" if first["kind"] == "gradient" else "nonfinite"]), 0)

    def test_heads_of_logits_that_are_no_numbers_have_no_largest(self):
        run, _ = self.diverge("run", changes=merged(WILD, {"log": {"layers_every": 1}}))
        rows = run.rows("heads.csv")
        lost = [row["max_logit"] for row in rows if row["entropy"] == "nan"]
        self.assertTrue(lost, rows[-1])
        self.assertEqual(set(lost), {"nan"})

    def test_it_is_found_exactly_with_logging_off(self):
        logged, _ = self.diverge("logged")
        silent, _ = self.diverge("silent", "--set", "log.layers_every=0", "--set", "log.every=1000")
        self.assertEqual(logged.summary["first_nonfinite"], silent.summary["first_nonfinite"])
        self.assertEqual(logged.summary["trajectory_hash"], silent.summary["trajectory_hash"])

    def test_quiet_does_not_silence_it(self):
        _, result = self.diverge("run", "--quiet")
        self.assertEqual(result.stdout, "")
        self.assertIn("diverged", result.stderr)

    def test_skipping_goes_on_until_too_many_in_a_row(self):
        run, result = self.diverge("run", "--set", "train.on_nonfinite=skip", "--set", "train.steps=1000")
        self.assertIn("skipped", result.stderr)
        self.assertEqual(run.summary["status"], "diverged")
        told = [int(step) for step in re.findall(r"(?m)^step (\d+): .* the update is skipped$", result.stderr)]
        self.assertEqual(run.summary["skipped"], len(told))
        broken = run.summary["first_nonfinite"]["step"]
        self.assertEqual(told[-19:], list(range(broken - 19, broken)), "the 20th in a row is the end")
        self.assertNotIn(broken - 20, told)
        # The weights are those of the last update: no skipped one left a trace.
        self.assertEqual(int(run.metadata("checkpoint.safetensors")["step"]), broken - 1)
        shorter = self.config(WILD | {"checkpoint": {"every": 0}}, name="shorter.json")
        done = self.call("train", shorter, "--out", "last", "--set", "train.on_nonfinite=skip",
                         "--set", f"train.steps={broken - 20}")
        self.assertEqual((done.returncode, done.stderr.count("the update is skipped")), (0, len(told) - 19), done.stderr)
        last = Run(self.path("last"))
        for name, tensor in last.tensors().items():
            self.assertTrue(np.isfinite(tensor).all(), name)
            self.assertEqual(run.tensors("checkpoint.safetensors")[name].tobytes(), tensor.tobytes(), name)

    def test_a_skipped_step_has_its_rows(self):
        run, _ = self.diverge("run", "--set", "train.on_nonfinite=skip", "--set", "log.layers_every=1")
        broken = run.summary["first_nonfinite"]["step"]
        for name, count in (("layers.csv", 17), ("params.csv", 14)):
            rows = run.rows(name)
            for step in range(1, broken):
                self.assertEqual(sum(int(row["step"]) == step for row in rows), count, (name, step))
        skipped = [row for row in run.rows("params.csv") if int(row["step"]) == broken - 1]
        self.assertEqual({row["update_rms"] for row in skipped}, {"0"})
        self.assertTrue(any(not math.isfinite(float(row["grad_norm"])) for row in skipped))
        self.assertTrue(any(int(row["nonfinite"]) + int(row["grad_nonfinite"]) > 0 for row in run.rows("layers.csv")
                            if int(row["step"]) == broken - 1))

    def test_skipping_leaves_running_statistics_alone(self):
        changes = merged(WILD, {"model": {"norm": "batchnorm", "norm_placement": "pre", "init": {"std": 100}},
                                "train": {"steps": 300, "on_nonfinite": "skip"}})
        run, result = self.diverge("run", changes=changes)
        self.assertIn("skipped", result.stderr)
        running = {name: tensor for name, tensor in run.tensors("checkpoint.safetensors").items() if re.search(r"^blocks.*running|^final.*running", name)}
        self.assertEqual(len(running), 10)  # of two norms in each of two blocks, and the final one
        for name, tensor in running.items():
            self.assertTrue(np.isfinite(tensor).all(), name)

    def test_resumed_it_diverges_alike(self):
        """The same rows and the same message, although the steps before the checkpoint are not computed again."""
        changes = merged(WILD, {"train": {"lr": 20, "warmup_steps": 60, "momentum": 0}, "checkpoint": {"every": 7}})
        run, told = self.diverge("run", changes=changes)
        before = {name: run.bytes(name) for name in ("layers.csv", "params.csv")}
        rows, summary = run.without_timing(), run.summary
        _, again = self.diverge("run", "--resume", changes=changes)
        self.assertEqual({name: run.bytes(name) for name in before}, before)
        self.assertEqual(run.without_timing(), rows)
        self.assertEqual(again.stderr, told.stderr)
        for key in ("first_nonfinite", "trajectory_hash", "steps", "status"):
            self.assertEqual(run.summary[key], summary[key], key)

    def test_the_last_good_checkpoint_is_kept(self):
        changes = merged(WILD, {"train": {"lr": 20, "warmup_steps": 60, "momentum": 0}, "checkpoint": {"every": 2}})
        run, _ = self.diverge("run", changes=changes)
        saved = int(run.metadata("checkpoint.safetensors")["step"])
        self.assertIn(run.summary["steps"] - saved, (0, 1))
        self.assert_valid_file(run.file("checkpoint.safetensors"))
        for tensor, values in run.tensors("checkpoint.safetensors").items():
            self.assertTrue(np.isfinite(values).all(), tensor)

    def test_a_probe_writes_its_rows_and_says_where(self):
        config = self.config({"model": {"n_layer": 12, "norm": "none", "init": {"std": 100}}})
        result = self.normscope("probe", config, "--seeds", "2", "--out", "probe", code=3)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 2)
        for seed, line in zip((1, 2), lines, strict=True):
            site = re.fullmatch(rf"\[probe\] seed {seed}, batch 1: block (\d+) (\w+) is not finite; the rows are in "
                                rf"probe/seed-{seed}/layers\.csv; try .*", line)
            self.assertIsNotNone(site, line)
            rows = Run(self.path("probe", f"seed-{seed}")).rows("layers.csv")
            self.assertEqual(len(rows), 12 * len(SITES) + 3)
            first = next(row for row in rows if int(row["nonfinite"]) > 0)
            self.assertEqual((first["layer"], first["site"]), site.groups())
        self.assertNotIn("-nan", result.stdout)

    def test_adamw_at_a_rate_of_100_stops_or_stays_finite(self):
        config = self.config({"train": {"lr": 100, "grad_clip": 0, "weight_decay": 100, "steps": 60}})
        result = self.call("train", config, "--out", "run")
        summary = Run(self.path("run")).summary
        self.assertEqual((result.returncode, summary["status"]), (3, "diverged"), result.stderr)


if __name__ == "__main__":
    unittest.main()
