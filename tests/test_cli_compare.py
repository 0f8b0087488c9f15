#!/usr/bin/python3
"""`normscope compare`: figures of seeds, paired differences, labels. Its remarks: test_cli_compare_remarks.py."""

import json
import math
import os
import re
import shutil
import unittest

import numpy as np

from cli import Run
from compare_runs import COLUMNS, CompareTest, MadeCompareTest


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

    def test_a_long_log_is_not_read_whole(self):
        run = Run(self.path("runs", "pre-1"))
        os.remove(run.file("summary.json"))  # killed: only the log says how large the branches were
        rows = run.bytes("layers.csv").split(b"\n", 1)[1]
        with open(run.file("layers.csv"), "ab") as file:
            for _ in range(50_000_000 // len(rows)):
                file.write(rows)
        self.assertLess(self.peak_rss_mb("compare", "runs")[0], 100)

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


class Made(MadeCompareTest):
    """Runs with made-up results."""

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


if __name__ == "__main__":
    unittest.main()
