#!/usr/bin/python3
"""scripts/compare.py: groups and labels, figures, differences seed by seed, and conclusions that can and
cannot be drawn."""

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import shutil
import unittest
from pathlib import Path
from unittest import mock

from cli import ROOT, VOCABULARY, CliTest, Run, merged, write_run
from made_runs import resolved

import compare  # in scripts, which cli.py puts on the path
from lib.base import files
from lib.base.tables import csv_text
from lib.compare import pairs
from lib.compare.comparison import METRICS, comparison
from lib.compare.configs import configs_of
from lib.compare.groups import group_by_config
from lib.compare.ranges import tables_in
from lib.figures import layout
from lib.logs import runs
from lib.logs.runs import find_runs

HOSTILE = "a\x1b[31m\nb\x07\u202ec,\"d"
SUMMARY = {"status": "done", "steps": 2, "params": 7760, "vocab": VOCABULARY, "final_train_loss": 4.25,
           "grad_first_last": 0.8,
           "growth": 2.5, "tokens_per_s": 1e5, "branch_share": 0.5, "corpus_hash": "0123456789abcdef"}
RMS, POST, FAST = {"model.norm": "rmsnorm"}, {"model.norm_placement": "post"}, {"train.lr": 0.01}
COLUMNS = ["run", "name", "folder", "seeds", "placement", "norm", "n_layer", "params", "status"] + [
    f"{key}{part}" for key in METRICS for part in ("", "_standard_error")]


