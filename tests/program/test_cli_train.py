#!/usr/bin/python3
"""A run folder holds what it promises: files, columns, rows, fields, tensors, numbers that agree with each other."""

import json
import math
import re
import struct
import unittest
from pathlib import Path

from cli import LOGS, ROOT, TEXT, VOCABULARY, CliTest, Run, fnv1a, merged, sites_of

# Runs of which only learning rates or batches count: test_check_teeth.py repeats them, compiled without optimisation.
SMALL = {"model": {"n_layer": 1, "d_model": 4, "context": 4}, "train": {"batch_size": 1}, "eval": {"batches": 1}}

FILES = {"config.json", "metrics.csv", "layers.csv", "params.csv", "heads.csv", "summary.json",
         "checkpoint.safetensors", "model.safetensors", "best.safetensors", "sample.txt"}
SUMMARY = {"status", "steps", "params", "vocab", "corpus_hash", "final_train_loss", "final_val_loss", "best_val_loss",
           "best_step", "grad_first_last", "growth", "branch_share", "unigram", "bigram", "trigram", "4-gram",
           "seconds", "tokens_per_s", "peak_rss_mb", "ranks", "threads", "precision", "gemm", "blas", "cpu", "isa",
           "compiler", "libc", "version", "commit", "trajectory_hash", "digits", "logged_since"}


