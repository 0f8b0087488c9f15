#!/usr/bin/python3
"""`normscope compare`: figures of seeds, of running runs and of probes, paired differences, labels. Its remarks:
test_cli_compare_remarks.py."""

import json
import math
import os
import re
import shutil
import unittest

import numpy as np

from cli import TEXT, VOCABULARY, Run, merged
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
        self.assertEqual({name: row["seeds"] for name, row in rows.items()}, {"post": "1", "pre": "3"})
        summaries = [Run(self.path("runs", f"pre-{seed}")).summary for seed in (1, 2, 3)]
        row = rows["pre"]
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

    def test_json_holds_the_table_the_pairs_and_every_sentence(self):
        self.train("runs/post-2", {"model": {"norm_placement": "post"}, "train": {"seed": 2}})
        said, shown, rows = self.json("runs"), self.compare("runs"), self.csv("runs")
        self.assertEqual([run["label"] for run in said["runs"]], ["post", "pre"])
        for run in said["runs"]:
            self.assertEqual(run["keys"], {"model.norm_placement": run["label"]})
            self.assertEqual(run["status"], {"done": len(run["seeds"])})
            for key, figure in run["figures"].items():
                row = rows[run["label"]]
                self.assertEqual((figure["mean"], figure["sd"], figure["n"]),
                                 (float(row[key]), float(row[f"{key}_spread"]), len(run["seeds"])))
                self.assertIn(f"  {figure['text']}", shown)
        self.assertEqual(said["runs"][1]["seeds"], [1, 2, 3])
        self.assertEqual(said["runs"][1]["folders"], [f"runs/pre-{seed}" for seed in (1, 2, 3)])
        losses = [[Run(self.path("runs", name)).summary["final_val_loss"] for name in names]
                  for names in (("post", "post-2"), ("pre-1", "pre-2"))]
        differences = np.subtract(losses[1], losses[0])
        (pair,) = said["paired"]
        self.assertEqual((pair["group"], pair["base"], pair["n"]), ("pre", "post", 2))
        np.testing.assert_allclose(pair["mean"], differences.mean(), rtol=1e-12)
        np.testing.assert_allclose(pair["standard_error"], differences.std(ddof=1) / math.sqrt(2), rtol=1e-9)
        self.assertIn(f"  pre  {pair['difference']}  {pair['text']}\n", shown)
        self.assertIn(pair["verdict"], pair["text"])
        self.assertEqual([f"- {remark['text']}" for remark in said["remarks"]],
                         [line for line in shown.splitlines() if line.startswith("- ")])
        for remark in said["remarks"]:
            self.assertLessEqual(set(remark["groups"]), {"pre", "post"})

    def test_a_base_of_choice(self):
        self.train("runs/post-2", {"model": {"norm_placement": "post"}, "train": {"seed": 2}})
        for name in ("pre", "runs/pre-2", "pre-2"):
            said = self.json("runs", "--base", name)
            self.assertEqual([pair["base"] for pair in said["paired"]], ["pre"])
            self.assertTrue(said["remarks"][0]["text"].startswith("post against pre: "))
        self.assertEqual(self.json("runs")["paired"][0]["base"], "post")
        self.refused("compare", "runs", "--base", "per", says=["--base", "post; pre"])
    def test_a_long_log_is_not_read_whole(self):
        run = Run(self.path("runs", "pre-1"))
        os.remove(run.file("summary.json"))  # killed: only the log says how large the branches were
        rows = run.bytes("layers.csv").split(b"\n", 1)[1]
        with open(run.file("layers.csv"), "ab") as file:
            for _ in range(50_000_000 // len(rows)):
                file.write(rows)
        self.assertLess(self.peak_rss_mb("compare", "runs")[0], 200)

    def test_the_table_shows_spread_and_warns_of_single_runs(self):
        shown = self.compare("runs")
        self.assertEqual(re.split("  +", shown.splitlines()[0]),
                         ["run", "placement", "norm", "L", "params", "status", "best val", "final val", "final train",
                          "grad first/last", "growth", "tokens/s"])
        self.assertRegex(shown, r"(?m)^pre x3 seeds .* ± ")
        self.assertIn("one seed a config", shown)
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")
        self.assertNotIn("seed by seed", shown)  # one seed is no pair
        self.assertNotIn("one seed a config", self.compare("runs/pre-1", "runs/pre-2"))

    def test_what_all_of_several_configs_share_is_said_once(self):
        self.train("runs/deep", {"model": {"n_layer": 3}})
        lines = self.compare("runs").splitlines()
        self.assertEqual(re.split("  +", lines[0])[:3], ["run", "params", "best val"])
        self.assertEqual(lines[4], "all: norm layernorm, status done")
        self.assertTrue(lines[1].startswith("pre · L 3 "))

    def test_one_run_named_twice_is_one_run(self):
        self.assertEqual(self.csv("runs/pre-1", "runs/pre-1/", self.path("runs/pre-1"))["pre · layernorm"]["seeds"], "1")

    def test_a_sweep_keeps_its_order_and_ends_in_pairs(self):
        self.write("sweep.json", json.dumps({"base": "tiny.json", "seeds": [1, 2], "grid": {
            "model.norm_placement": ["pre", "post"], "model.n_layer": [12, 2]}}))
        shown = self.normscope("sweep", "sweep.json", "--out", "out").stdout
        self.assertRegex(shown, r"(?m)^final val minus that of pre · L 12, seed by seed")
        self.assertEqual(list(self.csv("out")), ["pre · L 12", "pre · L 2", "post · L 12", "post · L 2"])
        os.remove(self.path("out", "summary.csv"))  # by name then, as a person sorts
        self.assertEqual(list(self.csv("out")), ["post · L 2", "post · L 12", "pre · L 2", "pre · L 12"])

    def test_one_broken_run_hides_no_other(self):
        self.write(self.path("runs/pre-1/summary.json"), "{")
        self.write(self.path("runs/pre-2/config.json"), "{")
        result = self.normscope("compare", "runs", code=1)
        self.assertRegex(result.stdout, r"(?m)^pre +pre ")
        self.assertEqual(len(result.stderr.splitlines()), 2)
        self.assertIn("runs/pre-1/summary.json: damaged", result.stderr)
        said = json.loads(self.normscope("compare", "--json", "runs", code=1).stdout)
        self.assertEqual([remark["kind"] for remark in said["remarks"]][-2:], ["unreadable"] * 2)

    def test_layers_are_read_no_further_than_the_first_step(self):
        run = Run(self.path("runs/post"))
        before = self.json("runs/post")
        rows = run.bytes("layers.csv")
        self.write(run.file("layers.csv"), rows + b"damaged\n" * 10 + b"\xff" * 100)
        self.assertEqual(self.json("runs/post"), before)
        for damaged in (b"", b"step,layer", rows[:200]):
            self.write(run.file("layers.csv"), damaged)
            self.assertEqual(self.json("runs/post")["runs"], before["runs"])


class Unfinished(CompareTest):
    """Runs that go on, or were killed: what their logs say so far."""

    def setUp(self):
        super().setUp()
        self.whole = self.train("whole", {"train": {"steps": 60}})

    def cut(self, folder, step, rows="metrics layers params"):
        """A copy of the run as a kill after `step` leaves it: rows up to there, and a torn one; no summary."""
        shutil.copytree(self.whole.path, self.path(folder))
        run = Run(self.path(folder))
        os.remove(run.file("summary.json"))
        for name in rows.split():
            lines = run.bytes(f"{name}.csv").decode().splitlines(keepends=True)
            kept = [line for line in lines[1:] if int(line.split(",")[0]) <= step]
            self.write(run.file(f"{name}.csv"), lines[0] + "".join(kept) + "999,1,str")
        return run

    def test_a_run_without_a_summary_shows_its_logs(self):
        run = self.cut("run", 40)
        (shown,) = self.json("run")["runs"]
        self.assertEqual((shown["status"], shown["params"]), ({"unfinished": 1}, self.whole.summary["params"]))
        metrics = [row for row in self.whole.rows("metrics.csv") if int(row["step"]) <= 40]
        figures = {key: figure["mean"] for key, figure in shown["figures"].items()}
        self.assertEqual(figures["final_train_loss"], float(metrics[-1]["train_loss"]))
        losses = [float(row["val_loss"]) for row in metrics if row["val_loss"]]
        self.assertEqual((figures["final_val_loss"], figures["best_val_loss"]), (losses[-1], min(losses)))
        speeds = [float(row["tokens_per_s"]) for row in metrics]
        self.assertAlmostEqual(figures["tokens_per_s"], len(speeds) / sum(1 / s for s in speeds), delta=1e-6 * speeds[0])
        stream = {row["layer"]: float(row["rms"]) for row in run.rows("layers.csv")[:-1]
                  if row["step"] == "40" and row["site"] == "stream"}
        self.assertAlmostEqual(figures["growth"], stream["2"] / stream["0"], delta=1e-12)
        norms = [[float(row["grad_norm"]) for row in run.rows("params.csv")[:-1]
                  if row["step"] == "40" and row["layer"] == layer] for layer in "12"]
        self.assertAlmostEqual(figures["grad_first_last"], math.dist(norms[0], [0] * len(norms[0]))
                               / math.dist(norms[1], [0] * len(norms[1])), delta=1e-9)
        self.assertIn("- pre · layernorm: unfinished at step 40 of 60; figures of a run that is not done are no result\n",
                      self.compare("run"))

    def test_the_last_step_s_figures_are_those_of_the_summary(self):
        summary = self.whole.summary
        self.cut("run", 60)
        figures = {key: figure["mean"] for key, figure in self.json("run")["runs"][0]["figures"].items()}
        for key in ("final_train_loss", "final_val_loss", "best_val_loss", "grad_first_last", "growth"):
            self.assertAlmostEqual(figures[key], summary[key], delta=1e-6 * summary[key])

    def test_an_older_summary_does_not_speak_for_later_steps(self):
        run = self.cut("run", 50)
        older = {**self.whole.summary, "status": "interrupted", "steps": 20, "final_train_loss": 9.0, "growth": 9.0}
        self.write(run.file("summary.json"), json.dumps(older))
        said = self.compare("run")
        self.assertIn(": unfinished at step 50 of 60;", said)
        self.assertNotIn(" 9 ", said)
        self.write(run.file("summary.json"), json.dumps({**older, "steps": 50}))
        said = self.compare("run")
        self.assertIn(": interrupted at step 50 of 60;", said)
        self.assertIn(" 9 ", said)

    def test_a_run_that_has_hardly_begun(self):
        self.cut("run", 0)
        row = self.csv("run")["pre · layernorm"]
        self.assertEqual((row["status"], row["params"], row["final_val_loss"]), ("unfinished", "0", ""))
        run = Run(self.path("run"))
        for name in ("metrics.csv", "layers.csv", "params.csv"):
            self.write(run.file(name), "")
        self.assertIn("unfinished at step 0 of 60", self.compare("run"))
        for name in ("metrics.csv", "layers.csv", "params.csv"):
            os.remove(run.file(name))
        self.assertIn("unfinished at step 0 of 60", self.compare("run"))

    def test_a_killed_run_is_seen_to_go_on(self):
        self.config({"train": {"steps": 100000}})
        process = self.start("train", "tiny.json", "--out", "live", "--quiet")
        self.wait_for_rows(self.path("live", "params.csv"), 100, process)
        live = self.json("live")["runs"][0]
        self.assertEqual(live["status"], {"unfinished": 1})
        self.assertGreater(live["params"], 0)
        for key in ("final_train_loss", "grad_first_last", "growth", "tokens_per_s"):
            self.assertIsNotNone(live["figures"][key]["mean"], key)


class Probes(CompareTest):
    def test_seeds_of_probes_become_mean_and_spread(self):
        shown = {}
        for placement in ("pre", "post"):
            name = self.config({"model": {"norm_placement": placement}})
            shown[placement] = self.normscope("probe", name, "--seeds", "3", "--out", placement).stdout
        for seed in (1, 2, 3):
            summary = Run(self.path("pre", f"seed-{seed}")).summary
            self.assertEqual((summary["status"], summary["steps"], summary["vocab"]), ("probe", 0, VOCABULARY))
            self.assertEqual((summary["final_val_loss"], summary["best_val_loss"]), (None, None))
        said = self.json("pre", "post")
        self.assertEqual([run["label"] for run in said["runs"]], ["pre", "post"])
        for run in said["runs"]:
            self.assertEqual(run["status"], {"probe": 3})
            line = re.search(r"(?m)^all +(.*)$", shown[run["label"]])[1]
            self.assertEqual(re.split("   +", line), [run["figures"][key]["text"] for key in
                                                      ("final_train_loss", "grad_first_last", "growth")])
            summaries = [Run(self.path(run["label"], f"seed-{seed}")).summary for seed in (1, 2, 3)]
            for key in ("final_train_loss", "grad_first_last", "growth"):
                np.testing.assert_allclose(run["figures"][key]["mean"], np.mean([s[key] for s in summaries]), rtol=1e-12)
                np.testing.assert_allclose(run["figures"][key]["sd"], np.std([s[key] for s in summaries], ddof=1),
                                           rtol=1e-9)
        self.assertEqual({remark["kind"] for remark in said["remarks"]} - {"small_branch"}, {"differs"})
        self.assertEqual(said["paired"], [])
        self.assertEqual(self.labels("pre/seed-1", "pre/seed-2"), ["pre · layernorm"])
        os.remove(self.path("pre/seed-1/summary.json"))  # as older probes were
        row, older = self.csv("pre/seed-2")["pre · layernorm"], self.csv("pre/seed-1")["pre · layernorm"]
        self.assertEqual((older["status"], older["params"]), ("probe", row["params"]))
        self.assertAlmostEqual(float(older["growth"]), float(row["growth"]), delta=0.1)

    def test_small_figures_are_printed_as_what_they_are(self):
        name = self.config({"model": {"norm": "none", "residual": False, "n_layer": 24,
                                      "init": {"scheme": "xavier_normal"}}})
        shown = self.normscope("probe", name, "--out", "deep").stdout
        self.assertRegex(shown, r"(?m)^1 .* \d\.\d+e-\d+$")
        self.assertNotIn(" 0.000", shown)

    def test_a_probe_is_no_run_of_its_config(self):
        self.train("run")
        self.normscope("probe", self.config({"train": {"seed": 2, "steps": 300}}), "--out", "probe")
        self.assertEqual(self.labels("run", "probe"), ["pre · layernorm", "pre · layernorm · probe"])


class Made(MadeCompareTest):
    """Runs with made-up results."""

    def pair(self, first, second):
        """The line of the paired difference of two groups with these losses: (mean, error, words)."""
        shutil.rmtree(self.path("runs"), ignore_errors=True)
        self.make_seeds("a", first)
        self.make_seeds("b", second, {"train": {"lr": 0.01}})
        shown = self.compare("runs")
        line = re.search(r"(?m)^final val minus that of lr 0.001, seed by seed.*\n  lr 0.01 +(\S+) ± (\S+)  (.*)$", shown)
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
        self.assertRegex(shown, r"(?m)^  lr 0\.01  \+0\.2000 ± 0\.1000  lower in 0 of 2 shared seeds: ")

    def test_a_pair_says_that_diverged_seeds_are_left_out(self):
        words = "; seeds that diverged are left out"
        self.make_seeds("a", [2.5, 2.6, 2.7])
        self.make_seeds("b", [2.4, 2.5], {"train": {"lr": 0.01}})
        self.assertNotIn(words, self.compare("runs"))
        self.diverged("runs/b-3", 7, train={"lr": 0.01, "seed": 3})
        self.assertRegex(self.compare("runs"), rf"(?m)^  lr 0\.01 +-0\.1000 ± \S+  lower in 2 of 2 shared seeds: .*{words}$")

    def test_groups_without_common_seeds(self):
        self.make_seeds("a", {1: 2.0, 2: 2.1})
        self.make_seeds("b", {2: 2.2, 3: 2.3}, {"train": {"lr": 0.01}})
        self.make_seeds("c", {4: 2.2, 5: 2.3}, {"train": {"lr": 0.02}})
        shown = self.compare("runs")
        self.assertRegex(shown, r"(?m)^  lr 0\.01 +one seed in common$")
        self.assertRegex(shown, r"(?m)^  lr 0\.02 +no seed in common$")

    def test_many_pairs_at_once(self):
        warning = "chance still calls one in 20 clear"
        for i in range(5):
            self.make_seeds(f"r{i}", [2.0 + i, 2.1 + i], {"train": {"lr": 0.01 + i / 100}})
        self.assertNotIn(warning, self.compare("runs"))
        self.make_seeds("r5", [7, 8], {"train": {"lr": 0.5}})
        self.assertIn(f"- 5 configs are compared with lr 0.01: where there is no difference, {warning}", self.compare("runs"))

    # ---- labels

    def test_labels_tell_the_keys_that_differ(self):
        for number, (changes, labels) in enumerate((
                ([{}, {"model": {"norm_placement": "post"}}], ["pre", "post"]),
                ([{}, {"model": {"norm": "rmsnorm", "n_layer": 4}}], ["layernorm · L 2", "rmsnorm · L 4"]),
                ([{}, {"model": {"norm_placement": "rezero"}}], ["pre", "rezero"]),
                ([{}, {"model": {"d_model": 32}}], ["C 16", "C 32"]),  # d_ff follows
                ([{}, {"model": {"d_ff": 32}}], ["d_ff 64", "d_ff 32"]),  # it was chosen
                ([{"model": {"norm_placement": ["pre", "post"]}}, {"model": {"norm_placement": ["post", "post"]}}],
                 ["pre, post", "post ×2"]),
                ([{}, {"model": {"residual": False}}], ["residual on", "residual off"]),
                ([{}, {"model": {"norm": "none"}}], ["layernorm", "no norm"]),
                ([{}, {"train": {"lr": 0.01, "warmup_steps": 1}}], ["lr 0.001 · warm-up 0", "lr 0.01 · warm-up 1"]),
                ([{}, {"data": {"path": "more.txt"}}], ["text", "more"]),
                ([{}], ["pre · layernorm"]))):
            with self.subTest(labels=labels):
                self.write("more.txt", "some other text " * 100)
                for i, change in enumerate(changes):
                    self.make(f"labels{number}/{i}", changes=change)
                self.assertEqual(self.labels(f"labels{number}"), labels)

    def test_keys_without_a_use_and_bookkeeping_set_nothing_apart(self):
        self.write("same.txt", TEXT)
        for number, changes in enumerate((
                {"train": {"momentum": 0.9}}, {"model": {"norm_groups": 8}}, {"model": {"mix_post_fraction": 0.5}},
                {"train": {"threads": 3}, "log": {"every": 1}, "name": "z", "checkpoint": {"every": 7}},
                {"data": {"path": "same.txt"}})):
            with self.subTest(changes=changes):
                self.make(f"same{number}/a")
                self.make(f"same{number}/b", changes=merged(changes, {"train": {"seed": 2}}))
                self.assertEqual({label: row["seeds"] for label, row in self.csv(f"same{number}").items()},
                                 {"pre · layernorm": "2"})

    def test_a_text_that_never_ends_is_not_read(self):
        for i, path in enumerate(("text.txt", "/dev/zero")):
            self.make(f"runs/{i}")
            config = self.path(f"runs/{i}/config.json")
            known = Run(self.path(f"runs/{i}")).json("config.json")
            self.write(config, json.dumps({**known, "data": {**known["data"], "path": path}}))
        self.assertIn("texts in other files, which cannot be read now", self.compare("runs"))

    def test_a_scale_that_only_a_tied_head_uses(self):
        xavier = {"model": {"init": {"scheme": "xavier_normal"}}}
        for std in (0.02, 0.5):
            self.make(f"runs/{std}", changes=merged(xavier, {"model": {"init": {"std": std}}}))
        self.assertEqual(self.labels(), ["std 0.02", "std 0.5"])
        self.assertIn("std 0.5 against std 0.02: model.init.std 0.02 -> 0.5; with that comes model.init.embed_std 0.02 "
                      "-> 0.5\n", self.compare("runs"))

    def test_a_seed_that_is_there_twice_is_told_apart_by_its_folder(self):
        for folder in ("old", "new"):
            for seed in (1, 2):
                self.make(f"{folder}/{seed}", changes={"train": {"seed": seed}})
        rows = self.csv("old", "new")
        self.assertEqual({label: row["seeds"] for label, row in rows.items()}, {"old": "2", "new": "2"})
        self.assertEqual(self.labels("old/1", "old/2", "new/1"), ["old", "new/1"])
        self.make("old/again")
        self.assertEqual(self.labels("old"), ["1", "2", "again"])
        self.make("old/post", changes={"model": {"norm_placement": "post"}})
        self.assertEqual(self.labels("old"), ["pre · 1", "pre · 2", "pre · again", "post"])
        self.assertIn("- pre · 2 and pre · again against pre · 1: the same config\n", self.compare("old"))


if __name__ == "__main__":
    unittest.main()
