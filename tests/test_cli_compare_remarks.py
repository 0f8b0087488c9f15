#!/usr/bin/python3
"""`normscope compare`: what it says can and cannot be concluded from the runs."""

import csv
import json
import math
import os
import re
import shutil
import unittest

from cli import TEXT, VOCABULARY, Run, merged
from compare_runs import COLUMNS, STORY, MadeCompareTest

HOSTILE = "a\x1b[31m\nb\x07\u202ec,\"d"


class Remarks(MadeCompareTest):
    def remarks(self, *arguments):
        return [line for line in self.compare(*arguments or ("runs",)).splitlines() if line.startswith("- ")]

    def remark_on_change(self, changes, base=None):
        """What is said of a run whose config has these changes beside one that has not."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make("runs/a", changes=base)
        self.make("runs/b", changes=merged(base or {}, changes))
        return next(line for line in self.remarks() if " against " in line)

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
                first, _, rest = line.split(": ", 1)[1].partition("; with that comes ")
                key = r"(?:model|train)\.[a-z_.]+"
                self.assertCountEqual(re.findall(key, first.split(";")[0]), chosen, line)
                self.assertCountEqual(re.findall(key, rest.split(";")[0]), followed, line)
                self.assertEqual("choices at once: which of them is the cause cannot be told" in line, len(chosen) > 1)
                if len(chosen) > 1:
                    self.assertIn(f"{len(chosen)} choices at once", line)

    def test_what_is_said_of_several_is_said_once(self):
        for placement in ("pre", "post", "sandwich", "deepnorm"):
            for layers in (2, 3):
                self.make(f"runs/{placement}{layers}", changes={"model": {"norm_placement": placement, "n_layer": layers}})
        said = [remark for remark in self.json("runs/pre2", "runs")["remarks"] if remark["kind"] == "differs"]
        self.assertEqual([(remark["groups"], remark["text"].split(";")[0]) for remark in said], [
            (["deepnorm · L 2"], "deepnorm · L 2 against pre · L 2: model.norm_placement"),
            (["deepnorm · L 3"], "deepnorm · L 3 against pre · L 2: model.n_layer, model.norm_placement"),
            (["post · L 2"], "post · L 2 against pre · L 2: model.norm_placement"),
            (["post · L 3"], "post · L 3 against pre · L 2: model.n_layer, model.norm_placement"),
            (["pre · L 3"], "pre · L 3 against pre · L 2: model.n_layer"),
            (["sandwich · L 2"], "sandwich · L 2 against pre · L 2: model.norm_placement"),
            (["sandwich · L 3"], "sandwich · L 3 against pre · L 2: model.n_layer, model.norm_placement")])
        for i in range(9):
            self.diverged(f"lost/{i}", 7, train={"lr": (i + 1) / 100})
        (lost,) = [remark for remark in self.json("lost")["remarks"] if remark["kind"] == "diverged"]
        self.assertEqual(len(lost["groups"]), 9)
        self.assertTrue(lost["text"].startswith("lr 0.01, lr 0.02, lr 0.03, lr 0.04, lr 0.05 and 4 more: diverged at step 7"))

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
        start = "- post: losses are not comparable with those of pre: "
        self.assertEqual(self.not_comparable(), [])
        self.assertEqual(self.not_comparable({"data": {"path": "same.txt"}}), [], "one text in two places is one text")
        def labelled(more):
            return f"- post · {more}: losses are not comparable with those of pre · "

        self.assertEqual(self.not_comparable({"train": {"steps": 3}}), [labelled("3 steps") + "2 steps: 3 steps, not 2"])
        self.assertEqual(self.not_comparable({"data": {"path": "other.txt"}}), [labelled("other") + "text: another text"])
        self.assertEqual(self.not_comparable({"data": {"val_fraction": 0.2}}),
                         [labelled("val_fraction 0.2") + "val_fraction 0.1: another validation split"])
        self.assertEqual(self.not_comparable(vocab=VOCABULARY + 5),
                         [start + f"a vocabulary of {VOCABULARY + 5} characters, not {VOCABULARY}"])
        said = self.not_comparable({"data": {"path": "fewer.txt"}}, vocab=VOCABULARY - 1)
        self.assertEqual(said, [labelled("fewer") + "text: another text and a vocabulary of "
                                f"{VOCABULARY - 1} characters, not {VOCABULARY}"])
        self.write("gone.txt", TEXT)
        self.make_seeds("c", [2.4, 2.5], {"data": {"path": "gone.txt"}})
        os.remove(self.path("gone.txt"))
        self.assertIn("- pre · gone: losses are not comparable with those of pre · text: texts in other files, which cannot "
                      "be read now", self.remarks())

    def test_a_diverged_run_tells_its_story(self):
        self.diverged("runs/lost", 7)
        shown = self.compare("runs")
        self.assertIn(f"- pre · layernorm: diverged at step 7; {STORY}, or so 7\n", shown)
        self.assertNotIn("biased", shown)
        self.assertNotIn("1009349", shown)
        self.assertRegex(shown, r"(?m)^pre · layernorm .* diverged .* 1\.01e\+06 ")

    def test_a_mean_over_survivors_is_biased(self):
        self.make_seeds("a", [2.5, 2.6])
        self.diverged("runs/a-3", 7, train={"seed": 3})
        self.diverged("runs/a-4", 9, train={"seed": 4})
        line = next(line for line in self.remarks() if "diverged" in line)
        self.assertEqual(line, "- pre · layernorm (2 of 4 seeds): diverged in seed 3 at step 7 and seed 4 at step 9; its figures "
                               f"are of the seeds that survived only, and so biased; seed 3 {STORY}, or so 7")
        row = self.csv("runs")["pre · layernorm"]
        self.assertEqual((row["seeds"], row["status"]), ("4", "2 diverged, 2 done"))
        self.assertAlmostEqual(float(row["final_val_loss"]), 2.55, delta=1e-12)
        trained = Run(self.path("runs/a-1")).summary["final_train_loss"]
        self.assertAlmostEqual(float(row["final_train_loss"]), trained, delta=1e-12)
        shutil.rmtree(self.path("runs"))
        for seed in (1, 2):
            self.diverged(f"runs/a-{seed}", 7, train={"seed": seed})
        self.assertIn("- pre · layernorm: diverged in seed 1 at step 7 and seed 2 at step 7", self.compare("runs"))
        self.assertAlmostEqual(float(self.csv("runs")["pre · layernorm"]["final_train_loss"]), 1009349.8425, delta=1e-6)
        self.assertNotIn("biased", self.compare("runs"))

    def test_runs_that_are_not_done_are_named(self):
        self.make_seeds("a", [2.5, 2.6])
        self.assertNotIn("not done", self.compare("runs"))
        self.make("runs/a-3", 2.7, {"train": {"seed": 3}}, status="interrupted", steps=2)
        said = "- pre · layernorm: {}interrupted at step 2 of 2; figures of a run that is not done are no result"
        self.assertIn(said.format("seed 3 "), self.remarks())
        self.assertIn(said.format(""), self.remarks("runs/a-3"))

    def levels(self, words, losses, **summary):
        """The sentence about a level, if there is one, of seeds with these losses, or of one run."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make_seeds("a", losses, **summary)
        return [line for line in self.remarks() if words in line]

    def test_the_unigram_level_is_said_of_finished_runs_only(self):
        words = "at the unigram level (3.00 nats): "
        for losses, name in (([3.05], ""), ([3.05, 2.93], ""), ([3.1], None), ([2.5, 3.5], None),  # their mean is there
                             ([3, 1, 3], " (2 of 3 seeds)")):
            said = self.levels(words, losses, unigram=3.0)
            self.assertEqual([line.startswith(f"- pre · layernorm{name}: {words}") for line in said],
                             [True] * (name is not None))
        for status in ("diverged", "interrupted", "probe"):
            self.assertEqual(self.levels(words, [3.0], unigram=3.0, status=status), [])
        self.assertEqual(self.levels(words, [3.0], unigram=None), [], "an older run does not say where the level is")

    def test_a_run_that_has_exploded_without_a_nan(self):
        words = f"the loss ends above ln V = {math.log(VOCABULARY):.2f} nats: worse than guessing"
        for losses, name in (([8020.0], ""), ([8020.0, 4.5, 2.0], " (2 of 3 seeds)"), ([math.log(VOCABULARY) - 0.01], None)):
            said = self.levels(words, losses)
            self.assertEqual([line.startswith(f"- pre · layernorm{name}: {words}") for line in said],
                             [True] * (name is not None))
        self.assertEqual(len(self.levels(words, [None], final_train_loss=9.0)), 1, "without a validation split")
        for summary in ({"status": "diverged"}, {"status": "interrupted"}, {"status": "probe"}, {"vocab": None}):
            self.assertEqual(self.levels(words, [8020.0], **summary), [], summary)

    def test_branches_too_small_to_matter(self):
        words = ": at the start a branch is so small a part of the stream"
        run = self.make("runs/a", branch_share=None)  # as older runs were: layers.csv tells it
        rows = run.rows("layers.csv")
        for share, said in ((0.04, True), (0.06, False)):
            for row in rows:
                row["rms"] = share if row["site"] in ("attn_out", "ffn_out") else 1
            with open(run.file("layers.csv"), "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            self.assertEqual(f"- pre · layernorm ({100 * share:.1f}%){words}" in self.compare("runs"), said)
        summary = run.summary
        for share, said in ((0.04, True), (0.06, False)):  # the summary's, where it has one
            self.write(run.file("summary.json"), json.dumps({**summary, "branch_share": share}))
            self.assertEqual(words in self.compare("runs"), said)

    def test_a_branch_that_is_small_by_its_placement_s_design_is_not_held_against_it(self):
        for placement, said in (("pre", True), ("post", True), ("mix", True), ("pre_scaled", True), ("rezero", False),
                                ("none", False), ("deepnorm", False), ("sandwich", False), ("res_post", False)):
            shutil.rmtree(self.path("runs"), ignore_errors=True)
            self.make("runs/a", changes={"model": {"norm_placement": placement}}, branch_share=0.01)
            self.assertEqual("norms' place can hardly matter" in self.compare("runs"), said, placement)

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
        self.assert_no_controls(self.normscope("compare", "--json", "runs").stdout)
        self.assertIn(r"a\x1b[31m\nb\x07\u202ec", shown)
        self.assertIn("unfinished", shown)
        self.assert_no_controls(self.normscope("compare", "--csv", "runs").stdout)
        rows = self.csv("runs")
        self.assertEqual([len(row) for row in rows.values()], [len(COLUMNS)] * 3)
        self.assertEqual(set(rows), {"lr 0.001", "lr 0.01", "lr 0.02"})


if __name__ == "__main__":
    unittest.main()