class TheFolder(CliTest):
    def test_holds_every_file_and_only_those(self):
        self.assertEqual(set(self.train("run").contents()), FILES)

    def test_logs_have_the_columns_that_their_page_defines(self):
        run = self.train("run")
        page = Path(ROOT, "src/logs/README.md").read_text(encoding="utf-8")
        for name in LOGS:
            section = re.search(rf"^## {name}(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)[1]
            first_cells = "".join(re.findall(r"^\|[^|]*", section, re.MULTILINE))
            columns = [name for name in run.columns(name) if name not in {"step", "layer", "site", "head", "param"}]
            self.assertEqual(columns, re.findall(r"`(\w+)`", first_cells))

    def test_summary_has_every_field_and_no_other(self):
        summary = self.train("run").summary
        self.assertEqual(set(summary) - {"skipped"}, SUMMARY)
        self.assertEqual((summary["status"], summary["steps"], summary["vocab"]), ("done", 25, VOCABULARY))
        self.assertEqual((summary["threads"], summary["precision"]), (1, "fp32"))
        self.assertRegex(summary["trajectory_hash"], "^[0-9a-f]{16}$")

    def test_default_folder_is_runs_name(self):
        self.normscope("train", self.config({"train": {"steps": 1}, "name": "pre #1"}))
        self.assertEqual(Run(self.path("runs", "pre #1")).summary["status"], "done")

    def test_safetensors_are_sound_and_say_what_they_are(self):
        run = self.train("run")
        vocabulary = sorted(ord(c) for c in set(TEXT))
        for name, step in (("checkpoint", 25), ("model", 25), ("best", None)):
            self.assert_valid_file(run.file(f"{name}.safetensors"))
            metadata = run.metadata(f"{name}.safetensors")
            self.assertEqual(metadata["format"], "pt")
            self.assertEqual(json.loads(metadata["vocab"]), vocabulary)
            self.assertEqual(json.loads(metadata["config"]), run.json("config.json"))
            self.assertIn("normscope", metadata)
            self.assertEqual(int(metadata["step"]), run.summary["best_step"] if step is None else step)

    def test_without_validation_its_fields_are_empty(self):
        run = self.train("run", {"data": {"val_fraction": 0}})
        self.assertEqual({row["val_loss"] for row in run.rows("metrics.csv")}, {""})
        for key in ("final_val_loss", "best_val_loss", "best_step"):
            self.assertIsNone(run.summary[key])
        self.assertEqual(set(run.contents()), FILES - {"best.safetensors"})

    def test_a_run_of_one_step_and_one_block_is_whole(self):
        run = self.train("run", {"train": {"steps": 1}, "model": {"n_layer": 1}, "checkpoint": {"every": 0}})
        self.assertEqual(set(run.contents()), FILES)
        self.assertEqual([row["step"] for row in run.rows("metrics.csv")], ["1"])
        self.assertEqual(run.summary["grad_first_last"], 1)


class Metrics(CliTest):
    def test_rows_come_at_the_first_every_multiple_and_the_last(self):
        changes = {"log": {"every": 6, "layers_every": 4, "layers_first": 0}, "eval": {"every": 0}}
        run = self.train("run", changes)
        self.assertEqual([int(r["step"]) for r in run.rows("metrics.csv")], [1, 6, 12, 18, 24, 25])
        for name, a_step in (("layers.csv", len(sites_of(2))), ("params.csv", len(run.tensors()) + 2 * 2)):
            steps = [int(r["step"]) for r in run.rows(name)]
            self.assertEqual(steps, [s for s in (1, 4, 8, 12, 16, 20, 24, 25) for _ in range(a_step)])
        changes["log"]["layers_first"] = 3
        run = self.train("first", changes)
        for name, expected in (("layers.csv", [1, 2, 3, 4, 8, 12, 16, 20, 24, 25]),
                               ("metrics.csv", [1, 2, 3, 6, 12, 18, 24, 25])):
            self.assertEqual(sorted({int(r["step"]) for r in run.rows(name)}), expected)

    def test_final_val_loss_is_the_last_rows_and_what_eval_says(self):
        run = self.train("run", {"data": {"val_fraction": 0.3}, "train": {"batch_size": 3, "branch_warmup_steps": 20}})
        final = run.summary["final_val_loss"]
        self.assertEqual(float(run.rows("metrics.csv")[-1]["val_loss"]), final)
        for what in ("run", "run/model.safetensors", "run/checkpoint.safetensors"):
            line = re.search(r"^model +(\S+) +(\S+)$", self.normscope("eval", what).stdout, re.MULTILINE)
            self.assertEqual(line.groups(), (f"{final:.6f}", f"{final / math.log(2):.6f}"))

    def test_the_first_step_has_its_branch_factors(self):
        for warmup_steps in (0, 4):
            changes = {"train": {"steps": 1, "branch_warmup_steps": warmup_steps}, "log": {"every": 1}}
            run = self.train(f"run-{warmup_steps}", changes)
            self.normscope("probe", self.config(changes), "--out", f"probe-{warmup_steps}")  # the factors of step 1
            probed = Run(self.path(f"probe-{warmup_steps}/seed-1")).summary
            self.assertEqual(run.summary["final_train_loss"], probed["final_train_loss"])

    def test_learning_rate_follows_its_formula(self):
        S, w, lr, low = 25, 7, 0.004, 0.0005
        decay = {"wsd": lambda p: lr + (low - lr) * max(0, p - 0.8) / 0.2, "constant": lambda p: lr,
                 "linear": lambda p: lr + (low - lr) * p, "wsd-throughout": lambda p: lr + (low - lr) * p,
                 "cosine": lambda p: low + (lr - low) * (1 + math.cos(math.pi * p)) / 2}
        for name, after in decay.items():
            schedule, _, throughout = name.partition("-")
            keys = {"cooldown": 1} if throughout else {}
            run = self.train(name, merged(SMALL, {"log": {"every": 1}, "train": {
                "schedule": schedule, "warmup_steps": w, "lr": lr, "min_lr": low, **keys}}))
            for s, row in enumerate(run.rows("metrics.csv"), start=1):
                expected = lr * s / w if s <= w else after((s - w) / (S - w))
                self.assertAlmostEqual(float(row["lr"]), expected, delta=1e-15, msg=f"{name}, step {s}")
            changes = {"train": {"schedule": schedule, "steps": 1, "lr": lr, **keys}}
            single = self.train("single-" + name, merged(SMALL, changes))
            self.assertEqual(float(single.rows("metrics.csv")[0]["lr"]), lr)

    def test_tokens_their_rate_seconds_clipping_and_the_hash_of_every_loss_and_norm(self):
        run, tokens = self.train("run", {"train": {"grad_accum": 3, "grad_clip": 0.6}, "log": {"every": 1}}), 3 * 4 * 16
        seconds, bits, rows = 0, b"", run.rows("metrics.csv")
        for row in rows:
            seconds += float(row["step_ms"]) / 1e3
            bits += struct.pack("<ff", float(row["train_loss"]), float(row["grad_norm"]))
            self.assertEqual(int(row["tokens"]), int(row["step"]) * tokens)
            self.assertAlmostEqual(float(row["tokens_per_s"]) * float(row["step_ms"]) / 1e3 / tokens, 1, places=9)
            self.assertAlmostEqual(float(row["seconds"]), seconds, delta=1e-9)
            self.assertAlmostEqual(float(row["clip_factor"]), min(1, 0.6 / float(row["grad_norm"])), delta=1e-6)
        self.assertEqual({row["clip_factor"] == "1" for row in rows}, {True, False}, "the limit bites now and then")
        self.assertEqual(run.summary["trajectory_hash"], f"{fnv1a(bits):016x}")
        # The norm of a batch is not known where gradients of several are added up.
        self.assertEqual({row["grad_norm_batch"] for row in run.rows("params.csv")}, {""})
        self.assertNotIn("", {row["update_rms"] for row in run.rows("params.csv")})

    def test_a_fixed_batch_is_that_of_step_1(self):
        """Its two micro-batches differ, and dropout draws a new mask for each step."""
        changes = merged(SMALL, {"train": {"lr": 0, "grad_accum": 2}, "log": {"every": 1}})
        losses = []
        for name, options in (("fixed", ["train.fixed_batch=true"]), ("drawn", []),
                              ("masks", ["train.fixed_batch=true", "model.dropout=0.2"])):
            run = self.train(name, changes, *(f"--set={option}" for option in options))
            losses.append([row["train_loss"] for row in run.rows("metrics.csv")])
        fixed, drawn, with_masks = losses
        self.assertEqual(set(fixed), {drawn[0]})
        self.assertGreater(len(set(drawn)), 20)
        self.assertGreater(len(set(with_masks)), 20)


class Layers(CliTest):
    def test_the_largest_loss_and_gradient_norm_since_the_row_before(self):
        changes = {"train": {"lr": 0.1}, "eval": {"every": 9}}
        fine, coarse = (self.train(f"every-{every}", {**changes, "log": {"every": every}}) for every in (1, 7))
        first, steps = 0, fine.rows("metrics.csv")
        for row in coarse.rows("metrics.csv"):
            since = steps[first:int(row["step"])]
            for column in ("train_loss", "grad_norm"):
                self.assertEqual(float(row[column + "_max"]), max(float(step[column]) for step in since), row["step"])
            first = int(row["step"])

    def test_the_norms_of_both_logs_agree(self):
        run = self.train("run", {"log": {"every": 1, "layers_every": 1}})
        summary, metrics = run.summary, run.rows("metrics.csv")
        squares = {}
        for row in run.rows("params.csv"):
            squares.setdefault(int(row["step"]), []).append((int(row["layer"]), float(row["grad_norm"]) ** 2))
            self.assertEqual(row["grad_norm_batch"], row["grad_norm"])
            norm = float(row["grad_rms"]) * math.sqrt(int(row["numel"]))
            self.assertAlmostEqual(norm, float(row["grad_norm"]), delta=1e-12)
        for row in metrics:
            total = math.sqrt(sum(square for _, square in squares[int(row["step"])]))
            self.assertAlmostEqual(float(row["grad_norm"]), total, delta=1e-6)
        block = {layer: math.sqrt(sum(s for of, s in squares[25] if of == layer)) for layer in (1, 2)}
        self.assertAlmostEqual(summary["grad_first_last"], block[1] / block[2], places=12)
        stream = {row["layer"]: float(row["rms"]) for row in run.rows("layers.csv")
                  if (row["step"], row["site"]) == ("25", "stream")}
        self.assertEqual(summary["growth"], stream["2"] / stream["1"])

    def test_the_summary_says_how_large_branches_were_at_the_start_and_what_counting_achieves(self):
        run = self.train("run")
        shares = [float(row["branch_share"]) for row in run.rows("layers.csv") if row["step"] == "1"
                  and row["branch_share"]]
        self.assertEqual(len(shares), 4)
        self.assertAlmostEqual(run.summary["branch_share"], sum(shares) / 4, places=14)
        output = self.normscope("eval", "run").stdout
        for name in ("unigram", "bigram", "trigram", "4-gram"):
            self.assertIn(f"\n{name.ljust(9)} {run.summary[name]:.6f}", output)
        unlogged = self.train("unlogged", {"log": {"layers_every": 0}, "data": {"val_fraction": 0}})
        self.assertEqual(unlogged.summary["branch_share"] > 0, True)
        self.assertIsNone(unlogged.summary["unigram"])

    def test_an_evaluation_that_is_not_finite_ends_a_run_whose_training_is_finite(self):
        """batchnorm's running statistics are far off at first, and 40 such norms overflow."""
        run = self.train("run", {
            "model": {"n_layer": 40, "norm": "batchnorm", "norm_placement": "post", "activation": "relu",
                      "init": {"std": 1, "residual_scaling": False}},
            "train": {"steps": 12, "lr": 1e-4}, "eval": {"every": 1}, "log": {"every": 1, "layers_every": 0}}, code=3)
        last = run.rows("metrics.csv")[-1]
        self.assertEqual((last["step"], last["val_loss"], math.isfinite(float(last["train_loss"]))), ("1", "nan", True))
        self.assertEqual(run.summary["first_nonfinite"], {"step": 1, "layer": 41, "site": "loss", "kind": "value"})
        self.assertNotIn("best.safetensors", run.contents())

    def test_the_best_evaluation_is_the_best_on_the_same_windows(self):
        """The last step has the windows of the others too: its loss there is in the row of a longer run."""
        for rate in (1e-3, 0.1):  # the second overshoots: the best is not the last one
            changes = {"train": {"schedule": "constant", "lr": rate}, "eval": {"every": 5, "batches": 1},
                       "data": {"val_fraction": 0.3}}
            run = self.train("run", changes, "--overwrite")
            longer = self.train("longer", changes, "--overwrite", "--set", "train.steps=30")
            losses = {int(row["step"]): float(row["val_loss"]) for row in longer.rows("metrics.csv") if row["val_loss"]}
            del losses[30]
            best = min(losses, key=losses.get)
            self.assertEqual((run.summary["best_step"], run.summary["best_val_loss"]), (best, losses[best]))
            self.assertEqual(run.metadata("best.safetensors")["step"], str(best))
            self.assertNotEqual(run.summary["final_val_loss"], losses[25])


if __name__ == "__main__":
    unittest.main()
