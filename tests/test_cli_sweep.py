#!/usr/bin/python3
"""`normscope sweep`: which runs a file asks for, what is left of them, and that a sweep can be stopped at any point."""

import csv
import fcntl
import json
import os
import re
import shutil
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

    def test_options_make_a_grid_of_a_config(self):
        self.config()
        self.normscope("sweep", "tiny.json", "--set", "model.norm=layernorm,rmsnorm", "--set", "train.steps=2", "--seeds", "2",
                       "--out", "out")
        self.assertEqual(self.folders(), sorted(f"norm={n}_seed={s}" for n in ("layernorm", "rmsnorm") for s in (1, 2)))
        for row in self.summary().values():
            self.assertEqual((row["status"], row["steps"]), ("done", "2"))
        self.assertEqual(Run(self.path("out/norm=rmsnorm_seed=2")).json("config.json")["model"]["norm"], "rmsnorm")
        self.assertIn("tiny: 3 runs", self.normscope("sweep", "tiny.json", "--seeds", "3", "--dry-run").stdout)
        self.normscope("sweep", "tiny.json", "--set", "train.lr=1e-3,0.01", "--set", "train.steps=1", "--out", "rates")
        self.assertEqual(sorted(os.listdir(self.path("rates"))), ["lr=0.001", "lr=0.01", "summary.csv"])

    def test_options_over_a_sweep_file(self):
        cases = [{"name": "warm", "set": {"train.warmup_steps": 1}}]
        self.sweep("--set", "train.steps=1", "--set", "model.n_head=1,2", "--seeds", "1", seeds=[3, 4], cases=cases,
                   grid={"model.n_layer": [1]})
        self.assertEqual(self.folders(), ["n_layer=1_n_head=1_seed=1", "n_layer=1_n_head=2_seed=1", "warm_n_head=1_seed=1",
                                          "warm_n_head=2_seed=1"])
        lists = ["--set", 'model.norm_placement=["pre","post"]', "--set", "train.steps=1"]  # JSON: one value
        self.normscope("sweep", self.sweep_file(grid={"train.lr": [0.1]}), "--out", "lists", *lists)
        self.assertEqual(Run(self.path("lists/lr=0.1")).json("config.json")["model"]["norm_placement"], ["pre", "post"])
        pairs = 'model.norm_placement={"attn":"pre","ffn":"post"},"pre"'
        planned = self.normscope("sweep", "sweep.json", "--set", pairs, "--dry-run").stdout
        self.assertIn("about", planned)
        self.assertEqual(planned.count("to do"), 2, planned)
        for given, words in ((["--set", "model.nrom=a,b"], ["model.nrom", "did you mean model.norm?"]),
                             (["--set", "model.nrom=a"], ["model.nrom", "did you mean model.norm?"]),
                             (["--set", "name=a,b"], ["a run's name is made of what it varies"]),
                             (["--set", "name=a"], ["a run's name is made of what it varies"]),
                             (["--set", "train.seed=1,2", "--seeds", "2"], ["which seeds there are"]),
                             (["--set", "train.seed=7", "--seeds", "2"], ["which seeds there are"]),
                             (["--set", "train.lr=0.2"], ["train.lr", "varies it already; leave out --set train.lr"]),
                             (["--set", "train.lr=0.1,0.2"], ["train.lr", "varies it already"]),
                             (["--set", "model.norm=layernorm,nrom"], ["model.norm", 'got "nrom"'])):
            self.refused("sweep", "sweep.json", "--out", "never", *given, says=words)
        self.refused("sweep", "tiny.json", says=["is a config, not a sweep", "--set KEY=A,B or --seeds N"])

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
        for jobs, given, threads in ((1, "4", 4), (2, "4", 2), (3, "4", 1), (8, "4", 1), (1, None, cores), (None, "4", 4)):
            env = environment(OMP_NUM_THREADS=given or "")
            if given is None:
                del env["OMP_NUM_THREADS"]
            out = f"out-{jobs}-{given}"
            result = self.normscope("sweep", "sweep.json", "--out", out, *(["--jobs", str(jobs)] if jobs else []), env=env)
            self.assertIn(f"{threads} thread{'s' if threads > 1 else ''} each", result.stdout)
            self.assertEqual(Run(self.path(out, "steps=2")).summary["threads"], threads)

    def test_a_run_a_core_unless_told_otherwise_or_memory_is_short(self):
        for model, at_once in (({}, 3), ({"model.d_ff": 65536, "model.n_layer": 1024}, 1)):
            path = self.sweep_file(seeds=[1, 2, 3, 4, 5], grid={key: [value] for key, value in model.items()} or
                                   {"train.steps": [2]})
            result = self.normscope("sweep", path, "--dry-run", env=environment(OMP_NUM_THREADS="3"))
            self.assertIn(f" with {at_once} at a time", result.stdout)
        result = self.normscope("sweep", self.sweep_file(seeds=[1, 2, 3, 4, 5], grid={"train.steps": [2]}), "--dry-run",
                                "--shard", "1/4", env=environment(OMP_NUM_THREADS="8"))
        self.assertIn(" with 2 at a time", result.stdout)

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
        self.assertEqual({row["status"] for row in self.summary().values()}, {"interrupted"})

    def test_a_run_that_is_stopped_by_itself_is_said_and_finished_by_the_next_sweep(self):
        parts = {"seeds": [1], "grid": {"train.steps": [4000, 30]}}
        process = self.start_and_wait(**parts)
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as children:
            os.kill(int(children.read().split()[0]), signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, errors), (130, "[sweep] interrupted by a signal to the run itself: "
                                                        "steps=4000_seed=1; the same command goes on with what is left\n"))
        self.assertRegex(out, r"(?m)^interrupted +steps=4000_seed=1 ")
        self.assertEqual({name: row["status"] for name, row in self.summary().items()},
                         {"steps=4000_seed=1": "interrupted", "steps=30_seed=1": "done"})
        row = self.summary()["steps=4000_seed=1"]
        self.assertEqual(int(row["steps"]), Run(self.path("out", "steps=4000_seed=1")).summary["steps"])
        self.sweep(**parts)
        self.assertEqual([row["status"] for row in self.summary().values()], ["done", "done"])

    def test_a_broken_run_hides_no_other(self):
        parts = {"seeds": [1], "grid": {"train.lr": [1e-3, 1e-2, 1e-1, 1, 2]}}
        self.sweep(**parts)
        runs = [Run(self.path("out", f"lr={lr}_seed=1")) for lr in ("0.001", "0.01", "0.1", "1", "2")]
        for run in runs:
            os.remove(run.file("summary.json"))  # as if the sweep was killed in their last act
            os.replace(run.file("checkpoint.previous.safetensors"), run.file("checkpoint.safetensors"))
        self.write(runs[0].file("layers.csv"), "")
        self.write(runs[1].file("layers.csv"), "step,lay")
        self.write(runs[2].file("config.json"), '{"model_type": "gpt2"}')
        self.write(runs[3].file("summary.json"), "{")
        self.assertRegex(self.sweep("--dry-run", **parts).stdout, r"(?m)^to do     lr=1_seed=1")
        said = self.sweep(code=1, **parts)
        self.assertRegex(said.stdout, r"(?m)^failed +lr=0.1_seed=1  \[run\] .* but no run of normscope.*model_type")
        self.assertRegex(said.stderr, r"^\[sweep\] 1 of 5 runs failed; .*\n$")
        self.assertEqual([row["status"] for row in self.summary().values()], ["done", "done", "failed", "done", "done"])
        for run in (runs[0], runs[1], runs[3]):
            self.assertEqual(run.summary["status"], "done")
        self.write(runs[4].file("summary.json"), "[]")
        compared = self.call("compare", "out")
        self.assertEqual(compared.returncode, 1)
        self.assertEqual(re.findall(r"(?m)^lr (\S+) ", compared.stdout), ["0.001", "0.01", "1"])
        self.assertRegex(compared.stdout, r"(?m)^all: .*, status done$")
        for run, word in ((runs[2], "model_type"), (runs[4], "damaged")):
            self.assertRegex(compared.stderr, rf"(?m)^\[\w+\] .*{word}.*")
            self.assertIn(os.path.basename(run.path), compared.stderr)
        again = self.sweep(code=1, **parts)
        self.assertRegex(again.stdout, r"(?m)^failed +lr=2_seed=1  .*summary\.json: damaged")
        self.assertEqual([row["status"] for row in self.summary().values()], ["done", "done", "failed", "done", "failed"])

    def test_a_run_that_dies_before_its_header_is_written_is_resumed(self):
        """A full disk, or a kill, while layers.csv begins."""
        parts = {"seeds": [1], "grid": {"train.lr": [1e-3, 1e-2]}}
        folder = self.path("out", "lr=0.001_seed=1")
        os.makedirs(os.path.join(folder, "layers.csv.normscope-tmp", "in the way"))
        self.sweep(code=1, **parts)
        self.assertNotIn("layers.csv", os.listdir(folder))
        self.assertEqual([row["status"] for row in self.summary().values()], ["failed", "done"])
        shutil.rmtree(os.path.join(folder, "layers.csv.normscope-tmp"))
        self.sweep(**parts)
        self.assertEqual([row["status"] for row in self.summary().values()], ["done", "done"])

    def test_a_table_of_someone_else_is_never_replaced(self):
        os.makedirs(self.path("out"))
        for table in ("my,precious\n1,2\n", "", "name,status\nme,fine\n"):
            self.write("out/summary.csv", table)
            for option in ([], ["--dry-run"]):
                self.sweep_file(seeds=[1])
                self.refused("sweep", "sweep.json", "--out", "out", *option, says=["out/summary.csv", "--out DIR"])
            self.assertEqual(os.listdir(self.path("out")), ["summary.csv"])
            self.assertEqual(Run(self.path("out")).bytes("summary.csv"), table.encode())
        os.remove(self.path("out", "summary.csv"))
        os.mkdir(self.path("out", "summary.csv"))
        self.refused("sweep", "sweep.json", "--out", "out", says=["out/summary.csv"])
        os.rmdir(self.path("out", "summary.csv"))
        self.write("out/summary.csv.1234", "mine")
        self.sweep(seeds=[1])
        self.sweep(seeds=[1], grid={"train.lr": [1e-3]})  # other columns: the table of another grid of ours
        self.assertEqual(list(self.summary()), ["lr=0.001_seed=1"])
        self.assertEqual(Run(self.path("out")).bytes("summary.csv.1234"), b"mine")

    def test_where_the_table_cannot_be_written_runs_save_their_state(self):
        # The short run ends first; no table can be written then.
        process = self.start_and_wait("--jobs", "2", seeds=[1], cases=[{"name": "long", "set": {"train.steps": 100000}},
                                                                     {"name": "short", "set": {"train.steps": 1000}}])
        os.makedirs(self.path("out", "summary.csv.normscope-tmp", "in the way"))
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(errors, r"^\[file\] out/summary\.csv: cannot be created: File exists\n$")
        long = Run(self.path("out", "long_seed=1"))
        self.assertEqual(long.summary["status"], "interrupted")
        self.assertEqual(long.metadata("checkpoint.safetensors")["step"], str(long.summary["steps"]))

    def test_runs_are_not_called_like_files(self):
        for name in ("summary.csv", "config.json", "layers.csv", "model.safetensors", "summary.csv.normscope-tmp"):
            self.sweep_file(cases=[{"name": name, "set": {"train.lr": 1}}])
            self.refused("sweep", "sweep.json", "--out", "out", says=[name, "cannot be called"])
        self.sweep_file(name="config.json")
        self.assertFalse(os.path.exists(self.path("out")))

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

    def test_shards_that_end_together_share_one_table(self):
        parts = {"seeds": list(range(1, 9)), "grid": {"train.steps": [2], "model.n_layer": [1]}}
        self.sweep_file(**parts)
        for shards in (8, 3):  # the second time over each other: what is done is not done again
            started = [self.start("sweep", "sweep.json", "--out", "out", "--shard", f"{i}/{shards}")
                       for i in range(1, shards + 1)]
            for process in started:
                self.assertEqual((process.communicate(timeout=60)[1], process.returncode), ("", 0))
            self.assertEqual([row["status"] for row in self.summary().values()], ["done"] * 8)

    def test_a_shard_waits_while_another_one_writes_the_table(self):
        """Else the one that read first may be the one that writes last."""
        parts = {"grid": {"train.steps": [2]}}
        self.sweep_file(**parts)
        os.makedirs(self.path("out"))
        with open(self.path("out", ".lock-table"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = self.start("sweep", "sweep.json", "--out", "out", "--shard", "1/2")
            self.wait_for(lambda: os.path.exists(self.path("out", "steps=2", "summary.json")))
            time.sleep(0.3)
            self.assertIsNone(process.poll())
            self.assertFalse(os.path.exists(self.path("out", "summary.csv")))
        self.assertEqual((process.communicate(timeout=60)[1], process.returncode), ("", 0))
        self.assertEqual([row["status"] for row in self.summary().values()], ["done"])

    def test_shards_of_different_counts_do_each_run_once(self):
        self.sweep_file(seeds=[1, 2, 3], grid={"train.steps": [400]})
        started = [self.start("sweep", "sweep.json", "--out", "out", "--shard", shard) for shard in ("1/2", "2/2")]
        started += [self.start("sweep", "sweep.json", "--out", "out", "--shard", f"{i}/3") for i in (1, 2, 3)]
        for process in started:
            self.assertEqual((process.communicate(timeout=60)[1], process.returncode), ("", 0))
        self.assertEqual([row["status"] for row in self.summary().values()], ["done"] * 3)
        for name in self.folders():
            steps = [int(row["step"]) for row in Run(self.path("out", name)).rows("metrics.csv")]
            self.assertEqual(steps, sorted(set(steps)))

    def test_a_failure_in_one_shard_stays_in_the_table(self):
        os.makedirs(self.path("out"))
        self.write("out/lr=0.001", "a file where a folder should be")
        parts = {"grid": {"train.lr": [1e-3, 1e-2]}}
        self.sweep("--shard", "1/2", code=1, **parts)
        self.sweep("--shard", "2/2", **parts)
        self.assertEqual([row["status"] for row in self.summary().values()], ["failed", "done"])
        os.remove(self.path("out", "lr=0.001"))
        self.sweep("--shard", "1/2", **parts)
        self.assertEqual([row["status"] for row in self.summary().values()], ["done", "done"])

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
            "`seeds` says which", 'got {"set":{}}; expected {"name": NAME', "is made of what it varies"])
        self.assertIn("bad.json:1:", result.stderr)
        for text, words in (("[]", "expected an object"), ("{}", "base: missing"),
                            ('{"base": "tiny.json", "grid": {}}', "expected {KEY"),
                            ('{"base": "tiny.json", "grid": {"train.lr": []}}', "a list of values"),
                            ('{"base": "tiny.json", "grid": {"model": [{"n_layer": 1}]}}', "model: is a section; "),
                            ('{"base": "tiny.json", "cases": [{"name": "x", "set": {"eval": 1}}]}', "written eval.KEY"),
                            ('{"base": "tiny.json", "name": ".x"}', "name: got \".x\"; expected"),
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
