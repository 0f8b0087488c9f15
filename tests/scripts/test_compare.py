#!/usr/bin/python3
"""scripts/compare.py: groups and labels, figures, differences seed by seed, and conclusions that can and
cannot be drawn."""

import csv
import io
import itertools
import json
import math
import os
import re
import shutil
import unittest

import numpy as np

from cli import ROOT, TEXT, VOCABULARY, CliTest, Run, merged, read_csv, run_script, write_run

from lib.compare import comparison, configs, groups, pairs
from lib.compare.ranges import tables_in
from lib.figures import layout
from lib.logs import runs

HOSTILE = "a\x1b[31m\nb\x07\u202ec,\"d"
SUMMARY = {"status": "done", "steps": 2, "params": 7760, "vocab": VOCABULARY, "final_train_loss": 4.25,
           "grad_first_last": 0.8,
           "growth": 2.5, "tokens_per_s": 1e5, "branch_share": 0.5, "corpus_hash": "0123456789abcdef"}
COLUMNS = ["run", "name", "folder", "seeds", "placement", "norm", "n_layer", "params", "status"] + [
    f"{key}{part}" for key, _, _ in comparison.METRICS for part in ("", "_standard_error")]


class Arithmetic(unittest.TestCase):
    def test_students_t(self):
        """5% lie beyond the quantiles of scipy.stats.t.ppf(0.975, n)."""
        for degrees, quantile in ((1, 12.706204736174694), (2, 4.302652729749462), (3, 3.1824463052837078),
                                  (10, 2.228138851986274), (29, 2.045229642132703), (999, 1.9623414611334493)):
            self.assertAlmostEqual(pairs.two_sided_p(quantile, degrees), 0.05, delta=5e-13)

    def test_verdicts(self):
        clear, maybe = "a clear difference", "perhaps a difference; too few seeds to tell"
        for differences, verdict in (
                ([0, 0, 0], "the same losses"), ([0.30, 0.31], "too few seeds to tell from chance"),
                ([0.3, -0.2], "cannot be told apart"),
                ([-0.30, -0.31, -0.32], clear), ([0.5] * 3, clear), ([0.3, 0.1, 0.24], maybe),  # t 3.6, needs 4.3
                ([0.2, 0.2, 0.2, 0.2, -0.02], clear)):  # t 3.5, needs 2.8
            self.assertEqual(pairs.verdict_on(differences), verdict, differences)
        for seeds, t, verdict in ((100, 1.99, clear), (60, 2.07, clear), (60, 1.99, maybe),
                                  (100, 1.95, "cannot be told apart")):
            e = math.sqrt(seeds - 1) / t  # pairs 1 - e, 1 + e have mean 1 and standard error e/sqrt(n - 1)
            self.assertEqual(pairs.verdict_on([1 - e, 1 + e] * (seeds // 2)), verdict, (seeds, t))

    def test_figures_in_words(self):
        for values, kind, text in (([], "loss", "-"), ([2.51234], "loss", "2.5123"),
                                   ([2.5, 2.6], "loss", "2.550 ± 0.050"),
                                   ([7.0123e-17], "ratio", "7.01e-17"), ([1009349.8], "loss", "1.01e+06"),
                                   ([1e6, 2e6], "loss", "1.5e+06 ± 5e+05"), ([2.0, 2.0], "ratio", "2.0000 ± 0"),
                                   ([3.09] * 3, "loss", "3.0900 ± 0"), ([3.09, 3.09 + 1e-7], "loss", "3.0900 ± 5e-08"),
                                   ([52100, 52300], "speed", "52.2k"), ([1.0, math.inf], "ratio", "inf")):
            self.assertEqual(pairs.metric_text(values, kind), text)
        self.assertEqual(pairs.with_error(-0.01442, 0.00291), "-0.0144 ± 0.0029")


class CompareTest(CliTest):
    def make(self, folder, loss=2.5, changes=None, **summary):
        """A run folder of a sweep with the resolved config of these changes, whose summary has this final_val_loss and
        what else is given."""
        sweep, _, name = folder.rpartition("/")
        write_run(self.path(folder), {**self.resolved(changes), "name": name},
                  {**SUMMARY, "final_val_loss": loss, "best_val_loss": loss, **summary})
        self.write(f"{sweep}/.lock", "")

    def resolved(self, changes):
        name = self.config(merged({"train": {"steps": 2}}, changes or {}))
        return json.loads(self.normscope("config", name).stdout)

    def make_seeds(self, name, losses, changes=None, **summary):
        """Runs name-1, name-2, …: a seed for each loss; or seeds and losses from a dict."""
        for seed, loss in (losses if isinstance(losses, dict) else dict(enumerate(losses, start=1))).items():
            self.make(f"runs/{name}-{seed}", loss, merged(changes or {}, {"train": {"seed": seed}}), **summary)

    def clear(self):
        shutil.rmtree(self.path("runs"), ignore_errors=True)

    def comparison(self, *folders, **options):
        return comparison.comparison(runs.find_runs([self.path(folder) for folder in folders or ["runs"]],
                                                    "config.json"), **options)

    def labels(self, *folders):
        return [entry["label"] for entry in self.comparison(*folders)["runs"]]

    def remarks(self, kind, *folders, **options):
        return [remark["text"] for remark in self.comparison(*folders, **options)["remarks"] if remark["kind"] == kind]

    def compare(self, *arguments, code=0):
        """The script's output, or its message where it fails."""
        done = self.script("compare.py", *arguments, code=code)
        self.assert_no_controls(done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr


class GroupsAndLabels(CompareTest):
    def test_labels_tell_the_keys_that_differ(self):
        five = {"train": {"lr": 0.1, "optimizer": "sgd"}, "model": {"norm": "rmsnorm", "n_layer": 3, "d_model": 32}}
        for number, (changes, labels) in enumerate((
                ([{}, {"model": {"norm_placement": "post"}}], ["pre", "post"]),
                ([{}, {"model": {"norm": "rmsnorm", "n_layer": 4}}], ["layernorm · L 2", "rmsnorm · L 4"]),
                ([{}, {"model": {"norm_placement": "rezero"}}], ["pre", "rezero"]),
                ([{}, {"model": {"d_model": 32}}], ["C 16", "C 32"]),  # d_ff follows
                ([{}, {"model": {"d_ff": 32}}], ["d_ff 64", "d_ff 32"]),  # it was chosen
                ([{"model": {"norm_placement": ["pre", "post"]}}, {"model": {"norm_placement": ["post", "post"]}}],
                 ["pre, post", "post ×2"]),
                ([{}, {"model": {"norm": "none"}}], ["layernorm", "no norm"]),
                ([{}, {"train": {"lr": 0.01, "warmup_steps": 1}}], ["lr 0.001 · warm-up 0", "lr 0.01 · warm-up 1"]),
                ([{}, five], ["layernorm · adamw · L 2 · C 16 · lr 0.001", "rmsnorm · sgd · L 3 · C 32 · lr 0.1"]),
                ([{}, {"train": {"momentum": 0.9, "threads": 3, "seed": 2}, "log": {"every": 1}, "name": "z"}],
                 ["pre · layernorm"]),
                ([{}], ["pre · layernorm"]))):
            with self.subTest(labels=labels):
                for i, change in enumerate(changes):
                    self.make(f"labels{number}/{i}", changes=change)
                self.assertEqual(self.labels(f"labels{number}"), labels)

    def test_runs_of_no_sweep_have_their_own_names(self):
        """Keys stand beside them where they tell all runs apart; where they do not, no key is named as the cause."""
        post, decay = {"model": {"norm_placement": "post"}}, {"train": {"weight_decay": 100.0}}
        broken = [{}, decay, post, {"train": {"lr": 0.3}}, {"model": {"norm": "rmsnorm"}}, {"model": {"n_layer": 3}}]
        seeds = [{"train": {"seed": seed}} for seed in (1, 2)]
        for number, (changes_by_folder, labels) in enumerate((
                ({"pre": {}, "post": post}, ["pre", "post"]),
                ({"a": {}, "b": decay}, ["a · weight_decay 0.1", "b · weight_decay 100"]),
                (dict(zip("abcdef", broken)), ["a", "b", "d", "e", "f", "c"]),
                ({"a": {}, "b": {}, "c": decay}, ["a", "b", "c"]),
                ({"s1": {"name": "anna"}, "s2": {**decay, "name": "bob"}},
                 ["anna · weight_decay 0.1", "bob · weight_decay 100"]),
                ({"x/pre-1": seeds[0], "x/pre-2": seeds[1], "x/post": post}, ["pre", "post"]),
                ({"anna/1": seeds[0], "anna/2": seeds[1], "bob/1": decay, "bob/2": merged(decay, seeds[1])},
                 ["anna · weight_decay 0.1", "bob · weight_decay 100"]))):
            for folder, changes in changes_by_folder.items():
                write_run(self.path(f"own{number}/{folder}"), self.resolved(changes), SUMMARY)
            with self.subTest(labels=labels):
                self.assertEqual(self.labels(f"own{number}"), labels)
        rows = list(csv.DictReader(io.StringIO(self.compare("own4", "--csv"))))
        self.assertEqual([(row["name"], row["folder"]) for row in rows], [("anna", "own4/s1"), ("bob", "own4/s2")])
        styled = layout.styled(groups.group_by_config(runs.find_runs([self.path("own2")], "")))
        self.assertEqual(len({group.color for group in styled}), len(broken))

    def test_one_choice_and_what_follows_from_it(self):
        for changes, chosen, followed in (
                ({"model": {"norm_placement": "post"}}, ["model.norm_placement"], ["model.final_norm"]),
                ({"model": {"norm_placement": "rezero"}}, ["model.norm_placement"],
                 ["model.norm", "model.norm_bias", "model.final_norm"]),
                ({"model": {"norm": "rmsnorm"}}, ["model.norm"], ["model.norm_bias"]),
                ({"model": {"init": {"scheme": "xavier_normal"}, "tie_embeddings": False}},
                 ["model.tie_embeddings", "model.init.scheme"],
                 ["model.init.embed_std", "model.init.residual_scaling"]),
                ({"train": {"optimizer": "sgd", "momentum": 0.9}}, ["train.optimizer"], ["train.momentum"]),
                ({"train": {"lr": 0.5}}, ["train.lr"], ["train.min_lr"]),
                ({"train": {"lr": 0.5, "min_lr": 0.3}}, ["train.lr", "train.min_lr"], []),
                ({"model": {"d_model": 32}}, ["model.d_model"], ["model.d_ff"]),
                ({"model": {"d_ff": 24}}, ["model.d_ff"], []),
                ({"model": {"bias": True}}, ["model.bias"], ["model.ffn_bias"]),
                ({"model": {"ffn_bias": True}}, ["model.ffn_bias"], []),
                ({"model": {"final_norm": False}}, ["model.final_norm"], []),
                ({"train": {"schedule": "constant"}}, ["train.schedule"], [])):
            self.clear()
            self.make("runs/a")
            self.make("runs/b", changes=changes)
            one, other = configs.configs_of(runs.find_runs([self.path("runs")], ""))
            difference = other.minus(one)
            self.assertEqual(difference.choices, chosen)
            self.assertEqual([change.key for change in difference.changes if not change.cause], followed)
            self.assertEqual("2 choices at once: which is the cause cannot be told" in self.remarks("differs")[0],
                             len(chosen) == 2)

    def test_a_second_run_of_a_seed_has_its_folder_in_the_label(self):
        for folder in ("old", "new"):
            for seed in (1, 2):
                self.make(f"{folder}/{seed}", changes={"train": {"seed": seed}})
        self.assertEqual([entry["seeds"] for entry in self.comparison("old", "new")["runs"]], [[1, 2], [1, 2]])
        self.assertRegex(self.remarks("repeat", "old", "new")[0],
                         r"\S+new/1 · pre · layernorm: repeats \S+/old/1 · pre · layernorm: the configs are the same")

    def test_a_sweep_keeps_its_order_whatever_its_names_hold(self):
        """Line separators in a cell begin no row of the sweep's table."""
        names = ["path=c,\u2028b", "path=b\x85,a", "path=a\x0bb"]
        table = io.StringIO()
        csv.writer(table).writerows([["name", "train.lr"], *([name, name] for name in names)])
        for i, name in enumerate(names):
            self.make(f"runs/{name}", changes={"train": {"lr": 0.1 + i / 10}})
        self.write("runs/summary.csv", table.getvalue())
        self.assertEqual(self.labels(), ["lr 0.1", "lr 0.2", "lr 0.3"])

    def test_a_text_is_its_hash(self):
        def groups(first, second, path="text.txt"):
            self.clear()
            self.make_seeds("a", {1: 2.5, 2: 2.6}, corpus_hash=first)
            self.make_seeds("b", {3: 2.4, 4: 2.5}, {"data": {"path": path}}, corpus_hash=second)
            return len(self.comparison()["runs"]), self.remarks("not_comparable")

        self.write("other.txt", TEXT)
        self.assertEqual(groups("aa" * 8, "aa" * 8, "other.txt"), (1, []), "one text in two places")
        count, (remark,) = groups("aa" * 8, "bb" * 8)
        self.assertEqual(remark, "text #bbbbbb: losses are not comparable with those of text #aaaaaa: other data.path")
        self.assertEqual(count, 2, "two texts at one path")
        self.assertEqual(groups("aa" * 8, "bb" * 8, "other.txt")[0], 2)
        self.assertEqual(groups(None, None), (1, []), "of runs that have no hash the path is compared")

    def test_tokens_are_equal_up_to_less_than_a_step(self):
        for i, (steps, batch, is_equal) in enumerate(((300, 8, True), (343, 7, True), (1195, 2, False))):
            self.make_seeds(f"{i}", [2.5 + i, 2.6 + i], {"train": {"steps": steps, "batch_size": batch}})
            self.assertEqual([text.split(": other ")[1] for text in self.remarks("not_comparable")],
                             ["train.steps (at unequal tokens)"] * (not is_equal))
        self.assertIn(": train.batch_size; with that comes train.steps", self.remarks("differs")[0])


class PairsAndRemarks(CompareTest):
    def test_paired_figures_are_those_of_the_differences(self):
        a, b = [2.5, 2.9, 2.2, 2.6], [2.31, 2.73, 2.02, 2.38]
        self.make_seeds("a", a)
        self.make_seeds("b", b, {"train": {"lr": 0.01}})
        differences = np.subtract(b, a)
        (pair,) = self.comparison()["paired"]
        self.assertEqual((pair["group"], pair["partner"], pair["n"]), ("lr 0.01", "lr 0.001", 4))
        np.testing.assert_allclose((pair["mean"], pair["standard_error"]),
                                   (differences.mean(), np.std(differences, ddof=1) / 2), rtol=1e-12)
        # The groups' own spread (0.29) is far larger than the difference: only the pairs show it.
        shown = self.compare("runs")
        self.assertRegex(shown, r"(?m)^final val minus that of lr 0.001, seed by seed.*\n"
                         r"  lr 0.01  -0.190 ± 0.011  lower in 4 of 4 shared seeds: a clear difference$")
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")

    def test_only_shared_seeds_that_are_done_count(self):
        self.make_seeds("a", {2: 2.1, 6: 2.0})
        self.make_seeds("a", {1: 2.0, 5: 9.0}, status="interrupted")
        self.make_seeds("b", {2: 2.2, 6: 2.3, 1: 2.4, 7: 0.1}, {"train": {"lr": 0.01}})
        self.make_seeds("b", {8: None}, {"train": {"lr": 0.01}}, status="diverged")
        (pair,) = self.comparison("runs/a-2", "runs")["paired"]
        self.assertEqual((round(pair["mean"], 9), pair["n"]), (0.2, 2))
        self.assertIn("2 shared seeds that did not diverge", pair["text"])
        self.assertEqual(self.comparison("runs/a-2", "runs/b-2")["paired"], [])  # one seed is no pair
        self.assertEqual(self.remarks("one_seed", "runs/a-2", "runs/b-2")[0].split(":")[0], "lr 0.001, lr 0.01")

    def test_how_far_seeds_are_apart(self):
        self.make_seeds("a", [2.0, 2.1])
        self.assertEqual(self.remarks("noise"), [])  # of two seeds
        self.clear()
        self.make_seeds("a", [2.0, 2.1, 2.2])
        (text,) = self.remarks("noise")
        self.assertIn("the seed is 0.14 apart", text)  # a standard deviation of 0.1, times the root of 2
        self.make_seeds("b", [2.0, 2.2, 2.4], {"model": {"norm": "rmsnorm"}})
        self.make("runs/b-4", 9.0, {"model": {"norm": "rmsnorm"}, "train": {"seed": 4}}, status="interrupted")
        self.assertRegex(self.remarks("noise")[0], "the seed is 0.14 to 0.28 apart .* above 0.57$")

    def test_remarks_on_single_runs(self):
        level, absurd = {"unigram": 3.0, "bigram": 2.5}, math.log(VOCABULARY) + 0.1
        for kind, loss, summary, changes, is_remarked in (
                ("unigram", 3.05, level, {}, True), ("unigram", 3.1, level, {}, False), ("unigram", 3.0, {}, {}, False),
                ("unigram", 3.0, {**level, "bigram": 2.95}, {}, False),  # the order of characters tells nothing
                ("unigram", 3.0, {**level, "status": "interrupted"}, {}, False), ("exploded", absurd, {}, {}, True),
                ("exploded", absurd - 0.2, {}, {}, False), ("exploded", None, {"final_train_loss": 9.0}, {}, True),
                ("exploded", absurd, {"status": "diverged"}, {}, False),
                ("small_branch", 2.5, {"branch_share": 0.04}, {}, True),
                ("small_branch", 2.5, {"branch_share": 0.06}, {}, False),
                ("small_branch", 2.5, {"branch_share": None}, {}, False),
                *(("small_branch", 2.5, {"branch_share": 0.01}, {"norm_placement": name}, is_small)
                  for name, is_small in (
                    ("post", True), ("mix", True), ("pre_scaled", True), ("rezero", False), ("none", False),
                    ("deepnorm", False), ("sandwich", False))),
                ("small_branch", 2.5, {"branch_share": 0.01}, {"branch_scale": 0.5}, False),
                ("starved", 2.5, {"grad_first_last": 9e-4}, {}, True),
                ("starved", 2.5, {"grad_first_last": 2e-3}, {}, False),
                ("starved", 2.5, {"grad_first_last": 0, "status": "diverged"}, {}, False),
                ("leaks", 2.5, {}, {"norm": "instancenorm"}, True), ("leaks", 2.5, {}, {"norm": "rmsnorm"}, False),
                ("unfinished", 2.5, {"status": "interrupted", "steps": 1}, {}, True),
                ("unfinished", 2.5, {}, {}, False)):
            with self.subTest(kind=kind, loss=loss, summary=summary, changes=changes):
                self.clear()
                self.make("runs/a", loss, {"model": changes}, **summary)
                self.assertEqual(bool(self.remarks(kind)), is_remarked)
        self.clear()
        self.make_seeds("a", [3.0, 1.0, 3.0], unigram=3.0)
        self.assertTrue(self.remarks("unigram")[0].startswith(
            "pre · layernorm (2 of 3 seeds): the loss ends at the unigram level"))

    def test_other_numbers_of_weights(self):
        for changes, size, is_remarked in (({"model": {"norm": "rmsnorm"}}, 8160, True),
                                           ({"model": {"norm": "rmsnorm"}}, 8000, False),
                                           ({"model": {"n_layer": 3}}, 9000, False),
                                           ({"model": {"d_ff": 32}}, 5000, False)):
            self.clear()
            self.make("runs/a")
            self.make("runs/b", changes=changes, params=size)
            self.assertEqual(bool(self.remarks("weights")), is_remarked, changes)

    def test_a_best_rate_at_the_edge_of_those_tried(self):
        for losses, remark in (({0.001: 2.5, 0.003: 2.4, 0.01: 2.3}, "largest tried (0.01); a larger"),
                               ({0.001: 2.3, 0.003: 2.4}, "smallest tried (0.001); a smaller"),
                               ({0.001: 2.5, 0.003: 2.3, 0.01: 2.4}, None),
                               ({0.001: 2.5, 0.003: 2.3, 0.01: None}, None)):
            self.clear()
            for rate, loss in losses.items():
                seeds = [loss and loss + 0.01 * seed for seed in range(3)]
                self.make_seeds(f"{rate}", seeds, {"train": {"lr": rate}}, status="done" if loss else "diverged")
            remarks = self.remarks("rate_at_edge")
            self.assertEqual(len(remarks), remark is not None, losses)
            self.assertIn(remark or "", "".join(remarks))

    def test_two_seeds_are_too_few_for_a_star(self):
        for depth in (2, 3):
            for rate, loss in ((0.001, 2.5), (0.01, 2.8)):
                seeds = [loss, loss + 0.1, loss + (0.19 if rate == 0.001 else 0.2)]
                self.make_seeds(f"{depth}-{rate}", seeds[:depth], {"model": {"n_layer": depth}, "train": {"lr": rate}})
        self.assertEqual(self.remarks("two_seeds"),
                         ["L 2 · lr 0.01: two shared seeds are too few to call a difference clear (*); "
                                                     "train a third"])

    def test_a_mean_over_survivors_is_biased(self):
        self.make_seeds("a", [2.5, 2.6])
        self.make_seeds("a", {3: None, 4: None}, status="diverged", final_train_loss=1009349.8425, best_val_loss=9)
        self.assertRegex(self.remarks("diverged")[0],
                         r"^pre · layernorm \(2 of 4 seeds\): diverged at step 3; .*biased")
        self.assertIn("\n±: standard error of the mean over seeds, without those that diverged\n", self.compare("runs"))
        (entry,) = self.comparison()["runs"]
        self.assertEqual((entry["status"], entry["metrics"]["final_val_loss"]["n"]), ("2 diverged, 2 done", 2))
        self.assertAlmostEqual(entry["metrics"]["best_val_loss"]["mean"], 2.55)
        (entry,) = self.comparison("runs/a-3")["runs"]  # all diverged: their loss is shown
        self.assertEqual(entry["metrics"]["final_train_loss"]["text"], "1.01e+06")

    def test_a_divergence_and_what_grew_before_it(self):
        self.train("lost", {"model": {"norm": "none"}, "train": {"optimizer": "sgd", "lr": 20, "grad_clip": 0}}, code=3)
        run = Run(self.path("lost"))
        first = run.summary["first_nonfinite"]
        (text,) = self.remarks("diverged", "lost")
        self.assertIn(f"diverged at step {first['step']}; ", text)
        self.assertIn(f"block {first['layer']} {first['site']} became non-finite; activations had grown ", text)
        rows = [row for row in run.rows("layers.csv") if row["site"] == "stream"]
        grown = max(float(b["rms"]) / float(a["rms"]) for a in rows for b in rows if a["step"] == "1"
                    and a["layer"] == b["layer"] and math.isfinite(float(b["rms"])))
        growth = float(re.search(r"activations had grown (\S+) times since step 1 ", text)[1])
        self.assertGreaterEqual(growth * 1.05, grown)
        os.remove(run.file("layers.csv"))
        self.assertIn("; no layers are logged at a step before that", self.remarks("diverged", "lost")[0])


class Unfinished(CompareTest):
    def test_a_killed_run_has_the_figures_of_its_last_checkpoint(self):
        """They are those of an undisturbed run of so many steps, whose checkpoint is its last act; a run that was killed
        before any has none."""
        changes = {"train": {"steps": 10_000_000, "schedule": "constant"}, "eval": {"every": 20},
                   "checkpoint": {"every": 20}}
        process = self.start("train", self.config(changes), "--out", "run", "--quiet")
        run = Run(self.path("run"))
        self.wait_for(lambda: os.path.exists(run.file("checkpoint.safetensors")))
        self.assertIn(": running at step ", self.remarks("unfinished", "run")[0])
        process.kill()
        process.communicate()
        steps, rows = run.summary["steps"], run.rows("metrics.csv")
        self.assertIn(f": stopped at step {max(steps, int(rows[-1]['step'])):,} of 10,000,000; ",
                      self.remarks("unfinished", "run")[0])
        if steps == 0:  # killed between the checkpoint and its summary
            return
        whole = self.train("whole", merged(changes, {"train": {"steps": steps}}))
        for key in ("final_train_loss", "best_val_loss", "best_step", "grad_first_last", "growth", "branch_share",
                    "trajectory_hash", "params", "corpus_hash"):
            self.assertEqual(run.summary[key], whole.summary[key], key)
        self.assertEqual((run.summary["status"], run.summary["final_val_loss"]), ("running", None))
        (entry,) = self.comparison("run")["runs"]
        self.assertEqual((entry["status"], entry["metrics"]["growth"]["mean"]), ("stopped", whole.summary["growth"]))

    def test_a_resumed_run_never_has_figures_of_steps_to_come(self):
        """Killed as soon as it has begun again, after it had diverged behind its checkpoint."""
        run = self.train("run", {"train": {"steps": 30}})
        wild = {**run.summary, "status": "diverged", "steps": 29, "growth": 9.0}
        self.write("run/summary.json", json.dumps(wild))
        os.mkdir(self.path("blocker"))
        os.remove(run.file("model.safetensors"))
        os.rename(self.path("blocker"), run.file("model.safetensors"))  # the run fails there, as if killed
        self.normscope("train", "--resume", "run", "--set", "train.steps=31", code=1)
        self.assertEqual((run.summary["status"], run.summary["steps"]), ("running", 30))
        self.assertNotEqual(run.summary["growth"], 9.0)


class Command(CompareTest):
    def setUp(self):
        super().setUp()
        self.make_seeds("pre", [2.5, 2.6, 2.4])
        self.make_seeds("post", {1: 2.7}, {"model": {"norm_placement": "post"}})

    def test_the_table_and_its_forms_agree(self):
        shown = self.compare("runs", "runs/pre-1/")  # named twice: one run
        self.assertEqual(re.split("  +", shown.splitlines()[0]),
                         ["run", "seeds", "placement", "norm", "L", "params", "status", *(
            title for _, title, _ in comparison.METRICS if title != "tokens/s")])
        self.assertIn("  tokens/s\n", self.compare("--speed", "runs"))
        self.assertRegex(shown, r"(?m)^pre +3 +pre +layernorm +2 +7,760 +done +2\.500 ± 0\.058 ")
        result = json.loads(self.compare("--json", "runs"))
        self.assertEqual([(run["label"], run["keys"], run["choices"], run["seeds"]) for run in result["runs"]],
                         [("pre", {"model.norm_placement": "pre"}, [], [1, 2, 3]),
                          ("post", {"model.norm_placement": "post"}, ["model.norm_placement"], [1])])
        self.assertEqual([f"- {remark['text']}" for remark in result["remarks"]],
                         [line for line in shown.splitlines() if line.startswith("- ")])
        rows = list(csv.DictReader(io.StringIO(self.compare("--csv", "runs"))))
        self.assertEqual(list(rows[0]), COLUMNS)
        for row, run in zip(rows, result["runs"]):
            for key, figure in run["metrics"].items():
                self.assertEqual([float(row[k]) if row[k] else None for k in (key, f"{key}_standard_error")],
                                 [figure["mean"], figure["standard_error"]])
        self.make("runs/deep", changes={"model": {"n_layer": 3}, "train": {"lr": 0.5}})
        self.assertIn("\nall: norm layernorm, params 7,760, status done", self.compare("runs"))
        (row,) = [row for row in csv.DictReader(io.StringIO(self.compare("--csv", "runs"))) if row["n_layer"] == "3"]
        self.assertEqual(row["train.lr"], "0.5")  # a varied key is a column

    def test_members_of_the_json_are_documented(self):
        self.make_seeds("post", {2: 2.7, 3: 2.8}, {"model": {"norm_placement": "post"}})
        self.make_seeds("fast", [2.1, 2.2], {"train": {"lr": 0.01}})
        result = json.loads(self.compare("--json", "--target", "2", "runs"))
        with open(os.path.join(ROOT, "scripts", "README.md"), encoding="utf-8") as file:
            documented = set(re.findall(r"`(\w+)`", file.read()))
        entries = [result, result["runs"][0], *result["runs"][0]["metrics"].values(), *result["paired"],
                   *result["rates"], *result["remarks"]]
        self.assertTrue(result["paired"] and result["rates"])
        self.assertLessEqual(set().union(*entries), documented)

    def test_a_base_of_choice(self):
        for name in ("post", "runs/post-1", "post-1", "runs/post-1/", "./runs//post-1"):
            self.assertIn("- pre against post: ", self.compare("runs", "--base", name))
        self.assertIn("- pre against post: ", self.compare("runs/post-1", "runs"))
        self.assertIn("- post against pre: ", self.compare("runs"))  # by alphabet post came first
        for arguments, code, words in ((("runs", "--base", "per"), 2,
                                        "--base: got per; expected a run's folder, a label, or a value in one: pre; post"),
                                       (("nowhere",), 2, "nowhere: no such folder"),
                                       (("runs", "--target", "nan"), 2, "--target: got nan; expected a loss"),
                                       (("--csv", "--json", "runs"), 2, "not allowed with")):
            self.assertIn(words, self.compare(*arguments, code=code).splitlines()[-1])

    def test_a_key_and_a_metric_of_choice(self):
        """Warm-up 1 minus 0 at each depth, in growth; the same by --base and by hand; and in Markdown."""
        self.clear()
        for depth, steps in itertools.product((2, 3), (0, 1)):
            for seed in (1, 2, 3):
                self.make(f"runs/{depth}-{steps}-{seed}", 2.5, {
                    "model": {"n_layer": depth}, "train": {"warmup_steps": steps, "seed": seed}},
                    growth=depth + steps * (0.5 + 0.1 * seed))
        pairs = self.comparison(by="train.warmup_steps", metric="growth")["paired"]
        self.assertEqual([(pair["setting"], pair["values"], round(pair["mean"], 9)) for pair in pairs],
                         [(f"L {depth}", ["warm-up 1", "warm-up 0"], 0.7) for depth in (2, 3)])
        self.assertEqual(self.comparison(base="warm-up 0", metric="growth")["paired"], pairs)
        reverse, _ = self.comparison(base="warm-up 1", metric="growth")["paired"]
        self.assertEqual((reverse["values"], round(reverse["mean"], 9)), (["warm-up 0", "warm-up 1"], -0.7))
        shown = self.compare("runs", "--by", "train.warmup_steps", "--metric", "growth", "--markdown")
        self.assertIn("growth in each setting, and differences by train.warmup_steps, seed by seed (*: clear, by "
                      "Student's t at 5%):\n\n| setting | warm-up 0 | warm-up 1 minus warm-up 0 |\n|---|---|---|\n"
                      "| L 2 | 2.0000 ± 0 | +0.700 ± 0.058* |\n", shown)
        for arguments, words in ((("--by", "train.lr"), "in which the runs do not differ; they differ in model.n_lay"),
                                 (("--metric", "status"), "--metric: got status; expected one of best_val_loss, ")):
            self.assertIn(words, self.compare("runs", *arguments, code=2))

    def test_configs_at_the_best_rate_of_each(self):
        losses = {("layernorm", 0.001): 2.5, ("layernorm", 0.01): 2.3, ("rmsnorm", 0.001): 2.2, ("rmsnorm", 0.01): 2.4}
        self.clear()
        for (norm, rate), loss in losses.items():
            self.make_seeds(f"{norm}-{rate}", [loss, loss + 0.1 * (norm == "rmsnorm"), loss],
                            {"model": {"norm": norm}, "train": {"lr": rate}})
        (pair,) = self.comparison()["best"]
        self.assertEqual((pair["group"], pair["partner"]), ("rmsnorm · lr 0.001", "layernorm · lr 0.01"))
        shown = self.compare("runs")
        self.assertIn("\n  rmsnorm · lr 0.001  minus  layernorm · lr 0.01  -0.067 ± 0.033\n", shown)
        self.assertRegex(shown, r"(?m)^best learning rate .* \(\*: clear, by Student's t at 5%\):\n\n.*\n.* \+0\.2\S* ± 0\*$")

    def test_one_broken_run_hides_no_other(self):
        self.write("runs/pre-1/summary.json", "{")
        config = json.loads(Run(self.path("runs/pre-2")).bytes("config.json"))
        self.write("runs/pre-2/config.json", json.dumps(merged(config, {"model": {"n_layer": "\x1b"}})))
        lines = self.compare("runs", code=1).splitlines()
        self.assertRegex(lines[0], r"^\[compare\] runs/pre-1: damaged summary.json: ")
        self.assertRegex(lines[1], r"^\[compare\] runs/pre-2: damaged config.json: expected that of a run")
        done = self.script("compare.py", "--json", "runs", code=1)
        result = json.loads(done.stdout)
        self.assertEqual([run["label"] for run in result["runs"]], ["pre", "post"])
        self.assertEqual(done.stderr.splitlines(), lines)

    def test_ranges_and_a_grade(self):
        """Runs with other seeds are graded by a table that --ranges has printed, in one line."""
        self.make_seeds("post", {2: 2.8, 3: 2.9}, {"model": {"norm_placement": "post"}})
        table = self.compare("runs", "--ranges", "3")
        self.assertIn("| `runs` | best val | final val | final train | grad first/last | growth |\n|---|", table)
        self.assertRegex(table, r"(?m)^\| post \| 2\.50 to 3\.10 \| 2\.50 to 3\.10 \| 4\.25 to 4\.25 \| .* \|$")
        self.write("page.md", f"Expect:\n\n{table}\nNo range: | final val | 2 |\n")
        self.clear()
        self.make_seeds("pre", [2.7, 2.9, 3.1])
        self.make_seeds("post", [2.7, 2.7, 2.7], {"model": {"norm_placement": "post"}})
        graded = self.script("compare.py", "runs", "--check", "page.md", code=1)
        self.assertEqual((graded.stdout, graded.stderr), (
            "runs: 8 of 10 means are in the ranges of page.md; pre: best val 2.9, expected 2.20 to 2.80; "
            "pre: final val 2.9, expected 2.20 to 2.80\n", ""))
        self.write("page.md", table + "\n" + table.replace("`runs`", "`./runs/pre-1/`"))
        for folder in ("runs", "./runs/", "runs/."):
            shown = self.script("compare.py", folder, "--check", "page.md", code=1).stdout
            self.assertRegex(shown, ": 8 of 10 means ")
        self.write("page.md", table + "\n" + table)
        for arguments, words in ((("--check", "page.md"), "page.md: has 2 tables of ranges, and not one of runs; "),
                                 (("--check", "none.md"), "none.md: No such file"),
                                 (("--ranges", "0"), "--ranges: got 0.0; expected a number above 0")):
            done = run_script(os.path.join(ROOT, "scripts", "compare.py"), "runs", *arguments, cwd=self.folder)
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertIn(words, done.stderr)
        self.assertIn("no row has two values of best val; train more seeds",
                      self.compare("runs/pre-1", "--ranges", "3", code=2))

    def test_hand_ins(self):
        """Whatever is wrong is named; a right one passes, with other seeds too, and a half has its half."""
        post = {"model": {"norm_placement": "post"}}

        def hand_in(folder, changes=None, parts=({}, post), seeds=(1, 2, 3), **summary):
            for part, (number, seed) in itertools.product(parts, enumerate(seeds)):
                name = f"{folder}/{len(part)}-{seed}"
                self.make(name, 2.4 + 0.1 * number, merged(part, merged(changes or {}, {"train": {"seed": seed}})),
                          trajectory_hash=name, **summary)

        hand_in("teacher")
        table = self.compare("teacher", "--ranges", "3")
        self.write("ranges.md", table)
        self.assertEqual(str(*tables_in(table)), table)
        for seeds in ((1, 2, 3), (11, 12, 13, 14)):
            hand_in("right", seeds=seeds)
            self.assertEqual(self.compare("right", "--check", "ranges.md"),
                             "right: 10 of 10 means are in the ranges of ranges.md\n")
            shutil.rmtree(self.path("right"))
        hand_in("half", parts=[post])
        hand_in("beta2", {"train": {"beta2": 0.9}})
        hand_in("steps", {"train": {"steps": 102}})
        hand_in("seeds", seeds=[2])
        hand_in("text", corpus_hash="another")
        shutil.copytree(self.path("half"), self.path("copy"))
        self.write("grades.csv", self.script("compare.py", "half", "beta2", "steps", "seeds", "text", "copy", "none",
                                             "--check", "ranges.md", "--csv", code=1).stdout)
        columns, rows = read_csv(self.path("grades.csv"))
        self.assertEqual(columns, ["folder", "as_asked", "asked", "remarks"])
        both = "pre: {0}; post: {0}".format
        self.assertEqual([(row["folder"], row["as_asked"], row["asked"], row["remarks"]) for row in rows[:-1]], [
            ("half", "5", "10", "pre: no runs; 3 runs with the digits of one in copy"),
            ("beta2", "0", "10", both("train.beta2 0.9, expected 0.99")),
            ("steps", "0", "10", both("train.steps 102, expected 2")),
            ("seeds", "0", "10", both("1 of 3 seeds are done")),
            ("text", "0", "10", both("another text")),
            ("copy", "5", "10", "pre: no runs; 3 runs with the digits of one in half")])
        self.assertRegex(rows[-1]["remarks"], "^none: no such folder; .*; pre: no runs; post: no runs$")
        for damaged in (table.replace('"seeds"', '"sed"'), table.replace(" [1", " 1")):
            self.write("ranges.md", damaged)
            self.assertIn("the comment below the table of `teacher` is damaged",
                          self.compare("half", "--check", "ranges.md", code=2))

    def test_what_a_target_takes(self):
        """Steps, tokens and seconds to a loss, linear between evaluations."""
        for seed, losses in ((1, (4, 3, 2)), (2, (4, 2, 1)), (3, (4, 4, 4))):
            rows = "".join(f"{10 * i},{640 * i},{3 * i * seed},{4},{loss}\n" for i, loss in enumerate(losses, start=1))
            self.write(f"runs/pre-{seed}/metrics.csv", "step,tokens,seconds,train_loss,val_loss\n" + rows)
        result = json.loads(self.compare("--json", "runs", "--target", "2.5"))
        figures = result["runs"][0]["metrics"]
        self.assertEqual([(figures[f"{axis}_to_target"][key]) for axis in ("steps", "tokens", "seconds")
                          for key in ("title", "mean", "n")],
                         ["steps to 2.5", (25 + 17.5) / 2, 2, "tokens to 2.5", (1600 + 1120) / 2, 2, "seconds to 2.5",
                          (7.5 + 10.5) / 2, 2])
        shown = self.compare("runs", "--target", "2.5")
        self.assertRegex(shown, r"steps to 2.5 +tokens to 2.5 +seconds to 2.5\n")
        self.assertRegex(shown, r" 21\.2 ± 3\.8 +1,360 ± 240 +9\.0 ± 1\.5\n")
        self.assertIn(
            "\n- pre (1 of 3 seeds): no evaluation is at or below 2.5; the steps to it are those of the other seeds\n",
            shown)
        self.assertIn("\n- post: no evaluation is at or below 2.5\n", shown)  # no seed has steps to it

    def test_a_target_that_the_first_evaluation_has_passed_is_an_upper_bound(self):
        for seed, losses in ((1, (2.4, 2.3)), (2, (2.6, 2.3)), (3, (2.5, 2.4))):
            rows = "".join(f"{200 * i},{800 * i},{loss}\n" for i, loss in enumerate(losses, start=1))
            self.write(f"runs/pre-{seed}/metrics.csv", "step,tokens,val_loss\n" + rows)
        for folders, text, at_most in ((["runs/pre-1"], "≤ 200", True), (["runs/pre-3"], "200", False),
                                       (["runs/pre-2", "runs/pre-3"], "233 ± 33", False),
                                       # the mean of 200 and 267 is a bound as well
                                       (["runs/pre-1", "runs/pre-2"], "≤ 233", True)):
            (entry,) = self.comparison(*folders, target=2.5)["runs"]
            figure = entry["metrics"]["steps_to_target"]
            self.assertEqual((figure["text"], figure["at_most"]), (text, at_most))
        (row,) = csv.DictReader(io.StringIO(self.compare("--csv", "runs/pre-1", "--target", "2.5")))
        self.assertEqual([row[key] for key in ("steps_to_target", "steps_to_target_at_most", "tokens_to_target")],
                         ["200.0", "True", "800.0"])
        self.assertRegex(self.compare("runs/pre-1", "--target", "2.5"), r"  +≤ 200  +≤ 800  +-\n")

    def test_nothing_raw_reaches_the_terminal(self):
        for seed in (4, 5):
            self.make(f"runs/{HOSTILE}{seed}", None, {"train": {"seed": seed}}, status="diverged",
                      first_nonfinite={"step": "x", "layer": 1, "site": HOSTILE})
        self.make(f"runs/{HOSTILE}-again", 2.5, {"train": {"seed": 4}}, status="diverged",
                  first_nonfinite={"layer": HOSTILE})
        self.make("runs/other", 2.5, {"train": {"lr": 0.01}}, status=HOSTILE, steps=-1e300)
        self.make("runs/odd", 2.5, {"train": {"lr": 0.02}}, status=3, first_nonfinite="no", vocab="many",
                  corpus_hash=[1])
        for form in ((), ("--json",), ("--csv",), ("--target", "2")):
            self.compare(*form, "runs")
        self.assertIn(r"a\x1b[31m\x0ab\x07\u202ec", self.compare("runs"))


if __name__ == "__main__":
    unittest.main()
