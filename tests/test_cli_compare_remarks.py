#!/usr/bin/python3
"""`normscope compare` of runs with made-up results: differences seed by seed, labels, what can and cannot be concluded."""

import json
import math
import re
import unittest

import numpy as np

from cli import TEXT, VOCABULARY, merged
from compare_runs import COLUMNS, CompareTest

HOSTILE = "a\x1b[31m\nb\x07\u202ec,\"d"


class PairsAndLabels(CompareTest):
    # ---- paired differences

    def test_paired_figures_are_those_of_the_differences(self):
        a, b = [2.5, 2.9, 2.2, 2.6], [2.31, 2.73, 2.02, 2.38]
        self.make_seeds("a", a)
        self.make_seeds("b", b, {"train": {"lr": 0.01}})
        differences = np.subtract(b, a)
        mean, error = np.mean(differences), np.std(differences, ddof=1) / 2
        (pair,) = self.json("runs")["paired"]
        self.assertEqual((pair["group"], pair["base"], pair["n"]), ("lr 0.01", "lr 0.001", 4))
        np.testing.assert_allclose((pair["mean"], pair["standard_error"]), (mean, error), rtol=1e-12)
        # The groups' own spread (0.29) is far larger than the difference: only the pairs show it.
        self.assertEqual(pair["verdict"], "a clear difference")
        shown = self.compare("runs")
        self.assertRegex(shown, r"(?m)^final val minus that of lr 0.001, seed by seed.*\n"
                         rf"  lr 0.01  {mean:.3f} ± {error:.3f}  lower in 4 of 4 shared seeds: a clear difference$")
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")

    def test_only_shared_seeds_that_are_done_count(self):
        self.make_seeds("a", {2: 2.1, 6: 2.0})
        self.make_seeds("a", {1: 2.0, 5: 9.0}, status="interrupted")
        self.make_seeds("b", {2: 2.2, 6: 2.3, 1: 2.4, 7: 0.1}, {"train": {"lr": 0.01}})
        (pair,) = self.json("runs/a-2", "runs")["paired"]
        self.assertEqual((round(pair["mean"], 9), pair["n"]), (0.2, 2))
        self.assertNotIn("diverge", pair["text"])
        self.diverged("runs/b-8", 7, train={"lr": 0.01, "seed": 8})
        (pair,) = self.json("runs/a-2", "runs")["paired"]
        self.assertEqual((round(pair["mean"], 9), pair["n"]), (0.2, 2))
        self.assertIn("2 shared seeds that did not diverge", pair["text"])

    def test_one_seed_in_common_is_no_pair(self):
        self.make_seeds("a", {1: 2.0, 2: 2.1})
        self.make_seeds("b", {2: 2.2, 3: 2.3}, {"train": {"lr": 0.01}})
        self.make_seeds("c", {4: 2.2, 5: 2.3}, {"train": {"lr": 0.02}})
        self.assertEqual(self.json("runs")["paired"], [])
        self.assertNotIn("seed by seed", self.compare("runs"))

    def test_many_pairs_at_once(self):
        for i in range(5):
            self.make_seeds(f"r{i}", [2.0 + i, 2.1 + i], {"train": {"lr": 0.01 + i / 100}})
        self.assertNotIn("many_comparisons", self.kinds())
        self.make_seeds("r5", [7, 8], {"train": {"lr": 0.5}})
        self.assertRegex(self.remark("many_comparisons"), "^lr 0.01: 5 configs .* chance")

    # ---- labels

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
                ([{}, {"model": {"residual": False}}], ["residual true", "residual false"]),
                ([{}, {"model": {"norm": "none"}}], ["layernorm", "no norm"]),
                ([{}, {"train": {"lr": 0.01, "warmup_steps": 1}}], ["lr 0.001 · warm-up 0", "lr 0.01 · warm-up 1"]),
                ([{}, {"data": {"path": self.path("more.txt")}}], ["text", "more"]),
                ([{}, five], ["layernorm · adamw · L 2 · C 16", "rmsnorm · sgd · L 3 · C 32"]),  # four at most
                ([{}], ["pre · layernorm"]))):
            with self.subTest(labels=labels):
                for i, change in enumerate(changes):
                    self.make(f"labels{number}/{i}", changes=change)
                self.assertEqual(self.labels(f"labels{number}"), labels)

    def test_keys_without_a_use_and_bookkeeping_set_nothing_apart(self):
        for number, (changes, summary) in enumerate((
                ({"train": {"momentum": 0.9}}, {}), ({"model": {"norm_groups": 8}}, {}),
                ({"model": {"mix_post_fraction": 0.5}}, {}),
                ({"train": {"threads": 3}, "log": {"every": 1}, "name": "z", "checkpoint": {"every": 7}}, {}),
                ({"data": {"path": "same.txt"}}, {"corpus_hash": "0123456789abcdef"}))):
            with self.subTest(changes=changes):
                self.make(f"same{number}/a", **summary)
                self.make(f"same{number}/b", changes=merged(changes, {"train": {"seed": 2}}), **summary)
                self.assertEqual({label: row["seeds"] for label, row in self.csv(f"same{number}").items()},
                                 {"pre · layernorm": "2"})

    def test_a_text_is_known_by_its_hash(self):
        self.write("same.txt", TEXT)
        for seed, path in enumerate(("text.txt", "same.txt")):
            self.train(f"runs/{seed}", {"data": {"path": path}, "train": {"steps": 1, "seed": seed}})
        self.assertEqual([run["seeds"] for run in self.json("runs")["runs"]], [[0, 1]])

    def test_a_scale_that_only_a_tied_head_uses(self):
        xavier = {"model": {"init": {"scheme": "xavier_normal"}}}
        for std in (0.02, 0.5):
            self.make(f"runs/{std}", changes=merged(xavier, {"model": {"init": {"std": std}}}))
        self.assertEqual(self.labels(), ["std 0.02", "std 0.5"])
        self.assertIn(": model.init.std; with that comes model.init.embed_std 0.02 -> 0.5", self.remark("differs"))

    def test_a_seed_that_is_there_twice_is_told_apart_by_its_folder(self):
        for folder in ("old", "new"):
            for seed in (1, 2):
                self.make(f"{folder}/{seed}", changes={"train": {"seed": seed}})
        start = "pre · layernorm · "
        rows = self.csv("old", "new")
        self.assertEqual({label: row["seeds"] for label, row in rows.items()}, {start + "old/1": "2", start + "new/1": "2"})
        self.make("old/again")
        self.make("old/post", changes={"model": {"norm_placement": "post"}})
        self.assertEqual(self.labels("old"), ["pre · old/1", "pre · old/again", "post"])
        self.assertIn("pre · old/again against pre · old/1: the same config", self.compare("old"))


