#!/usr/bin/python3
"""`normscope compare`: figures of seeds, paired differences, labels, and what it says can and cannot be concluded.

Most runs are made up: two tiny ones are trained, then copied with other configs and results."""

import csv
import io
import json
import math
import os
import re
import shutil
import tempfile
import unittest

import numpy as np

from cli import TEXT, VOCABULARY, CliTest, Run, merged

COLUMNS = ["run", "seeds", "placement", "norm", "n_layer", "params", "status"] + [
    f"{name}{part}" for name in ("best_val_loss", "final_val_loss", "final_train_loss", "grad_first_last", "growth",
                                 "tokens_per_s") for part in ("", "_spread")]
HOSTILE = "a\x1b[31m\nb\x07\u202ec,\"d"
STORY = "step 7: block 1 ffn_out became non-finite; activations had grown 9.5 times since step 1"


class CompareTest(CliTest):
    def csv(self, *arguments):
        text = self.normscope("compare", "--csv", *arguments).stdout
        return {row["run"]: row for row in csv.DictReader(io.StringIO(text), strict=True)}

    def compare(self, *arguments):
        return self.normscope("compare", *arguments).stdout


class Trained(CompareTest):
    """Real runs."""

    def setUp(self):
        super().setUp()
        for seed in (1, 2, 3):
            self.train(f"runs/pre-{seed}", {"train": {"seed": seed}})
        self.train("runs/post", {"model": {"norm_placement": "post"}}, "--set", "name=another")

    def test_seeds_of_one_config_become_mean_and_spread(self):
        rows = self.csv("runs")
        self.assertEqual({name: row["seeds"] for name, row in rows.items()}, {"post": "1", "pre x3 seeds": "3"})
        summaries = [Run(self.path("runs", f"pre-{seed}")).summary for seed in (1, 2, 3)]
        row = rows["pre x3 seeds"]
        self.assertEqual(list(row), COLUMNS)
        described = [row[key] for key in ("placement", "norm", "n_layer", "status")]
        self.assertEqual(described, ["pre", "layernorm", "2", "done"])
        self.assertEqual(int(row["params"]), summaries[0]["params"])
        for key in ("best_val_loss", "final_val_loss", "final_train_loss", "grad_first_last", "growth", "tokens_per_s"):
            values = [summary[key] for summary in summaries]
            np.testing.assert_allclose(float(row[key]), np.mean(values), rtol=1e-14)
            np.testing.assert_allclose(float(row[f"{key}_spread"]), np.std(values, ddof=1), rtol=1e-9)
        self.assertEqual(rows["post"]["final_val_loss_spread"], "")
        self.assertEqual(float(rows["post"]["final_val_loss"]), Run(self.path("runs/post")).summary["final_val_loss"])

    def test_the_table_shows_spread_and_warns_of_single_runs(self):
        shown = self.compare("runs")
        header, common = shown.splitlines()[0], shown.splitlines()[3]
        for word in ("run", "placement", "status", "best val", "final val", "final train", "grad first/last", "growth"):
            self.assertRegex(header, rf"(^|  ){word}(  |$)")
        self.assertRegex(common, r"^all: L 2, norm layernorm$|^all: params \S+, L 2, norm layernorm$")  # too wide
        alone = self.compare("runs/post").splitlines()[0]
        self.assertEqual(re.split("  +", alone), ["run", "placement", "norm", "L", "params", "status", "best val",
                                                  "final val", "final train", "grad first/last", "growth", "tokens/s"])
        self.assertRegex(shown, r"(?m)^pre x3 seeds .* ± ")
        self.assertIn("one seed a config", shown)
        self.assertIn("model.norm_placement", shown)
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")
        self.assertNotIn("seed by seed", shown)  # one seed is no pair
        self.assertNotIn("one seed a config", self.compare("runs/pre-1", "runs/pre-2"))

    def test_a_run_is_named_by_its_folder_however_it_is_written(self):
        for written in ("runs/post", "runs/post/", "./runs/../runs/post", self.path("runs/post")):
            self.assertEqual(list(self.csv(written)), ["post"], written)
        self.assertEqual(self.csv("runs/pre-1", "runs/pre-1/")["pre-1"]["seeds"], "1", "one run named twice is one run")

    def test_runs_of_one_name_are_told_apart(self):
        self.train("other/post", {"model": {"norm_placement": "post", "norm": "rmsnorm"}})
        self.assertEqual(list(self.csv("runs/post", "other/post")), ["runs/post", "other/post"])

    def test_a_run_without_a_summary_is_named(self):
        os.remove(self.path("runs", "pre-2", "summary.json"))
        row = self.csv("runs")["pre x3 seeds"]
        self.assertEqual(row["status"], "2 done, 1 unfinished")
        self.assertNotIn(None, row)
        self.assertIn("- pre: seed 2 has no summary", self.compare("runs"))

    def test_a_sweep_ends_in_pairs(self):
        self.write("sweep.json", json.dumps({"base": "tiny.json", "seeds": [1, 2],
                                             "grid": {"model.norm_placement": ["pre", "post"]}}))
        shown = self.normscope("sweep", "sweep.json", "--out", "out").stdout
        self.assertRegex(shown, r"(?m)^norm_placement=pre x2 seeds ")
        self.assertRegex(shown, r"(?m)^final val minus that of norm_placement=pre, seed by seed")
        self.assertEqual(list(self.csv("out")), ["norm_placement=post x2 seeds", "norm_placement=pre x2 seeds"])


