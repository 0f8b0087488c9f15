#!/usr/bin/python3
"""`normscope compare`: what it says can and cannot be concluded from the runs."""

import csv
import json
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
        rows, summary = run.rows("layers.csv"), run.summary
        for share, said in ((0.04, True), (0.06, False)):
            shown = f"a branch is {100 * share:.1f}% of the stream"
            self.write(run.file("summary.json"), json.dumps({**summary, "branch_share": share}))
            self.assertEqual((words in self.compare("runs"), shown in self.compare("runs")), (said, said))
            # Of a run of a version that did not write the figure, by its log.
            self.write(run.file("summary.json"), json.dumps({k: v for k, v in summary.items() if k != "branch_share"}))
            for row in rows:
                row["rms"] = share if row["site"] in ("attn_out", "ffn_out") else 1
            with open(run.file("layers.csv"), "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            self.assertEqual((words in self.compare("runs"), shown in self.compare("runs")), (said, said))

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