class Arithmetic(unittest.TestCase):
    def test_students_t(self):
        """5% lie beyond the quantiles of scipy.stats.t.ppf(0.975, n)."""
        for degrees, quantile in ((1, 12.706204736174694), (2, 4.302652729749462), (3, 3.1824463052837078),
                                  (10, 2.228138851986274), (29, 2.045229642132703), (999, 1.9623414611334493)):
            self.assertAlmostEqual(pairs.two_sided_p(quantile, degrees), 0.05, delta=5e-13)

    def test_verdicts(self):
        clear, few = "a clear difference", "too few seeds to tell from chance"
        for differences, verdict in (
                ([0, 0, 0], "the same losses"), ([0.30, 0.31], few), ([0.3, -0.2], "cannot be told apart"),
                ([-0.30, -0.31, -0.32], clear), ([0.5] * 3, clear), ([0.3, 0.1, 0.24], few),  # t 3.6, needs 4.3
                ([0.2, 0.2, 0.2, 0.2, -0.02], clear)):  # t 3.5, needs 2.8
            self.assertEqual(pairs.verdict_on(differences), verdict, differences)
        for seeds, t, verdict in ((100, 1.99, clear), (60, 2.07, clear), (60, 1.99, few),
                                  (100, 1.95, "cannot be told apart")):
            e = math.sqrt(seeds - 1) / t  # pairs 1 - e, 1 + e have mean 1 and standard error e/sqrt(n - 1)
            self.assertEqual(pairs.verdict_on([1 - e, 1 + e] * (seeds // 2)), verdict, (seeds, t))

    def test_figures_in_words(self):
        loss = "best_val_loss"
        for values, key, text in (([], loss, "-"), ([2.51234], loss, "2.5123"), ([2.5, 2.6], loss, "2.550 ± 0.050"),
                                  ([7.0123e-17], "growth", "7.01e-17"), ([1009349.8], loss, "1.01e+06"),
                                  ([1e6, 2e6], loss, "1.5e+06 ± 5e+05"), ([2.0, 2.0], "growth", "2.0000 ± 0"),
                                  ([3.09] * 3, loss, "3.0900 ± 0"), ([3.09, 3.09 + 1e-7], loss, "3.0900 ± 5e-08"),
                                  ([1.0, math.inf], "growth", "inf")):
            self.assertEqual(pairs.metric_text(values, key), text)
        self.assertEqual(pairs.with_error(-0.01442, 0.00291), "-0.0144 ± 0.0029")
        self.assertEqual(pairs.seed_by_seed({1: 2.3, 2: 2.4, 3: 2.9}, {1: 2.2, 2: 2.3, 3: 2.8})["difference"],
                         "+0.1000 ± 0")  # the differences are 0.1 but for rounding


class CompareTest(CliTest):
    def setUp(self):
        super().setUp()
        self.config({"train": {"steps": 2}})
        os.mkdir(self.path("runs"))
        self.write("runs/.lock", "")  # as in the folder of a sweep

    def made(self, folder, loss=2.5, settings={}, **summary):
        """A run without files, whose summary has this final_val_loss and what else is given. `settings`: {dotted key:
        value}."""
        (config,) = resolved(self.path("tiny.json"), settings)
        return runs.Run(self.path(folder), {**config, "name": settings.get("name", os.path.basename(folder))},
                        {**SUMMARY, "final_val_loss": loss, "best_val_loss": loss, **summary})

    def save(self, *made):
        """Makes the folders of runs, without logs."""
        for run in made:
            write_run(run.folder, run.config, run.summary)

    def seeds(self, losses, settings={}, name="a", **summary):
        """Runs name-1, name-2, …: a seed for each loss; or seeds and losses from a dict."""
        losses = losses if isinstance(losses, dict) else dict(enumerate(losses, start=1))
        return [self.made(f"runs/{name}-{seed}", loss, {**settings, "train.seed": seed}, **summary)
                for seed, loss in losses.items()]

    def labels(self, made):
        return [entry["label"] for entry in comparison(made)["runs"]]

    def remarks(self, kind, made, **options):
        return [remark["text"] for remark in comparison(made, **options)["remarks"] if remark["kind"] == kind]

    def cells(self, made, *columns, **options):
        """The cells of these columns of the CSV, a tuple a row."""
        titles, *rows = compare.rows_of_csv(comparison(made, **options)["runs"])
        return [tuple(row[titles.index(column)] for column in columns) for row in rows]

    def printed(self, made, *arguments):
        """What compare.py prints of runs without files, which it is told to find in the folder `runs`."""
        with (mock.patch.object(compare, "find_runs", lambda *_: made),
              contextlib.redirect_stdout(io.StringIO()) as output):
            compare.main(["runs", *arguments])
        self.assert_no_controls(output.getvalue())
        return output.getvalue()

    def compare(self, *arguments, code=0):
        """The script's output, or its message where it fails."""
        done = self.script("compare.py", *arguments, code=code)
        self.assert_no_controls(done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr


class GroupsAndLabels(CompareTest):
    def test_labels_tell_the_keys_that_differ(self):
        five = {"train.lr": 0.1, "train.optimizer": "sgd", "model.n_layer": 3, "model.d_model": 32, **RMS}
        for settings, labels in (
                ([{}, POST], ["pre", "post"]),
                ([{}, {"model.n_layer": 4, **RMS}], ["layernorm · L 2", "rmsnorm · L 4"]),
                ([{}, {"model.norm_placement": "rezero"}], ["pre", "rezero"]),
                ([{}, {"model.d_model": 32}], ["C 16", "C 32"]),  # d_ff follows
                ([{}, {"model.d_ff": 32}], ["d_ff 64", "d_ff 32"]),  # it was chosen
                ([{"model.norm_placement": ["pre", "post"]}, {"model.norm_placement": ["post", "post"]}],
                 ["pre, post", "post ×2"]),
                ([{}, {"model.norm": "none"}], ["layernorm", "no norm"]),
                ([{}, {"train.warmup_steps": 1, **FAST}], ["lr 0.001 · warm-up 0", "lr 0.01 · warm-up 1"]),
                ([{}, five], ["layernorm · adamw · L 2 · C 16 · lr 0.001", "rmsnorm · sgd · L 3 · C 32 · lr 0.1"]),
                ([{}, {"train.momentum": 0.9, "train.threads": 3, "train.seed": 2, "log.every": 1, "name": "z"}],
                 ["pre · layernorm"]),
                ([{}], ["pre · layernorm"])):
            with self.subTest(labels=labels):
                made = [self.made(f"runs/{i}", settings=changes) for i, changes in enumerate(settings)]
                self.assertEqual(self.labels(made), labels)

    def test_runs_of_no_sweep_are_called_by_their_folders(self):
        """Keys stand beside them where they tell all runs apart; where they do not, no key is named as the cause."""
        decay, broken = {"train.weight_decay": 100.0}, [RMS, {"model.n_layer": 3}, {"train.lr": 0.3}]
        for settings, labels in (
                ({"pre": {}, "post": POST}, ["pre", "post"]),
                ({"a": {}, "b": decay}, ["a · weight_decay 0.1", "b · weight_decay 100"]),
                (dict(zip("abcdef", [{}, decay, POST, *broken])), [*"abcdef"]),
                ({"a": {}, "b": {}, "c": decay}, ["a", "b", "c"]),
                ({"x/pre-1": {}, "x/pre-2": {"train.seed": 2}, "x/post": POST}, ["pre", "post"]),
                ({"anna/1": {}, "anna/2": {"train.seed": 2}, "bob/1": decay, "bob/2": {"train.seed": 2, **decay}},
                 ["anna · weight_decay 0.1", "bob · weight_decay 100"])):
            made = [self.made(folder, settings={"name": "tiny", **changes}) for folder, changes in settings.items()]
            with self.subTest(labels=labels):
                self.assertEqual(self.labels(made), labels)
                self.assertEqual(len({group.color for group in layout.styled(group_by_config(made))}), len(labels))

    def test_a_key_of_another_version_makes_rows_differ(self):
        one, other = self.seeds([2.5, 2.6])
        other.config["model"]["soft_cap"] = {"at": 30}
        self.assertEqual(len(self.labels([one, other])), 2)
        self.assertEqual([text.partition(": ")[2] for text in self.remarks("differs", [one, other])],
                         ["the same config; with that comes model.soft_cap.at null -> 30"])

    def test_one_choice_and_what_follows_from_it(self):
        for settings, chosen, followed in (
                (POST, ["model.norm_placement"], ["model.final_norm"]),
                ({"model.norm_placement": "rezero"}, ["model.norm_placement"],
                 ["model.norm", "model.norm_bias", "model.final_norm"]),
                (RMS, ["model.norm"], ["model.norm_bias"]),
                ({"model.init.scheme": "xavier_normal", "model.tie_embeddings": False},
                 ["model.tie_embeddings", "model.init.scheme"],
                 ["model.init.embed_std", "model.init.residual_scaling"]),
                ({"train.optimizer": "sgd", "train.momentum": 0.9}, ["train.optimizer"], ["train.momentum"]),
                ({"train.lr": 0.5}, ["train.lr"], ["train.min_lr"]),
                ({"train.lr": 0.5, "train.min_lr": 0.3}, ["train.lr", "train.min_lr"], []),
                ({"model.d_model": 32}, ["model.d_model"], ["model.d_ff"]),
                ({"model.d_ff": 24}, ["model.d_ff"], []),
                ({"model.bias": True}, ["model.bias"], ["model.ffn_bias"]),
                ({"model.ffn_bias": True}, ["model.ffn_bias"], []),
                ({"model.final_norm": False}, ["model.final_norm"], []),
                ({"train.schedule": "constant"}, ["train.schedule"], [])):
            made = [self.made("runs/a"), self.made("runs/b", settings=settings)]
            one, other = configs_of(made)
            difference = other.minus(one)
            self.assertEqual(difference.choices, chosen)
            self.assertEqual([change.key for change in difference.changes if not change.cause], followed)
            self.assertEqual("2 choices at once: which is the cause cannot be told" in self.remarks("differs", made)[0],
                             len(chosen) == 2)

    def test_a_sweep_keeps_its_order_whatever_its_names_hold(self):
        """Line separators in a cell begin no row of the sweep's table. Runs of no sweep stand before, pre-norm first."""
        names = ["path=c,\u2028b", "path=b\x85,a", "path=a\x0bb"]
        self.save(*(self.made(f"runs/{name}", settings=POST if name == names[0] else {}) for name in names))
        self.save(self.made("alone/a", settings=POST), self.made("alone/b"), self.made("zero"))
        self.write("runs/summary.csv", csv_text([["name", "train.lr"], *([name, name] for name in names)]))
        for folder, others in (("runs", []), ("", ["zero", "b", "a"])):
            found = find_runs([self.path(folder)], "config.json")
            self.assertEqual([run.folder.name for run in found], others + names)

    def test_a_text_is_its_hash(self):
        self.write("other.txt", "another text " * 100)
        comparable = "losses are not comparable with those of"
        for first, second, path, remarks in (
                ("aa" * 8, "aa" * 8, "other.txt", []),  # one text in two places
                ("aa" * 8, "bb" * 8, "text.txt", [f"text #bbbbbb: {comparable} text #aaaaaa: other data.hash"]),
                ("aa" * 8, "bb" * 8, "other.txt", [f"other: {comparable} text: other data.path"]),
                (None, None, "other.txt", [f"other: {comparable} text: other data.path"]),
                (None, None, "text.txt", [])):  # of runs that have no hash the path is compared
            made = self.seeds({1: 2.5, 2: 2.6}, corpus_hash=first)
            made += self.seeds({3: 2.4, 4: 2.5}, {"data.path": path}, corpus_hash=second)
            self.assertEqual(self.remarks("not_comparable", made), remarks)
            self.assertEqual(len(self.labels(made)), 1 + len(remarks))


class PairsAndRemarks(CompareTest):
    def test_paired_figures_are_those_of_the_differences(self):
        """The groups' own spread (0.29) is far larger than the difference: only the pairs show it."""
        shown = self.printed(self.seeds([2.5, 2.9, 2.2, 2.6]) + self.seeds([2.31, 2.73, 2.02, 2.38], FAST))
        self.assertRegex(shown, r"(?m)^final val minus that of lr 0.001, seed by seed.*\n"
                         r"  lr 0.01  -0.190 ± 0.011  lower in 4 of 4 shared seeds: a clear difference$")
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")

    def test_only_shared_seeds_that_are_done_count(self):
        made = self.seeds({2: 2.1, 6: 2.0}) + self.seeds({1: 2.0, 5: 9.0}, status="interrupted")
        made += self.seeds({2: 2.2, 6: 2.3, 1: 2.4, 7: 0.1}, FAST) + self.seeds({8: None}, FAST, status="diverged")
        (pair,) = comparison(made)["paired"]
        self.assertEqual((round(pair["mean"], 9), pair["n"]), (0.2, 2))
        self.assertIn("2 shared seeds that did not diverge", pair["text"])
        self.assertEqual(comparison([made[0], made[4]])["paired"], [])  # one seed is no pair

    def test_remarks_on_single_runs(self):
        level, absurd = {"unigram": 3.0}, math.log(VOCABULARY) + 0.1
        for kind, loss, summary, model, is_remarked in (
                ("unigram", 3.05, level, {}, True), ("unigram", 3.1, level, {}, False), ("unigram", 3.0, {}, {}, False),
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
            with self.subTest(kind=kind, loss=loss, summary=summary, model=model):
                made = self.made("runs/a", loss, {f"model.{key}": value for key, value in model.items()}, **summary)
                self.assertEqual(bool(self.remarks(kind, [made])), is_remarked)

    def test_remarks_on_groups(self):
        """The words of the only remark of its kind on these runs, or None."""
        def rates(losses):
            return [self.seeds([loss and loss + 0.01 * seed for seed in range(3)], {"train.lr": rate},
                               status="done" if loss else "diverged") for rate, loss in losses.items()]

        three, deep = self.seeds([2.0, 2.1, 2.2]), {"model.n_layer": 3}
        two, other = self.seeds([2.5, 2.6]), self.seeds([2.8, 2.9], FAST)
        more, others = self.seeds([2.5, 2.6, 2.69], deep), self.seeds([2.8, 2.9, 3.0], {**deep, **FAST})
        interrupted = self.seeds({4: 9.0}, RMS, status="interrupted")
        of_steps, equal, unequal = (self.seeds([2.5, 2.6], {"train.steps": steps, "train.batch_size": batch})
                                    for steps, batch in ((300, 8), (343, 7), (1195, 2)))
        for kind, text, *parts in (
                ("repeat", r"^\S+/new-1 · pre · layernorm: repeats \S+/a-1 · pre · layernorm: the configs are the same",
                 two, self.seeds([2.5, 2.6], name="new")),
                # numbers of tokens are equal up to less than a step
                ("differs", ": train.batch_size; with that comes train.steps 300 -> 343$", of_steps, equal),
                ("not_comparable", None, of_steps, equal),
                ("not_comparable", r": other train.steps \(at unequal tokens\)$", of_steps, equal, unequal),
                ("noise", None, two),
                ("noise", "the seed is 0.14 apart", three),  # a standard deviation of 0.1, times the root of 2
                ("noise", "the seed is 0.14 to 0.28 apart .* above 0.57$", three, self.seeds([2.0, 2.2, 2.4], RMS),
                 interrupted),
                ("one_seed", "^lr 0.001, lr 0.01: ", two[:1], other[:1]),
                ("weights", ": 5% more weights than layernorm$", two, self.seeds([2.5], RMS, params=8160)),
                ("weights", None, two, self.seeds([2.5], RMS, params=8000)),
                ("weights", None, two, self.seeds([2.5], deep, params=9000)),
                ("weights", None, two, self.seeds([2.5], {"model.d_ff": 32}, params=5000)),
                ("rate_at_edge", r"largest tried \(0.01\); a larger", *rates({0.001: 2.5, 0.003: 2.4, 0.01: 2.3})),
                ("rate_at_edge", r"smallest tried \(0.001\); a smaller", *rates({0.001: 2.3, 0.003: 2.4})),
                ("rate_at_edge", None, *rates({0.001: 2.5, 0.003: 2.3, 0.01: 2.4})),
                ("rate_at_edge", None, *rates({0.001: 2.5, 0.003: 2.3, 0.01: None})),
                ("rate_at_edge", None, *rates({0.001: 2.5, 0.003: 2.3, 0.01: 2.2}),
                 self.seeds({4: None}, FAST, status="diverged")),
                ("few_seeds", "^L 2 · lr 0.01: too few shared seeds to call .* clear .*; train more seeds$",
                 two, other, more, others),
                ("unigram", r"^pre · layernorm \(2 of 3 seeds\): the loss ends at the unigram level",
                 self.seeds([3.0, 1.0, 3.0], unigram=3.0))):
            with self.subTest(kind=kind, text=text):
                self.assertRegex("\n".join(self.remarks(kind, [run for part in parts for run in part])),
                                 text or r"\A\Z")

    def test_a_mean_over_survivors_is_biased(self):
        lost = self.seeds({3: None, 4: None}, status="diverged", final_train_loss=1009349.8425, best_val_loss=9)
        made = self.seeds([2.5, 2.6]) + lost
        self.assertRegex(self.remarks("diverged", made)[0],
                         r"^pre · layernorm \(2 of 4 seeds\): diverged at step 3; .*biased")
        self.assertIn("\n±: standard error of the mean over seeds, without those that diverged\n", self.printed(made))
        (entry,) = comparison(made)["runs"]
        self.assertEqual((entry["status"], entry["metrics"]["final_val_loss"]["n"]), ("2 diverged, 2 done", 2))
        self.assertAlmostEqual(entry["metrics"]["best_val_loss"]["mean"], 2.55)
        (entry,) = comparison(lost[:1])["runs"]  # all diverged: their loss is shown
        self.assertEqual(entry["metrics"]["final_train_loss"]["text"], "1.01e+06")

    def test_a_divergence_and_where_to_look_further(self):
        self.train("lost", {"model": {"norm": "none"}, "train": {"optimizer": "sgd", "lr": 20, "grad_clip": 0}}, code=3)
        run, lost = Run(self.path("lost")), find_runs([self.path("lost")], "")
        first = run.summary["first_nonfinite"]
        (text,) = self.remarks("diverged", lost)
        self.assertEqual(text.partition(": ")[2], f"diverged at step {first['step']}; block {first['layer']} "
                         f"{first['site']} became non-finite first; scripts/diagnose.py {run.path} shows what moved "
                         "before")


class NamedValues(CompareTest):
    """The names that a sweep's file gives to values of its grid and to cases are the labels of its runs."""

    VALUES = {"large": {"train.batch_size": 8, "train.steps": 2}, "small": {"train.batch_size": 2, "train.steps": 8}}
    BATCH = {"batch": ["train.batch_size", "train.steps"]}

    def named(self, keys, rows):
        """Two seeds of each run, {its name: (its labels, settings)}, and the labels with the `keys` that they stand
        for."""
        labels = {f"{name}-{seed}": labels for name, (labels, _) in rows.items() for seed in (1, 2)}
        self.write("runs/labels.json", json.dumps({"keys": keys, "runs": labels}))
        return [run for name, (_, settings) in rows.items() for run in self.seeds([2.5, 2.6], settings, name)]

    def test_a_name_stands_in_place_of_the_keys_that_it_sets(self):
        made = self.named(self.BATCH, {name: ({"batch": name}, settings) for name, settings in self.VALUES.items()})
        self.assertEqual([(entry["label"], entry["choices"]) for entry in comparison(made)["runs"]],
                         [("large", []), ("small", ["batch"])])
        self.assertEqual(self.remarks("differs", made),
                         ["small against large: batch (train.steps 2 -> 8, train.batch_size 8 -> 2)"])
        self.assertEqual(self.remarks("not_comparable", made), [])
        self.assertEqual(self.cells(made, "batch", "train.batch_size", "train.steps"),
                         [("large", "8", "2"), ("small", "2", "8")])

    def test_named_values_are_one_key_of_a_grid(self):
        made = self.named(self.BATCH, {f"{name}{layers}": ({"batch": name}, {**settings, "model.n_layer": layers})
                                       for name, settings in self.VALUES.items() for layers in (1, 2)})
        self.assertEqual(self.labels(made), ["large · L 1", "large · L 2", "small · L 1", "small · L 2"])
        result, columns = comparison(made), ("group", "partner", "setting", "values")
        self.assertEqual(result["key"], "batch")
        self.assertEqual([[pair[column] for column in columns] for pair in result["paired"]],
                         [["small · L 1", "large · L 1", "L 1", ["small", "large"]],
                          ["small · L 2", "large · L 2", "L 2", ["small", "large"]]])

    def test_losses_after_other_tokens_are_not_comparable_under_names_either(self):
        values = {**self.VALUES, "small": {"train.batch_size": 8, "train.steps": 3}}
        made = self.named(self.BATCH, {name: ({"batch": name}, settings) for name, settings in values.items()})
        self.assertIn("other train.steps (at unequal tokens)", self.remarks("not_comparable", made)[0])

    def test_a_case_is_called_by_its_name_and_compared_by_its_keys(self):
        warm = {"train.warmup_steps": 1}
        made = self.named({"case": ["model.norm_placement", "train.warmup_steps"]},
                          {"a": ({}, {}), "b": ({}, POST), "warm, up": ({"case": "warm, up"}, {**POST, **warm})})
        self.assertEqual(self.labels(made), ["pre", "post", "warm, up"])
        self.assertIn("warm, up against post: train.warmup_steps 0 -> 1", self.remarks("differs", made))
        self.assertIn("\nwarm, up\n", self.printed(made))
        self.assertEqual(len({(group.color, group.dash) for group in layout.styled(group_by_config(made))}), 3)
        made = self.named({"case": ["train.warmup_steps"]},
                          {"cold": ({"case": "cold"}, {}), "warm": ({"case": "warm"}, warm)})
        self.assertEqual(self.labels(made), ["cold", "warm"])
        self.assertEqual(self.labels(made[2:]), ["warm"])


class Unfinished(CompareTest):
    def test_a_run_that_ends_before_its_end_has_the_figures_of_its_last_checkpoint(self):
        """They are those of an undisturbed run of so many steps, as soon as it has begun again too, though it had
        diverged behind its checkpoint."""
        whole, run = (self.train(name, {"train": {"steps": steps, "schedule": "constant"}})
                      for name, steps in (("whole", 30), ("run", 20)))
        figures = {20: run.summary, 30: whole.summary}
        self.write("run/summary.json", json.dumps({**run.summary, "status": "diverged", "steps": 29, "growth": 9.0}))
        os.remove(run.file("model.safetensors"))
        os.mkdir(run.file("model.safetensors"))  # the run fails there, at its end, as if killed
        for steps, saved in ((21, 20), (31, 30)):
            self.normscope("train", "--resume", "run", "--set", f"train.steps={steps}", code=1)
            for key in ("final_train_loss", "best_val_loss", "best_step", "grad_first_last", "growth", "branch_share",
                        "trajectory_hash", "params", "corpus_hash"):
                self.assertEqual(run.summary[key], figures[saved][key], key)
            self.assertEqual((run.summary["status"], run.summary["steps"]), ("running", saved))
        self.assertIsNone(run.summary["final_val_loss"])
        unfinished = find_runs([run.path], "")
        self.assertIn(": stopped at step 31 of 31; ", self.remarks("unfinished", unfinished)[0])
        (entry,) = comparison(unfinished)["runs"]
        self.assertEqual((entry["status"], entry["metrics"]["growth"]["mean"]), ("stopped", whole.summary["growth"]))
        files.lock(run.path)
        self.assertIn(": running at step 31 of 31; ", self.remarks("unfinished", find_runs([run.path], ""))[0])


class Command(CompareTest):
    def setUp(self):
        super().setUp()
        self.pre, self.post = self.seeds([2.5, 2.6, 2.4], name="pre"), self.seeds([2.7, 2.8, 2.9], POST, "post")
        self.save(*self.pre, *self.post[:1])

    def test_the_table_and_its_forms_agree(self):
        shown = self.compare("runs", "runs/pre-1/")  # named twice: one run
        self.assertEqual(re.split("  +", shown.splitlines()[0]),
                         ["run", "seeds", "placement", "norm", "L", "params", "status", *(
            title for title in METRICS.values() if title != "tokens/s")])
        self.assertRegex(self.compare("--speed", "runs"), r"  tokens/s\n.* 100\.0k\n")
        self.assertRegex(shown, r"(?m)^pre +3 +pre +layernorm +2 +7,760 +done +2\.500 ± 0\.058 ")
        self.assertIn("\n- post against pre: ", shown)  # by alphabet post came first
        self.assertIn("\n- pre against post: ", self.compare("runs/post-1", "runs"))
        result = json.loads(self.compare("--json", "runs"))
        self.assertEqual([(run["label"], run["keys"], run["choices"], run["seeds"]) for run in result["runs"]],
                         [("pre", {"model.norm_placement": "pre"}, [], [1, 2, 3]),
                          ("post", {"model.norm_placement": "post"}, ["model.norm_placement"], [1])])
        self.assertEqual([f"- {remark['text']}" for remark in result["remarks"]],
                         [line for line in shown.splitlines() if line.startswith("- ")])
        rows = list(csv.DictReader(io.StringIO(self.compare("--csv", "runs"))))
        self.assertEqual(list(rows[0]), COLUMNS)
        self.assertEqual([(row["name"], row["folder"]) for row in rows],
                         [("pre-1; pre-2; pre-3", "runs/pre-1; runs/pre-2; runs/pre-3"), ("post-1", "runs/post-1")])
        for row, run in zip(rows, result["runs"]):
            for key, figure in run["metrics"].items():
                self.assertEqual([float(row[k]) if row[k] else None for k in (key, f"{key}_standard_error")],
                                 [figure["mean"], figure["standard_error"]])
        made = [*self.pre, *self.post, self.made("runs/deep", settings={"model.n_layer": 3, "train.lr": 0.5})]
        self.assertIn("\nall: norm layernorm, params 7,760, status done", self.printed(made))
        self.assertIn((3, "0.5"), self.cells(made, "n_layer", "train.lr"))  # a varied key is a column

    def test_members_of_the_json_are_documented(self):
        made = self.pre + self.post + self.seeds([2.1, 2.2], FAST, growth=math.inf)
        result = json.loads(self.printed(made, "--json", "--target", "2"), parse_constant=self.fail)
        self.assertIsNone(result["runs"][-1]["metrics"]["growth"]["mean"])  # JSON has no infinity
        documented = set(re.findall(r"`(\w+)`", Path(ROOT, "scripts", "README.md").read_text(encoding="utf-8")))
        entries = [result, result["runs"][0], *result["runs"][0]["metrics"].values(), *result["paired"],
                   *result["rates"], *result["remarks"]]
        self.assertTrue(result["paired"] and result["rates"])
        self.assertLessEqual(set().union(*entries), documented)

    def test_a_base_of_choice(self):
        folder = self.path("runs/post-1")
        for name in ("post", "post-1", folder, folder + "/", self.path(".//runs/post-1")):
            self.assertRegex(self.remarks("differs", self.pre + self.post, base=name)[0], "^pre against post: ")

    def test_a_key_and_a_metric_of_choice(self):
        """Warm-up 1 minus 0 at each depth, in growth; the same by --base and by hand; and in Markdown."""
        made = [self.made("runs/a", growth=depth + steps * (0.5 + 0.1 * seed), settings={
            "model.n_layer": depth, "train.warmup_steps": steps, "train.seed": seed})
            for depth, steps, seed in itertools.product((2, 3), (0, 1), (1, 2, 3))]
        pairs = comparison(made, by="train.warmup_steps", metric="growth")["paired"]
        self.assertEqual([(pair["setting"], pair["values"], round(pair["mean"], 9)) for pair in pairs],
                         [(f"L {depth}", ["warm-up 1", "warm-up 0"], 0.7) for depth in (2, 3)])
        self.assertEqual(comparison(made, base="warm-up 0", metric="growth")["paired"], pairs)
        reverse, _ = comparison(made, base="warm-up 1", metric="growth")["paired"]
        self.assertEqual((reverse["values"], round(reverse["mean"], 9)), (["warm-up 0", "warm-up 1"], -0.7))
        shown = self.printed(made, "--by", "train.warmup_steps", "--metric", "growth", "--markdown")
        self.assertIn("growth in each setting, and differences by train.warmup_steps, seed by seed (*: clear, by "
                      "Student's t at 5%):\n\n| setting | warm-up 0 | warm-up 1 minus warm-up 0 |\n|---|---|---|\n"
                      "| L 2 | 2.0000 ± 0 | +0.700 ± 0.058* |\n", shown)

    def test_configs_at_the_best_rate_of_each(self):
        made = [run for settings, losses in (
            ({}, [2.5] * 3), (FAST, [2.3] * 3), (RMS, [2.2, 2.3, 2.2]), ({**RMS, **FAST}, [2.4, 2.5, 2.4]))
            for run in self.seeds(losses, settings)]
        shown = self.printed(made)
        self.assertIn("\n  rmsnorm · lr 0.001  minus  layernorm · lr 0.01  -0.067 ± 0.033\n\n", shown)
        self.assertRegex(shown, r"(?m)^best learning rate .* \(\*: clear, by Student's t at 5%\):\n\n"
                         r".*\n.* \+0\.2\S* ± 0\*$")

    def test_one_broken_run_hides_no_other(self):
        self.write("runs/pre-1/summary.json", "{")
        self.write("runs/pre-2/config.json", json.dumps(merged(self.pre[1].config, {"model": {"n_layer": "\x1b"}})))
        lines = self.compare("runs", code=1).splitlines()
        self.assertRegex(lines[0], r"^\[compare\] runs/pre-1: damaged summary.json: ")
        self.assertRegex(lines[1], r"^\[compare\] runs/pre-2: damaged config.json: expected that of a run")
        done = self.script("compare.py", "--json", "runs", code=1)
        result = json.loads(done.stdout)
        self.assertEqual([run["label"] for run in result["runs"]], ["pre", "post"])
        self.assertEqual(done.stderr.splitlines(), lines)

    def test_mistakes_are_named(self):
        table = self.printed(self.pre + self.post, "--ranges", "3")
        for name, text in (("two.md", table + "\n" + table), ("damaged.md", table.replace('"seeds"', '"sed"')),
                           ("torn.md", table.replace(" [1", " 1"))):
            self.write(name, text)
        for arguments, code, words in (
                ("nowhere", 2, "nowhere: no such folder"),
                ("runs --base per", 2,
                 "--base: got per; expected a run's folder, a label, or a value in one: pre; post"),
                ("runs --by train.lr", 2, "in which the runs do not differ; they differ in model.norm_placement"),
                ("runs --metric status", 2, "--metric: got status; expected one of best_val_loss, "),
                ("runs --target nan", 2, "--target: got nan; expected a loss"),
                ("runs --csv --json", 2, "not allowed with"),
                ("runs --ranges 0", 2, "--ranges: got 0.0; expected a number above 0"),
                ("runs/pre-1 --ranges 3", 2, "no row has two values of best val; train more seeds"),
                ("runs --check none.md", 1, "none.md: No such file"),
                ("runs --check two.md", 2, "two.md: has 2 tables of ranges, and not one of runs; "),
                ("runs --check damaged.md", 2, "the comment below the table of `runs` is damaged"),
                ("runs --check torn.md", 2, "the comment below the table of `runs` is damaged")):
            with self.subTest(arguments):
                message = self.compare(*arguments.split(), code=code)
                self.assertIn(words, message)
                self.assertEqual(message.count("\n"), 1)

    def test_ranges_and_a_grade(self):
        """Runs with other seeds are graded by a table that --ranges has printed, in one line."""
        table = self.printed(self.pre + self.post, "--ranges", "3")
        self.assertIn("| `runs` | best val | final val | final train | grad first/last | growth |\n|---|", table)
        self.assertRegex(table, r"(?m)^\| post \| 2\.50 to 3\.10 \| 2\.50 to 3\.10 \| 4\.25 to 4\.25 \| .* \|$")
        others = self.seeds([2.7, 2.9, 3.1]) + self.seeds([2.7, 2.7, 2.7], POST)
        for asked in (table, table.partition("<!--")[0]):  # of an older file, without hashes
            page = self.write("page.md", f"Expect:\n\n{asked}\nNo range: | final val | 2 |\n")
            self.assertEqual(self.printed(others, "--check", page), (
                f"runs: 8 of 10 means are in the ranges of {page}; pre: best val 2.9, expected 2.20 to 2.80; "
                "pre: final val 2.9, expected 2.20 to 2.80\n"))
        tables = tables_in("\n".join(table.replace("`runs`", f"`{name}`") for name in ("runs", "./a/runs/", "b/pre")))
        self.assertEqual(str(tables[0]), table)
        for folder, own in (("runs", 0), ("./runs/", 0), ("runs/.", 0), ("a/runs", 1), ("b/pre", 2), ("c/pre", 2)):
            self.assertIs(compare.table_of(tables, folder, page), tables[own])

    def test_hand_ins(self):
        """Whatever is wrong is named; a right one passes, with other seeds too, and a half has its half."""
        def hand_in(folder, settings={}, parts=({}, POST), seeds=(1, 2, 3), **summary):
            for part, (number, seed) in itertools.product(parts, enumerate(seeds)):
                name = f"{folder}/{len(part)}-{seed}"
                self.save(self.made(name, 2.4 + 0.1 * number, {**part, **settings, "train.seed": seed},
                                    trajectory_hash=name, **summary))
            self.write(f"{folder}/.lock", "")

        hand_in("teacher")
        self.write("ranges.md", self.compare("teacher", "--ranges", "3"))
        hand_in("others", seeds=(11, 12, 13, 14))
        hand_in("half", parts=[POST])
        hand_in("beta2", {"train.beta2": 0.9})
        hand_in("seeds", seeds=[2])
        hand_in("text", corpus_hash="another")
        shutil.copytree(self.path("half"), self.path("copy"))
        for folder in ("teacher", "others"):
            self.assertEqual(self.compare(folder, "--check", "ranges.md"),
                             f"{folder}: 10 of 10 means are in the ranges of ranges.md\n")
        done = self.script("compare.py", "half", "beta2", "seeds", "text", "copy", "none", "--check",
                           "ranges.md", "--csv", code=1)
        columns, *rows, last = csv.reader(io.StringIO(done.stdout))
        self.assertEqual(columns, ["folder", "as_asked", "asked", "remarks"])
        both = "pre: {0}; post: {0}".format
        self.assertEqual(rows, [
            ["half", "5", "10", "pre: no runs; 3 runs with the digits of one in copy"],
            ["beta2", "0", "10", both("train.beta2 0.9, expected 0.99")],
            ["seeds", "0", "10", both("1 of 3 seeds are done")],
            ["text", "0", "10", both("another text")],
            ["copy", "5", "10", "pre: no runs; 3 runs with the digits of one in half"]])
        self.assertRegex(last[-1], "^none: no such folder; .*; pre: no runs; post: no runs$")

    def test_what_a_target_takes(self):
        """Steps, tokens and seconds to a loss, linear between evaluations. One that the first evaluation has passed is
        an upper bound, and so is a mean over such a run."""
        logs = {"fast": (4, 3, 2), "faster": (4, 2, 1), "never": (4, 4, 4), "passed": (2.4, 2.3), "exactly": (2.5, 2.4)}
        made = {name: self.made(f"runs/{name}", settings={"train.seed": seed}) for seed, name in enumerate(logs)}
        self.save(*made.values())
        for name, losses in logs.items():
            rows = [("step", "tokens", "val_loss", "seconds"),
                    *((10 * i, 640 * i, loss, 3 * i) for i, loss in enumerate(losses, start=1))]
            self.write(f"runs/{name}/metrics.csv", csv_text(rows))
        for names, cells, at_most in (
                (["fast"], ["25", "1,600", "7.5"], False), (["faster"], ["18", "1,120", "5.25"], False),
                (["fast", "faster", "never"], ["21.2 ± 3.8", "1,360 ± 240", "6.4 ± 1.1"], False),
                (["never"], ["-", "-", "-"], False), (["exactly"], ["10", "640", "3"], False),
                (["passed"], ["≤ 10", "≤ 640", "≤ 3"], True),
                (["passed", "fast"], ["≤ 18", "≤ 1,120", "≤ 5.25"], True)):
            (entry,) = comparison([made[name] for name in names], target=2.5)["runs"]
            figures = [entry["metrics"][f"{axis}_to_target"] for axis in ("steps", "tokens", "seconds")]
            self.assertEqual([figure["text"] for figure in figures], cells)
            self.assertEqual({figure["at_most"] for figure in figures}, {at_most})
        self.assertEqual(self.cells([made["passed"]], "steps_to_target", "steps_to_target_at_most", "tokens_to_target",
                                    target=2.5), [(10, True, 640)])
        shown = self.printed([made["fast"], made["never"], *self.post[:1]], "--target", "2.5")
        self.assertRegex(shown, r"steps to 2.5 +tokens to 2.5 +seconds to 2.5\n")
        self.assertIn("\n- pre (1 of 2 seeds), post: no evaluation is at or below 2.5\n", shown)

    def test_nothing_raw_reaches_the_terminal(self):
        made = self.pre + [self.made(f"runs/{HOSTILE}{seed}", None, {"train.seed": seed}, status="diverged",
                                     first_nonfinite={"step": "x", "layer": 1, "site": HOSTILE}) for seed in (4, 5)]
        made += [self.made(f"runs/{HOSTILE}-again", 2.5, {"train.seed": 4}, status="diverged",
                           first_nonfinite={"layer": HOSTILE}),
                 self.made("runs/other", 2.5, FAST, status=HOSTILE, steps=-1e300),
                 self.made("runs/odd", 2.5, {"train.lr": 0.02}, status=3, first_nonfinite="no", vocab="many",
                           corpus_hash=[1])]
        for form in ((), ("--json",), ("--csv",), ("--target", "2")):
            self.printed(made, *form)
        self.assertIn(r"a\x1b[31m\x0ab\x07\u202ec", self.printed(made))


if __name__ == "__main__":
    unittest.main()
