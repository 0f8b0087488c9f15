#!/usr/bin/python3
"""`normscope sweep`: which runs a file asks for, what is left of them, and that a sweep can be stopped at any point."""

import csv
import json
import os
import signal
import time
import unittest

from cli import CliTest, Run, environment

GRID = {"model.norm_placement": ["pre", "post"], "model.n_layer": [1, 2]}
SLOW = {"train.steps": [4000]}  # long enough to be stopped in it


class Sweep(CliTest):
    def sweep_file(self, name="sweep.json", **parts):
        self.config()
        return self.write(name, json.dumps({"base": "tiny.json", **parts}))

    def sweep(self, *options, code=0, **parts):
        return self.normscope("sweep", self.sweep_file(**parts), "--out", "out", *options, code=code)

    def folders(self):
        return sorted(name for name in os.listdir(self.path("out")) if os.path.isdir(self.path("out", name)))

    def summary(self):
        with open(self.path("out", "summary.csv"), encoding="utf-8", newline="") as file:
            return {row["name"]: row for row in csv.DictReader(file)}

    def start_and_wait(self, *options, steps=20, **parts):
        """A sweep in the background, when some run of it has come to `steps` steps."""
        process = self.start("sweep", self.sweep_file(**parts), "--out", "out", *options)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for folder in self.folders() if os.path.isdir(self.path("out")) else []:
                metrics = self.path("out", folder, "metrics.csv")
                if os.path.exists(metrics) and len(Run(self.path("out", folder)).rows("metrics.csv")) > steps // 10:
                    return process
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            time.sleep(0.01)
        self.fail("the sweep never got anywhere")

    def test_grid_cases_and_seeds(self):
        cases = [{"name": "warm up", "set": {"train.warmup_steps": 10}}]
        result = self.sweep("--jobs", "2", seeds=[1, 7], grid=GRID, cases=cases)
        names = [f"norm_placement={p}_n_layer={l}_seed={s}" for p in ("pre", "post") for l in (1, 2) for s in (1, 7)]
        names += ["warm-up_seed=1", "warm-up_seed=7"]
        self.assertEqual(self.folders(), sorted(names))
        rows = self.summary()
        self.assertEqual(list(rows), names)
        row = rows["norm_placement=post_n_layer=2_seed=7"]
        self.assertEqual([row[k] for k in ("model.norm_placement", "model.n_layer", "train.warmup_steps", "train.seed",
                                           "status", "steps")], ["post", "2", "0", "7", "done", "25"])
        self.assertEqual(rows["warm-up_seed=1"]["train.warmup_steps"], "10")
        for name, row in rows.items():
            run = Run(self.path("out", name))
            self.assertEqual(float(row["final_val_loss"]), run.summary["final_val_loss"])
            self.assertEqual(float(row["growth"]), run.summary["growth"])
            self.assertEqual(run.json("config.json")["name"], name)
        self.assertIn("2 seeds", result.stdout)  # the comparison at the end

    def test_a_run_is_the_run_that_train_makes(self):
        self.sweep(grid={"model.norm": ["rmsnorm"], "train.lr": [1e-2]})
        self.normscope("train", "tiny.json", "--set", "model.norm=rmsnorm", "--set", "train.lr=0.01",
                       "--set", "name=norm=rmsnorm_lr=0.01", "--out", "alone")
        self.assert_same_results(Run(self.path("out", "norm=rmsnorm_lr=0.01")), Run(self.path("alone")))

    def test_names(self):
        self.sweep(grid={"model.init.std": [0.02], "train.batch_size": [2e0],
                         "model.norm_placement": [["pre", "post"]]})
        self.assertEqual(self.folders(), ["std=0.02_batch_size=2_norm_placement=--pre---post--"])
        long = {"name": "x" * 200, "set": {"train.steps": 3}}
        clash = {"name": "clash", "set": {"train.gemm": "openblas"}}
        result = self.normscope("sweep", self.sweep_file(seeds=[1], cases=[long, clash]), "--out", "long", "--dry-run")
        name = next(line.split()[2] for line in result.stdout.splitlines() if "xxx" in line)
        self.assertEqual(len(name), 100)
        self.assertRegex(name, r"^x+-[0-9a-f]{16}$")
        both = self.normscope("sweep", self.sweep_file(grid={"data.path": ["text.txt"], "data.val_path": ["text.txt"]}),
                              "--dry-run")
        self.assertIn("path=text.txt_val_path=text.txt", both.stdout)

    def test_keys_that_end_alike_are_written_whole(self):
        grid = {"log.every": [5], "eval.every": [10]}
        result = self.normscope("sweep", self.sweep_file(grid=grid), "--dry-run")
        self.assertIn("log.every=5_eval.every=10", result.stdout)

    def test_cores_are_shared_out(self):
        self.sweep_file(grid={"train.steps": [2]})
        cores = len(os.sched_getaffinity(0))
        for jobs, given, threads in ((1, "4", 4), (2, "4", 2), (3, "4", 1), (8, "4", 1), (1, None, cores)):
            env = environment(OMP_NUM_THREADS=given or "")
            if given is None:
                del env["OMP_NUM_THREADS"]
            out = f"out-{jobs}-{given}"
            result = self.normscope("sweep", "sweep.json", "--out", out, "--jobs", str(jobs), env=env)
            self.assertIn(f"{threads} thread{'s' if threads > 1 else ''} each", result.stdout)
            self.assertEqual(Run(self.path(out, "steps=2")).summary["threads"], threads)

    def test_dry_run_touches_nothing(self):
        result = self.sweep("--dry-run", "--jobs", "2", seeds=[1, 2], grid=GRID)
        self.assertRegex(result.stdout, r"(?m)^sweep: 8 runs, about \d+:\d\d with 2 at a time$")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_the_time_ahead_is_measured_on_what_is_finished(self):
        self.sweep(seeds=[1], grid={"train.steps": [25]})
        file = Run(self.path("out", "steps=25_seed=1")).file("summary.json")
        with open(file, encoding="utf-8") as old:
            summary = json.load(old)
        self.write(file, json.dumps({**summary, "seconds": 100}))
        result = self.sweep("--dry-run", seeds=[1, 2], grid={"train.steps": [25, 50]})
        for name, time_ in (("steps=25_seed=2", "1:40"), ("steps=50_seed=1", "3:20"), ("steps=50_seed=2", "3:20")):
            self.assertRegex(result.stdout, rf"(?m)^to do     {name}  {time_}$")
        self.assertIn("4 runs, about 8:20 with 1 at a time", result.stdout)

    def test_finished_runs_are_not_done_again(self):
        self.sweep(seeds=[1], grid=GRID)
        before = {name: os.stat(self.path("out", name, "summary.json")).st_mtime_ns for name in self.folders()}
        result = self.sweep(seeds=[1, 2], grid=GRID)
        self.assertIn("8 runs, 4 of them finished already", result.stdout)
        for name, stamp in before.items():
            self.assertEqual(os.stat(self.path("out", name, "summary.json")).st_mtime_ns, stamp)
        self.assertEqual(len(self.summary()), 8)

    def test_killed_and_run_again_it_ends_as_if_never_stopped(self):
        parts = {"seeds": [1, 2], "grid": {"train.steps": [300], "train.lr": [1e-3, 1e-2]}}
        process = self.start_and_wait("--jobs", "2", **parts)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.sweep("--jobs", "2", **parts)
        self.normscope("sweep", self.sweep_file(**parts), "--out", "whole")
        for name in self.folders():
            self.assert_same_results(Run(self.path("out", name)), Run(self.path("whole", name)))
        self.assertEqual([row["status"] for row in self.summary().values()], ["done"] * 4)

    def test_interrupted_it_saves_its_runs(self):
        process = self.start_and_wait("--jobs", "2", seeds=[1, 2], grid=SLOW)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors), (130, "interrupted; go on with the same command\n"))
        for name in self.folders():
            self.assertEqual(Run(self.path("out", name)).summary["status"], "interrupted")

    def test_a_second_sweep_in_the_folder_is_refused(self):
        first = self.start_and_wait(grid=SLOW)
        result = self.call("sweep", self.path("sweep.json"), "--out", "out")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^\[lock\] out: another process is writing here; .*\n$")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(timeout=60), 130)

    def test_shards_share_the_work(self):
        for shard in ("2/2", "1/2"):
            self.sweep("--shard", shard, seeds=[1, 2, 3], grid={"train.lr": [1e-3]})
            self.assertEqual(len(self.folders()), 1 if shard == "2/2" else 3)
        self.assertEqual(len(self.summary()), 3)
        for wrong in ("0/2", "3/2", "1", "1/2x", "a/b"):
            self.refused("sweep", "sweep.json", "--shard", wrong, says=["--shard", "I/N"])

    def test_divergence_is_a_result_and_failure_is_not(self):
        wild = {"name": "wild", "set": {"train.optimizer": "sgd", "train.lr": 100, "train.grad_clip": 0,
                                        "model.norm_placement": "none", "train.steps": 200}}
        self.sweep(grid={"train.lr": [1e-3]}, cases=[wild])
        self.assertEqual([row["status"] for row in self.summary().values()], ["done", "diverged"])
        os.makedirs(self.path("blocked"))
        self.write("blocked/lr=0.001", "a file where a folder should be")
        result = self.normscope("sweep", self.sweep_file(grid={"train.lr": [1e-3, 1e-2]}), "--out", "blocked", code=1)
        self.assertIn("1 of 2 runs failed", result.stderr)
        self.assertRegex(result.stdout, r"(?m)^failed +lr=0.001 .*is a file")
        with open(self.path("blocked", "summary.csv"), encoding="utf-8", newline="") as file:
            self.assertEqual([row["status"] for row in csv.DictReader(file)], ["failed", "done"])

    def test_a_folder_with_other_runs_is_refused(self):
        self.sweep(grid={"train.lr": [1e-3]})
        base = {"base": "other.json", "grid": {"train.lr": [1e-3]}}
        self.config({"model": {"n_layer": 3}}, name="other.json")
        self.write("second.json", json.dumps(base))
        self.refused("sweep", "second.json", "--out", "out", says=["another config", "model.n_layer (2 -> 3)"])

    def test_mistakes_are_named_all_at_once(self):
        self.write("bad.json", json.dumps({
            "base": "missing.json", "seeds": [1, 1, -2], "gird": {}, "grid": {"model.n_layr": [1], "train.seed": [2]},
            "cases": [{"set": {}}, {"name": "x", "set": {"name": "y"}}]}))
        result = self.refused("sweep", "bad.json", lines=8, says=[
            "missing.json", "listed twice", "got -2", "did you mean grid?", "did you mean model.n_layer?",
            "`seeds` says which", 'needs a "name"', "is made of what it varies"])
        self.assertIn("bad.json:1:", result.stderr)
        for text, words in (("[]", "expected an object"), ("{}", "base: missing"),
                            ('{"base": "tiny.json", "grid": {}}', "expected {KEY"),
                            ('{"base": "tiny.json", "grid": {"train.lr": []}}', "a list of values"),
                            ('{"base": "tiny.json", "seeds": []}', "expected a list"),
                            ('{"base": "tiny.json", "grid": {"train.lr": [1], "train.lr": [2]}}', "duplicate key"),
                            ('{"base": "tiny.json", "grid": {"train.lr": [0.001, 1e-3]}}', "share the folder")):
            self.config()
            self.write("bad.json", text)
            self.refused("sweep", "bad.json", says=[words])
        self.sweep_file(grid={"train.lr": [-1], "model.n_head": [2, 5]})
        self.refused("sweep", "sweep.json", lines=2, says=["train.lr", "model.n_head: 5 does not divide", "in lr="])
        self.assertFalse(os.path.exists(self.path("runs")))


if __name__ == "__main__":
    unittest.main()
