#!/usr/bin/python3
"""`normscope compare` of real runs: figures of seeds, of running runs and of probes."""

import json
import math
import os
import re
import shutil
import unittest

import numpy as np

from cli import VOCABULARY, Run
from compare_runs import COLUMNS, CompareTest


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
            self.assertEqual(run["status"], "done")
            for key, figure in run["figures"].items():
                row = rows[run["label"]]
                self.assertEqual((figure["mean"], figure["sd"], figure["n"]),
                                 (float(row[key]), float(row[f"{key}_spread"]), len(run["seeds"])))
                self.assertIn(f"  {figure['text']}", shown)
                self.assertIn(f"  {figure['title']}", shown)
        self.assertEqual([run["choices"] for run in said["runs"]], [[], ["model.norm_placement"]])
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
        for name in ("pre", "runs/pre-2", "pre-2", "runs/pre-2/", "./runs//pre-2"):
            said = self.json("runs", "--base", name)
            self.assertEqual([pair["base"] for pair in said["paired"]], ["pre"])
            self.assertTrue(said["remarks"][0]["text"].startswith("post against pre: "))
        self.assertEqual(self.json("runs")["paired"][0]["base"], "post")
        self.refused("compare", "runs", "--base", "per", says=["--base", "post; pre"])
        for name in ("runs/pre-2", "pre-2"):
            self.assertTrue(self.json("runs/post-2/", "runs/pre-2/", "--base", name)["remarks"][0]["text"].startswith("post against pre: "))
        self.refused("compare", "runs", "--csv", "--json", says=["give --csv or --json, not both"])

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
        self.assertEqual(self.kinds("runs")["one_seed"], ["post"])
        self.assertNotRegex(shown.lower(), r"better|winner|wins|best run")
        self.assertNotIn("seed by seed", shown)  # one seed is no pair
        self.assertEqual(self.kinds("runs/pre-1", "runs/pre-2"), {})

    def test_what_all_of_several_configs_share_is_said_once(self):
        self.train("runs/deep", {"model": {"n_layer": 3}})
        lines = self.compare("runs").splitlines()
        self.assertEqual(re.split("  +", lines[0])[:5], ["run", "placement", "L", "params", "best val"])
        self.assertEqual(lines[4], "all: norm layernorm, status done")
        self.assertTrue(lines[1].startswith("pre · L 3 "))

    def test_one_run_named_twice_is_one_run(self):
        self.assertEqual(self.csv("runs/pre-1", "runs/pre-1/", self.path("runs/pre-1"))["pre · layernorm"]["seeds"], "1")

    def test_a_sweep_keeps_its_order_and_ends_in_pairs(self):
        self.write("sweep.json", json.dumps({"base": "tiny.json", "seeds": [1, 2], "grid": {
            "model.norm_placement": ["pre", "post"], "model.n_layer": [12, 2]}}))
        self.script("sweep.py", "sweep.json", "--out", "out")
        shown = self.normscope("compare", "out").stdout
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
        self.assertEqual((shown["status"], shown["params"]), ("unfinished", self.whole.summary["params"]))
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
        self.assertIn("unfinished at step 40 of 60", self.remark("unfinished", "run"))

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
        self.assertEqual(live["status"], "unfinished")
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
            self.assertEqual(run["status"], "probe")
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
        said = self.json("run", "probe")
        self.assertEqual([run["label"] for run in said["runs"]], ["25 steps", "0 steps"])
        self.assertEqual(self.kinds("run", "probe")["not_comparable"], ["0 steps"])


if __name__ == "__main__":
    unittest.main()