class Made(CompareTest):
    """Runs with made-up results."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.template = tempfile.mkdtemp(prefix="normscope-test-")
        cls.addClassCleanup(shutil.rmtree, cls.template)

    def make(self, folder, loss=2.5, changes=None, **summary):
        """A run folder whose config has `changes` and whose summary has this final_val_loss and what else is given."""
        if not os.path.exists(os.path.join(self.template, "run")):
            shutil.copytree(self.train("template", {"train": {"steps": 2}}).path, os.path.join(self.template, "run"))
        run = Run(self.path(folder))
        shutil.copytree(os.path.join(self.template, "run"), run.path)
        shown = self.normscope("config", self.config(merged({"train": {"steps": 2}}, changes or {}), name="made.json"))
        with open(run.file("config.json"), "w", encoding="utf-8") as file:
            file.write(shown.stdout)
        with open(run.file("summary.json"), encoding="utf-8") as file:
            results = json.load(file)
        results |= {"final_val_loss": loss, "best_val_loss": loss, **summary}
        with open(run.file("summary.json"), "w", encoding="utf-8") as file:
            json.dump(results, file)
        return run

    def make_seeds(self, name, losses, changes=None, **summary):
        """Runs name-1, name-2, ...: a seed for each loss; or seeds and losses from a dict."""
        by_seed = losses if isinstance(losses, dict) else dict(enumerate(losses, start=1))
        for seed, loss in by_seed.items():
            self.make(f"runs/{name}-{seed}", loss, merged(changes or {}, {"train": {"seed": seed}}), **summary)

    def pair(self, first, second):
        """The line of the paired difference of two groups with these losses: (mean, error, words)."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make_seeds("a", first)
        self.make_seeds("b", second, {"train": {"lr": 0.01}})
        shown = self.compare("runs")
        line = re.search(r"(?m)^final val minus that of a, seed by seed.*\n  b +(\S+) ± (\S+)  (.*)$", shown)
        self.assertIsNotNone(line, shown)
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")
        return float(line[1]), float(line[2]), line[3]

    # ---- paired differences

    def test_paired_figures_are_those_of_the_differences(self):
        a, b = [2.5, 2.9, 2.2, 2.6], [2.31, 2.73, 2.02, 2.38]
        mean, error, words = self.pair(a, b)
        differences = np.subtract(b, a)
        self.assertEqual(mean, round(float(np.mean(differences)), 4))
        self.assertEqual(error, round(float(np.std(differences, ddof=1) / math.sqrt(4)), 4))
        # The groups' own spread (0.29) is far larger than the difference: only the pairs show it.
        self.assertEqual(words, "lower in 4 of 4 shared seeds: a clear difference")

    def test_only_shared_seeds_that_are_done_count(self):
        self.make_seeds("a", {1: 2.0, 2: 2.1, 5: 9.0, 6: 2.0})
        self.make_seeds("b", {2: 2.2, 6: 2.3, 1: 2.4, 7: 0.1}, {"train": {"lr": 0.01}})
        for seed in (1, 5):
            run = Run(self.path(f"runs/a-{seed}"))
            self.write(run.file("summary.json"), json.dumps(run.summary | {"status": "interrupted"}))
        shown = self.compare("runs")
        self.assertRegex(shown, r"(?m)^  b  \+0\.2000 ± 0\.1000  lower in 0 of 2 shared seeds: ")

    def test_what_can_be_said_of_a_pair(self):
        for differences, words in (
                ([0.30, 0.31], "too few seeds to tell from chance"),
                ([0.3, -0.2], "cannot be told apart"),
                ([0.30, 0.31, 0.32], "a clear difference"),
                ([-0.30, -0.31, -0.32], "a clear difference"),
                ([0.3, 0.05, 0.2], "perhaps a difference; too few seeds to tell"),  # 2.5 standard errors; t needs 4.3
                ([0.3, -0.4, 0.2], "cannot be told apart"),
                ([0.2, 0.2, 0.2, 0.2, -0.02], "cannot be told apart: the sign changes from seed to seed"),
                ([0.2, 0.21, 0.19, 0.2, 0.2, 0.2, 0.2, -0.02], "a clear difference"),  # one sign of eight
                ([0.0, 0.0, 0.0], "the same losses")):
            with self.subTest(differences=differences):
                first = [2.5] * len(differences)
                lower = sum(d < 0 for d in differences)
                self.assertEqual(self.pair(first, [2.5 + d for d in differences])[2],
                                 f"lower in {lower} of {len(differences)} shared seeds: {words}")

    def test_a_pair_says_that_diverged_seeds_are_left_out(self):
        words = "; seeds that diverged are left out"
        self.make_seeds("a", [2.5, 2.6, 2.7])
        self.make_seeds("b", [2.4, 2.5], {"train": {"lr": 0.01}})
        self.assertNotIn(words, self.compare("runs"))
        self.diverged("runs/b-3", 7, train={"lr": 0.01, "seed": 3})
        self.assertRegex(self.compare("runs"), rf"(?m)^  b +-0\.1000 ± \S+  lower in 2 of 2 shared seeds: .*{words}$")

    def test_groups_without_common_seeds(self):
        self.make_seeds("a", {1: 2.0, 2: 2.1})
        self.make_seeds("b", {2: 2.2, 3: 2.3}, {"train": {"lr": 0.01}})
        self.make_seeds("c", {4: 2.2, 5: 2.3}, {"train": {"lr": 0.02}})
        shown = self.compare("runs")
        self.assertRegex(shown, r"(?m)^  b +one seed in common$")
        self.assertRegex(shown, r"(?m)^  c +no seed in common$")

    def test_many_pairs_at_once(self):
        warning = "chance still calls one in 20 clear"
        for i in range(5):
            self.make_seeds(f"r{i}", [2.0 + i, 2.1 + i], {"train": {"lr": 0.01 + i / 100}})
        self.assertNotIn(warning, self.compare("runs"))
        self.make_seeds("r5", [7, 8], {"train": {"lr": 0.5}})
        self.assertIn(f"  5 at once: where there is no difference, {warning}", self.compare("runs"))

    # ---- labels

    def labels(self, *arguments):
        return list(self.csv(*arguments or ("runs",)))

    def seeds_at(self, *folders):
        for seed, folder in enumerate(folders, start=1):
            self.make(folder, changes={"train": {"seed": seed}})

    def test_labels_leave_out_the_seed(self):
        for folders, label in (
                (("norm_placement=pre_seed=1", "norm_placement=pre_seed=2"), "norm_placement=pre"),
                (("pre-1", "pre-2"), "pre"), (("pre_1", "pre_2"), "pre"), (("pre1", "pre2"), "pre"),
                (("pre", "pre-2"), "pre"), (("seed1-pre", "seed2-pre"), "pre"), (("seed-1", "seed-2"), "foo"),
                (("1", "2"), "foo"), (("a-seed=1-b", "a-seed=2-b"), "a-b"), (("lr=0.1", "lr=0.2"), "lr=0.1"),
                (("x11", "x12"), "x11"), (("first", "other"), "first"),
                (("reseed1", "reseed2"), "reseed")):  # seed1 is no part of its own here
            with self.subTest(folders=folders):
                shutil.rmtree(self.path("foo"), ignore_errors=True)
                self.seeds_at(*(f"foo/{folder}" for folder in folders))
                self.assertEqual(self.labels("foo"), [f"{label} x2 seeds"])
        self.assertEqual(self.labels("foo/reseed1"), ["reseed1"], "one run is called what its folder is")

    def test_labels_stay_unique(self):
        self.seeds_at("a/seed-1", "a/seed-2")
        for seed in (1, 2):
            self.make(f"b/seed-{seed}", changes={"train": {"seed": seed, "lr": 0.01}})
            self.make(f"c/a-{seed}", changes={"train": {"seed": seed, "lr": 0.02}})
        self.assertEqual(self.labels("a", "b"), ["a x2 seeds", "b x2 seeds"])
        self.assertEqual(self.labels("a", "c"), ["a x2 seeds", "c/a x2 seeds"])
        for seed in (3, 4):  # more runs of the name a, with another config, in the same folder
            self.make(f"c/a-{seed}", changes={"train": {"seed": seed, "lr": 0.03}})
        self.assertEqual(self.labels("c"), ["a-1 x2 seeds", "a-3 x2 seeds"])
        os.rename(self.path("c", "a-4"), self.path("c", "a"))
        self.assertEqual(self.labels("c/a", "c/a-1", "c/a-2"), ["a", "a x2 seeds"])

    def test_a_table_leaves_out_what_all_names_share(self):
        name = "norm_placement=res_post_scheme=xavier_normal_lr={}_seed={}"
        for lr in (0.001, 0.01):
            for seed in (1, 2):
                self.make("runs/" + name.format(lr, seed), changes={
                    "model": {"norm_placement": "res_post", "init": {"scheme": "xavier_normal"}},
                    "train": {"seed": seed, "lr": lr}})
        shown = self.compare("runs")
        self.assertRegex(shown, r"(?m)^lr=0.001 x2 seeds ")
        self.assertRegex(shown, r"(?m)^lr=0.01 x2 seeds ")
        self.assertRegex(shown, r"(?m)^all: norm_placement=res_post, scheme=xavier_normal")
        self.assertIn("norm_placement=res_post_scheme=xavier_normal_lr=0.01 x2 seeds", self.labels())

    def test_a_long_name_is_cut_and_a_wide_table_narrowed(self):
        for i, placement in enumerate(("pre", "post")):
            for seed in (1, 2):
                self.make(f"runs/{placement}-{'é' * 100}-{seed}", 2.5 + i + seed / 1000,
                          {"model": {"norm_placement": placement}, "train": {"seed": seed}}, status="done")
        lines = self.compare("runs").splitlines()
        self.assertRegex(lines[1], r"^post-é+…é+ x2 seeds ")
        self.assertLessEqual(max(map(len, lines[:3])), 140)
        self.assertRegex(lines[3], r"^all: params 7.5k, L 2, norm layernorm, status done$")
        self.assertEqual(len(lines[1].split("x2 seeds")[0]) + len("x2 seeds"), 40)

    # ---- remarks

    def remarks(self, *arguments):
        return [line for line in self.compare(*arguments or ("runs",)).splitlines() if line.startswith("- ")]

    def remark_on_change(self, changes, base=None):
        """What is said of a run whose config has these changes beside one that has not."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make("runs/a", changes=base)
        self.make("runs/b", changes=merged(base or {}, changes))
        return next(line for line in self.remarks() if "differs from" in line)

    def test_one_choice_and_what_follows_from_it(self):
        for changes, base, chosen, followed in (
                ({"model": {"norm_placement": "post"}}, None, ["model.norm_placement"], ["model.final_norm"]),
                ({"model": {"norm_placement": "rezero"}}, None, ["model.norm_placement"],
                 ["model.norm", "model.norm_bias", "model.final_norm"]),
                ({"model": {"norm_placement": "pre_scaled"}}, None, ["model.norm_placement"],
                 ["model.init.residual_scaling"]),
                ({"model": {"norm": "rmsnorm"}}, None, ["model.norm"], ["model.norm_bias"]),
                ({"model": {"d_model": 32}}, None, ["model.d_model"], ["model.d_ff"]),
                ({"model": {"init": {"scheme": "xavier_normal"}, "tie_embeddings": False}},
                 {"model": {"tie_embeddings": False}}, ["model.init.scheme"],
                 ["model.init.embed_std", "model.init.residual_scaling"]),
                ({"train": {"lr": 0.5}}, None, ["train.lr"], ["train.min_lr"]),
                ({"train": {"optimizer": "sgd", "momentum": 0.9}}, None, ["train.optimizer"], ["train.momentum"]),
                ({"train": {"lr": 0.5, "min_lr": 0.3}}, None, ["train.lr", "train.min_lr"], []),
                ({"train": {"lr": 0.5, "min_lr": 0.05}}, {"train": {"min_lr": 0.0005}},  # a's was chosen
                 ["train.lr", "train.min_lr"], []),
                ({"model": {"norm_placement": "post", "final_norm": True}}, None, ["model.norm_placement"], []),
                ({"model": {"norm_placement": "pre", "final_norm": False}}, None, ["model.final_norm"], []),
                ({"model": {"norm": "rmsnorm", "norm_placement": "post"}}, None,
                 ["model.norm", "model.norm_placement"], ["model.final_norm", "model.norm_bias"])):
            with self.subTest(changes=changes):
                line = self.remark_on_change(changes, base)
                first, _, rest = line.removeprefix("- b differs from a in: ").partition("; with that comes ")
                key = r"(?:model|train)\.[a-z_.]+"
                self.assertCountEqual(re.findall(key, first.split(";")[0]), chosen, line)
                self.assertCountEqual(re.findall(key, rest.split(";")[0]), followed, line)
                self.assertEqual("choices at once: which of them is the cause cannot be told" in line, len(chosen) > 1)
                if len(chosen) > 1:
                    self.assertIn(f"{len(chosen)} choices at once", line)

    def test_configs_that_differ_in_nothing_that_counts(self):
        self.assertIn("in: nothing chosen that bears on the losses; in name only: train.momentum",
                      self.remark_on_change({"train": {"momentum": 0.5}}))
        shutil.rmtree(self.path("runs"))
        self.make("runs/a-1")
        self.make("runs/a-2", changes={"train": {"seed": 2, "threads": 3}, "log": {"every": 1}, "name": "z",
                                       "checkpoint": {"every": 7}})
        self.assertEqual(self.labels(), ["a x2 seeds"])

    def test_an_initialisation_that_comes_along_may_be_the_cause(self):
        words = "which may be the cause as well"
        line = self.remark_on_change({"model": {"norm_placement": "pre_scaled"}})
        self.assertIn("other weights (model.init.residual_scaling true -> false), " + words, line)
        base = {"model": {"init": {"scheme": "xavier_normal"}}}
        line = self.remark_on_change({"model": {"norm_placement": "deepnorm"}}, base)
        self.assertIn(f"other weights (deepnorm's factor), {words}", line)
        self.assertNotIn(words, self.remark_on_change({"model": {"norm_placement": "post"}}, base))
        self.assertNotIn(words, self.remark_on_change({"model": {"init": {"std": 0.1}}}))

    def not_comparable(self, changes=None, **summary):
        """What is said against comparing two groups of seeds, of which the second has these changes."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make_seeds("a", [2.5, 2.6])
        self.make_seeds("b", [2.4, 2.5], merged({"model": {"norm_placement": "post"}}, changes or {}), **summary)
        shown = self.compare("runs")
        said = [line for line in shown.splitlines() if "not comparable" in line]
        self.assertEqual("seed by seed" in shown, not said, shown)  # what is not comparable is not subtracted
        return said

    def test_losses_that_are_not_comparable(self):
        self.write("same.txt", TEXT)
        self.write("other.txt", TEXT.replace("e", "a").replace("a", "e", 40))
        self.write("fewer.txt", TEXT.replace("e", "a"))
        end = ": its losses are not comparable with those of a"
        self.assertEqual(self.not_comparable(), [])
        self.assertEqual(self.not_comparable({"data": {"path": "same.txt"}}), [], "one text in two places is one text")
        self.assertEqual(self.not_comparable({"train": {"steps": 3}}), ["- b trains for 3 steps, not 2" + end])
        self.assertEqual(self.not_comparable({"data": {"path": "other.txt"}}), ["- b learns from another text" + end])
        self.assertEqual(self.not_comparable({"data": {"val_fraction": 0.2}}),
                         ["- b is judged on another validation split" + end])
        self.assertEqual(self.not_comparable(vocab=VOCABULARY + 5),
                         [f"- b has another vocabulary ({VOCABULARY + 5} characters, not {VOCABULARY})" + end])
        said = self.not_comparable({"data": {"path": "fewer.txt"}}, vocab=VOCABULARY - 1)
        self.assertEqual(said, ["- b learns from another text and has another vocabulary "
                                f"({VOCABULARY - 1} characters, not {VOCABULARY})" + end])
        self.write("gone.txt", TEXT)
        self.make_seeds("c", [2.4, 2.5], {"data": {"path": "gone.txt"}})
        os.remove(self.path("gone.txt"))
        self.assertIn("- c has its text in other files, which cannot be read now: its losses are not comparable with "
                      "those of the first", self.remarks())

    def test_batches_that_show_more_or_other_text(self):
        said = "\n".join(self.remarks_of_batch(8))
        self.assertIn("- b sees 2 times the characters that a sees in as many steps", said)
        self.assertIn("- b is validated on other windows of the split than a (eval.batches", said)
        said = "\n".join(self.remarks_of_batch(8, {"eval": {"batches": 0}}))
        self.assertIn("2 times the characters", said)
        self.assertNotIn("other windows", said)
        self.assertNotIn("characters that a sees", "\n".join(self.remarks_of_batch(4)))

    def remarks_of_batch(self, size, base=None):
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make("runs/a", changes=base)
        self.make("runs/b", changes=merged(base or {}, {"train": {"batch_size": size, "lr": 0.5}}))
        return self.remarks()

    def diverged(self, folder, step, **changes):
        lost = {"step": step, "layer": 1, "site": "ffn_out", "kind": "value"}
        return self.make(folder, None, changes, status="diverged", steps=step - 1, first_nonfinite=lost,
                         story=STORY + f", or so {step}", final_train_loss=1009349.8425)

    def test_a_diverged_run_tells_its_story(self):
        self.diverged("runs/lost", 7)
        shown = self.compare("runs")
        self.assertIn(f"- lost diverged at step 7; {STORY}, or so 7\n", shown)
        self.assertNotIn("biased", shown)
        self.assertNotIn("1009349", shown)
        self.assertRegex(shown, r"(?m)^lost .* diverged .* 1\.01e\+06 ")

    def test_a_mean_over_survivors_is_biased(self):
        self.make_seeds("a", [2.5, 2.6])
        self.diverged("runs/a-3", 7, train={"seed": 3})
        self.diverged("runs/a-4", 9, train={"seed": 4})
        line = next(line for line in self.remarks() if "diverged" in line)
        self.assertEqual(line, "- a diverged in 2 of 4 seeds: seed 3 at step 7 and seed 4 at step 9; its figures are "
                               f"of the seeds that survived only, and so biased; seed 3, {STORY}, or so 7")
        row = self.csv("runs")["a x4 seeds"]
        self.assertEqual((row["seeds"], row["status"]), ("4", "2 diverged, 2 done"))
        self.assertAlmostEqual(float(row["final_val_loss"]), 2.55, delta=1e-12)
        trained = Run(self.path("runs/a-1")).summary["final_train_loss"]
        self.assertAlmostEqual(float(row["final_train_loss"]), trained, delta=1e-12)
        shutil.rmtree(self.path("runs"))
        for seed in (1, 2):
            self.diverged(f"runs/a-{seed}", 7, train={"seed": seed})
        self.assertIn("- a diverged in 2 of 2 seeds: ", self.compare("runs"))
        self.assertAlmostEqual(float(self.csv("runs")["a x2 seeds"]["final_train_loss"]), 1009349.8425, delta=1e-6)
        self.assertNotIn("biased", self.compare("runs"))

    def test_runs_that_are_not_done_are_named(self):
        self.make_seeds("a", [2.5, 2.6])
        self.assertNotIn("not done", self.compare("runs"))
        self.make("runs/a-3", 2.7, {"train": {"seed": 3}}, status="interrupted", steps=1)
        said = "- a: seed 3 is interrupted at step 1 of 2; figures of a run that is not done are no result"
        self.assertIn(said, self.remarks())
        self.assertIn("- a-3 is interrupted at step 1 of 2; figures of a run that is not done are no result",
                      self.remarks("runs/a-3"))

    def test_a_seed_that_is_there_twice(self):
        self.make_seeds("a", [2.5, 2.6])
        self.assertNotIn("is there", self.compare("runs"))
        self.make("runs/again", 2.5)
        self.assertIn("- a-1: seed 1 is there 2 times; repeats are no further seeds and make ± too small",
                      self.remarks())
        self.assertEqual(self.labels(), ["a-1 x3 runs"])

    def test_the_unigram_level_is_said_of_finished_runs_only(self):
        self.train("runs/a")
        level = float(re.search(r"(?m)^unigram +(\S+)", self.normscope("eval", "runs/a").stdout)[1])
        words = " stands at the unigram level"
        for losses, said in (([level + 0.05], "- a-1" + words), ([level + 0.05, level - 0.07], "- a" + words),
                             ([level + 0.1], None), ([level - 0.5, level + 0.5], None),  # their mean is at the level
                             ([level, 1.0, level], "- a (2 of 3 seeds)" + words)):
            shutil.rmtree(self.path("runs"))
            self.make_seeds("a", losses)
            shown = self.compare("runs")
            self.assertEqual(words in shown, said is not None, losses)
            self.assertIn(said or "", shown)
        for status in ("diverged", "interrupted"):
            shutil.rmtree(self.path("runs"))
            self.make("runs/a", level, status=status)
            self.assertNotIn(words, self.compare("runs"))

    def test_branches_too_small_to_matter(self):
        words = "so small that the norms' place can hardly matter"
        run = self.make("runs/a")
        rows = run.rows("layers.csv")
        for share, said in ((0.04, True), (0.06, False)):
            for row in rows:
                row["rms"] = share if row["site"] in ("attn_out", "ffn_out") else 1
            with open(run.file("layers.csv"), "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            self.assertEqual(words in self.compare("runs"), said)
            self.assertEqual(f"a branch is {100 * share:.1f}% of the stream" in self.compare("runs"), said)

    def test_norms_that_see_later_characters(self):
        for norm, said in (("instancenorm", "losses are not those of a causal model"),
                           ("batchnorm", "training loss is not that of a causal model"), ("rmsnorm", None)):
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            self.make("runs/a", changes={"model": {"norm": norm}})
            shown = self.compare("runs")
            self.assertEqual("causal" in shown, said is not None, norm)
            self.assertIn(said or "", shown)

    # ---- hostile content

    def test_nothing_raw_reaches_the_terminal(self):
        for seed in (1, 2):
            self.make(f"runs/{HOSTILE}{seed}", None, {"train": {"seed": seed}}, status="diverged",
                      story=HOSTILE + "\r\x9b", first_nonfinite={"step": "x", "layer": HOSTILE})
        self.make(f"runs/{HOSTILE}-other", 2.5, {"train": {"lr": 0.01}}, status=HOSTILE, steps=-1e300)
        self.make("runs/odd", 2.5, {"train": {"lr": 0.02}}, status=3, story=[1], first_nonfinite="no", vocab="many")
        shown = self.compare("runs")
        self.assert_no_controls(shown)
        self.assertIn(r"a\x1b[31m\nb\x07\u202ec", shown)
        self.assertIn("unfinished", shown)
        self.assert_no_controls(self.normscope("compare", "--csv", "runs").stdout)
        rows = self.csv("runs")
        self.assertEqual([len(row) for row in rows.values()], [len(COLUMNS)] * 3)
        self.assertIn('"d x2 seeds', "".join(rows))


if __name__ == "__main__":
    unittest.main()