class Remarks(CompareTest):
    def remark_on_change(self, changes, base=None):
        """What is said of a run whose config has these changes beside one that has not."""
        self.clear()
        self.make("runs/a", changes=base)
        self.make("runs/b", changes=merged(base or {}, changes))
        return self.remark("differs")

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
                self.assertEqual(f"{len(chosen)} choices at once: which is the cause cannot be told" in line, len(chosen) > 1)
                self.assertCountEqual(self.json("runs")["runs"][1]["choices"], chosen)

    def test_what_is_said_of_several_is_said_once(self):
        for i in range(9):
            self.diverged(f"runs/{i}", 7, train={"lr": (i + 1) / 100})
        self.assertTrue(self.remark("diverged").startswith("all: diverged at step 7"))
        self.make("runs/9", changes={"train": {"lr": 0.1}})
        (lost,) = [remark for remark in self.json("runs")["remarks"] if remark["kind"] == "diverged"]
        self.assertEqual(len(lost["groups"]), 9)
        self.assertTrue(lost["text"].startswith("lr 0.01, lr 0.02, lr 0.03, lr 0.04, lr 0.05 and 4 more: diverged at step 7"))

    def test_values_stand_in_labels_or_in_the_remark(self):
        line = self.remark_on_change({"model": {"norm_placement": "post"}, "train": {"lr": 0.5}})
        self.assertIn("post · lr 0.5 against pre · lr 0.001: model.norm_placement, train.lr; with that comes "
                      "model.final_norm true -> false, train.min_lr 0.0001 -> 0.05; 2 choices at once", line)

    def test_an_initialisation_that_comes_along_may_be_the_cause(self):
        words = "other weights too, which may be the cause"
        self.assertIn(words, self.remark_on_change({"model": {"norm_placement": "pre_scaled"}}))
        base = {"model": {"init": {"scheme": "xavier_normal"}}}
        self.assertIn(words, self.remark_on_change({"model": {"norm_placement": "deepnorm"}}, base))
        self.assertNotIn(words, self.remark_on_change({"model": {"norm_placement": "post"}}, base))
        self.assertNotIn(words, self.remark_on_change({"model": {"init": {"std": 0.1}}}))

    def not_comparable(self, changes=None, **summary):
        """The keys because of which two groups are said not to be comparable, of which the second has these changes."""
        self.clear()
        self.make_seeds("a", [2.5, 2.6], corpus_hash="0123456789abcdef")
        self.make_seeds("b", [2.4, 2.5], merged({"model": {"norm_placement": "post"}}, changes or {}), **summary)
        said = self.json("runs")
        texts = [remark["text"] for remark in said["remarks"] if remark["kind"] == "not_comparable"]
        self.assertEqual(len(said["paired"]), 1 - len(texts))  # what is not comparable is not subtracted
        return [text.split(": other ")[1] for text in texts]

    def test_losses_that_are_not_comparable(self):
        self.assertEqual(self.not_comparable(), [])
        other = {"data": {"path": "other.txt"}}
        self.assertEqual(self.not_comparable(other), ["data.path"])
        self.assertEqual(self.not_comparable(other, corpus_hash="f" * 16), ["data.path"])
        self.assertEqual(self.not_comparable(other, corpus_hash="0123456789abcdef"), [], "one text in two places")
        self.assertEqual(self.not_comparable({"train": {"steps": 3}}), ["train.steps"])
        self.assertEqual(self.not_comparable({"data": {"val_fraction": 0.2}}), ["data.val_fraction"])
        self.assertEqual(self.not_comparable({**other, "train": {"steps": 3}}), ["data.path, train.steps"])

    def test_a_diverged_run_tells_its_story(self):
        self.diverged("runs/lost", 7)
        self.assertEqual(self.remark("diverged"), "pre · layernorm: diverged at step 7; block 1 ffn_out became non-finite in "
                         "step 7")
        self.assertRegex(self.compare("runs"), r"(?m)^pre · layernorm .* diverged .* 1\.01e\+06 ")

    def test_a_mean_over_survivors_is_biased(self):
        self.make_seeds("a", [2.5, 2.6])
        self.diverged("runs/a-3", 7, train={"seed": 3})
        self.assertRegex(self.remark("diverged"), r"^pre · layernorm \(1 of 3 seeds\): diverged at step 7; .*biased")
        row = self.csv("runs")["pre · layernorm"]
        self.assertEqual((row["seeds"], row["status"]), ("3", "1 diverged, 2 done"))
        self.assertAlmostEqual(float(row["final_val_loss"]), 2.55, delta=1e-12)
        self.assertAlmostEqual(float(row["final_train_loss"]), 4.25, delta=1e-12)
        self.clear()
        for seed in (1, 2):
            self.diverged(f"runs/a-{seed}", 7, train={"seed": seed})
        self.assertAlmostEqual(float(self.csv("runs")["pre · layernorm"]["final_train_loss"]), 1009349.8425, delta=1e-6)
        self.assertNotIn("biased", self.remark("diverged"))

    def test_runs_that_are_not_done_are_named(self):
        self.make_seeds("a", [2.5, 2.6])
        self.assertEqual(self.kinds(), {})
        self.make("runs/a-3", 2.7, {"train": {"seed": 3}}, status="interrupted", steps=1)
        said = "interrupted at step 1 of 2; figures of a run that is not done are no result"
        self.assertEqual(self.remark("unfinished"), f"pre · layernorm (1 of 3 seeds): {said}")
        self.assertEqual(self.remark("unfinished", "runs/a-3"), f"pre · layernorm: {said}")

    def said_of(self, kind, losses, **summary):
        """The beginning of the remark of that kind, if there is one, on seeds with these losses."""
        self.clear()
        self.make_seeds("a", losses, **summary)
        return [r["text"].split(":")[0] for r in self.json("runs")["remarks"] if r["kind"] == kind]

    def test_the_unigram_level_is_said_of_finished_runs_only(self):
        for losses, name in (([3.05], ""), ([3.05, 2.93], ""), ([3.1], None), ([2.5, 3.5], None),  # their mean is there
                             ([3, 1, 3], " (2 of 3 seeds)")):
            self.assertEqual(self.said_of("unigram", losses, unigram=3.0), [] if name is None else ["pre · layernorm" + name])
        for status in ("diverged", "interrupted", "probe"):
            self.assertEqual(self.said_of("unigram", [3.0], unigram=3.0, status=status), [])
        self.assertEqual(self.said_of("unigram", [3.0]), [], "an older run does not say where the level is")

    def test_a_run_that_has_exploded_without_a_nan(self):
        for losses, name in (([8020.0], ""), ([8020.0, 4.5, 2.0], " (2 of 3 seeds)"), ([math.log(VOCABULARY) - 0.01], None)):
            self.assertEqual(self.said_of("exploded", losses), [] if name is None else ["pre · layernorm" + name])
        self.assertEqual(len(self.said_of("exploded", [None], final_train_loss=9.0)), 1, "without a validation split")
        for summary in ({"status": "diverged"}, {"status": "interrupted"}, {"status": "probe"}, {"vocab": None}):
            self.assertEqual(self.said_of("exploded", [8020.0], **summary), [], summary)

    def test_branches_too_small_to_matter(self):
        for share, said in ((0.04, True), (0.06, False), (None, False)):
            self.assertEqual(bool(self.said_of("small_branch", [2.5], branch_share=share)), said)
        run = self.train("older")  # whose summary did not have it: layers.csv tells it
        self.write(run.file("summary.json"), json.dumps({**run.summary, "branch_share": None}))
        rows = run.rows("layers.csv")
        for share, said in ((0.04, True), (0.06, False)):
            for row in rows:
                row["rms"] = share if row["site"] in ("attn_out", "ffn_out") else 1
            lines = [",".join(map(str, row.values())) for row in rows]
            self.write(run.file("layers.csv"), "\n".join([",".join(rows[0]), *lines, ""]))
            self.assertEqual("small_branch" in self.kinds("older"), said)

    def test_a_branch_that_is_small_by_its_placement_s_design_is_not_held_against_it(self):
        for placement, said in (("pre", True), ("post", True), ("mix", True), ("pre_scaled", True), ("rezero", False),
                                ("none", False), ("deepnorm", False), ("sandwich", False), ("res_post", False)):
            self.clear()
            self.make("runs/a", changes={"model": {"norm_placement": placement}}, branch_share=0.01)
            self.assertEqual("small_branch" in self.kinds(), said, placement)

    def test_norms_that_see_later_characters(self):
        for norm, said in (("instancenorm", "losses are not those of a causal model"),
                           ("batchnorm", "training loss is not that of a causal model"), ("rmsnorm", None)):
            self.clear()
            self.make("runs/a", changes={"model": {"norm": norm}})
            self.assertEqual("leaks" in self.kinds(), said is not None, norm)
            self.assertIn(said or "", self.compare("runs"))

    # ---- hostile content

    def test_nothing_raw_reaches_the_terminal(self):
        for seed in (1, 2):
            self.make(f"runs/{HOSTILE}{seed}", None, {"train": {"seed": seed}}, status="diverged",
                      story=HOSTILE + "\r\x9b", first_nonfinite={"step": "x", "layer": HOSTILE})
        self.make(f"runs/{HOSTILE}-again", 2.5, status="diverged", story=HOSTILE)
        self.make(f"runs/{HOSTILE}-other", 2.5, {"train": {"lr": 0.01}}, status=HOSTILE, steps=-1e300)
        self.make("runs/odd", 2.5, {"train": {"lr": 0.02}}, status=3, story=[1], first_nonfinite="no", vocab="many")
        for form in ((), ("--json",), ("--csv",)):
            self.assert_no_controls(self.compare(*form, "runs"))
        self.assertIn(r"a\x1b[31m\nb\x07\u202ec", self.compare("runs"))
        rows = self.csv("runs")
        self.assertEqual([len(row) for row in rows.values()], [len(COLUMNS)] * 4)
        self.assertEqual(sum(label.startswith("lr 0.001 · runs/a") for label in rows), 2)
        self.assertLessEqual({"lr 0.01", "lr 0.02"}, set(rows))


if __name__ == "__main__":
    unittest.main()
