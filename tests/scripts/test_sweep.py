#!/usr/bin/python3
"""scripts/sweep.py: the runs of a file, those that remain to be done, and that a sweep can be stopped at any moment.

NORMSCOPE_LONG=1 kills 200 times instead of 12; NORMSCOPE_SEED=N draws other moments."""

import collections
import errno
import fcntl
import json
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from cli import BINARY, LONG, PATIENCE, ROOT, CliTest, Run, environment, read_csv, without_comparison
from lib.base import processors  # in scripts, which cli.py puts on the path
from lib.sweeps import sweep_time
from lib.sweeps.grid import GridPoint, load_sweep, read_labels
from lib.sweeps.sweep_folder import Locks, Table

PYTHON = sys.executable  # without it, as in most tests, no sweep prints the table of compare.py
# A sweep in a process of its own, without that table too.
SWEEP = [PYTHON, "-c", "import runpy, sys; sys.executable = '/bin/true'; del sys.argv[0]; "
         "runpy.run_path(sys.argv[0], run_name='__main__')", os.path.join(ROOT, "scripts", "sweep.py")]
GRID = {"model.norm_placement": ["pre", "post"], "model.n_layer": [1, 2e0]}
FAST = {"train.steps": [2]}
BUSY = {"model": {"n_layer": 1}, "train": {"steps": 60}, "eval": {"every": 7}, "log": {"every": 1},
        "checkpoint": {"every": 3}}
WILD = "--set train.optimizer=sgd --set model.norm=none --set train.grad_clip=0 --set train.lr=1e-3,0.01,100"
CLOCK = ("seconds", "tokens_per_s")
KILLS = 200 if LONG else 12
TWO_AT_ONCE = {"grid": {"train.lr": [-1, 0.1], "model.n_head": [2, 5]}}
# Mistakes of a sweep's file (bytes), of its parts beside the base, and of options, each with words of the message.
MISTAKES = (
    (b"[]", "expected an object"), (b'{"seeds": [1]}', "base: got null"), (b'{"base": "no.json"}', "no file no.json"),
    (b'{"base": "tiny.json", "grid": {"train.lr": [1], "train.lr": [2]}}', "duplicate key 'train.lr'"),
    (b'{"base": "tiny.json"\n "grid": {}}', "line 2 column 2"), (b'{"base": "\xff"}', "utf-8"),
    ({"gird": 1}, "gird: unknown key; expected name, base, seeds"),
    ({"cases": [{"set": {}}]}, "cases: got", '{"name": "warm", "set": {'),
    ({"cases": [{"name": "", "set": {"train.lr": 1}}]}, "cases: got", '{"name": "warm", "set": {'),
    ({"seeds": [-1]}, "train.seed", "-1", "in seed=-1"),
    ({"seeds": [2, 2]}, "share the folder seed=2"),
    ({"seeds": [1], "grid": {"train.seed": [1]}}, "train.seed: set twice"),
    ({"grid": {"train.lr": [0.001, 1e-3]}}, "share the folder lr=0.001"),
    ({"grid": {"train.lr": []}}, "grid: train.lr: got []; expected a list"),
    ({"grid": {"train.lr": {"a": {"train.lr": 1}}}}, "grid: train.lr: a key or column"),
    ({"grid": {"data.path": ["a:b", "a-b"]}}, "share the folder path=a-b"),
    ({"grid": {"model.nrom": ["a", "b"]}}, "did you mean model.norm?", "in nrom=a"),
    ({"grid": {"batch": {" ": {"train.lr": 1}}}}, "grid: batch: got", "or named values: {"),
    ({"grid": {"batch": {"a": {}}}}, "grid: batch: got", "or named values: {"),
    ({"grid": {"batch": {"a": [1]}}}, "grid: batch: got", "or named values: {"),
    ({"grid": {"status": {"a": {"train.lr": 1}}}}, "grid: status: a key or column"),
    ({"grid": {"a": {"b": {"train.lr": 1}}, "train.lr": [1]}}, "train.lr: set twice"),
    ({"grid": {"a": {"b": {"train.lr": -1}}}}, "train.lr", "in a=b"),
    (TWO_AT_ONCE, "train.lr", "model.n_head: 5 does not divide", "in lr=-1_n_head="),
    ("none.json", "no file none.json"), ("sweep.json --set train.lr=1", "train.lr: set twice"),
    ("sweep.json --jobs 0", "from 1"), ("sweep.json --shard 3/2", "got 3/2; expected I/N"),
    ("sweep.json --shard ²/2", "got ²/2; expected I/N"), ("sweep.json --sed 2", "--sed"),
    ("sweep.json --seeds 1000000000", "--seeds from 0 to 100,000"),
    ("sweep.json --seeds 100000", "400,000 runs; expected at most 100,000"),
    ("sweep.json --seeds 2 --seeds 3", "--seeds is given twice"),
    ("tiny.json --set train.lr=1,2 --set train.lr=3", "train.lr: set twice"))

# A command `sweep.py tiny.json --out out` with further options, after a line of shell. It must end with `code`, train
# the runs `trained` and no others, and leave the table `table` (None: not one of a sweep); `says` is found on stdout,
# `error` is all of stderr, as patterns. `stub`: lines of shell that a run begins with; `env`: of the command.
Step = collections.namedtuple("Step", "options before stub env code trained table says error",
                              defaults=("", "", "", {}, 0, "", None, ".*", ""))
# The shares of steps that are left, which test_stories() has printed, and what a dry run then says.
TO_TRAIN = r"\n\({}\)\n{} to train, about 1:40 on \d+ cores?\n\Z".format
STORIES = {
    "a run that failed is tried again": (
        Step("--set train.lr=1e-3,1e-2", "mkdir out; touch out/lr=0.001", code=1, trained="lr=0.01",
             table="lr=0.001 failed, lr=0.01 done", says=r"\nfailed +lr=0.001 .*is a file",
             error=r"\[sweep\] 1 of 2 runs failed; .*\n"),
        Step("--set train.lr=1e-3,1e-2", "rm out/lr=0.001", trained="lr=0.001", table="lr=0.001 done, lr=0.01 done"),
        Step("--set train.lr=1e-3,1e-2", "echo '{' > out/lr=0.01/summary.json", trained="lr=0.01",
             table="lr=0.001 done, lr=0.01 done")),
    "a run that alone gets a signal is tried again, and the others go on": (
        Step("--set train.steps=2,3,4",
             stub='case "$*" in *out/steps=3*) echo interrupted >&2; exit 130 ;; *out/steps=4*) kill -9 $$ ;; esac',
             code=1, trained="steps=2", table="steps=2 done, steps=3 failed, steps=4 failed",
             says=r"\nfailed +steps=3 +interrupted\n"
             "failed +steps=4 +ended by signal 9, as the system does if memory is short: ",
             error=r"\[sweep\] 2 of 3 runs failed; .*\n"),
        Step("--set train.steps=2,3,4", trained="steps=3 steps=4", table="steps=2 done, steps=3 done, steps=4 done")),
    "a dry run counts what the command trains: no run that is done, unless its steps are raised, and a diverged one": (
        Step(f"{WILD} --set train.steps=9", trained="lr=0.001 lr=0.01 lr=100",
             table="lr=0.001 done, lr=0.01 done, lr=100 diverged"),
        Step(f"{WILD} --set train.steps=9 --dry-run", says=TO_TRAIN(r"[\d.]+,", "1 run")),
        Step(f"{WILD} --set train.steps=9", trained="lr=100"),
        Step(f"{WILD} --set train.steps=7 --dry-run", says=TO_TRAIN(r"[\d.]+,", "1 run")),
        Step(f"{WILD} --set train.steps=7", trained="lr=100"),
        Step(f"{WILD} --set train.steps=12 --dry-run", says=TO_TRAIN(r"0.25, 0.25, [\d.]+", "3 runs")),
        Step(f"{WILD} --set train.steps=12", trained="lr=0.001 lr=0.01 lr=100"),
        Step("--set train.lr=1e-3,0.01 --dry-run", says=r"\nlr=0.001\nlr=0.01\nall runs are done\n\Z")),
    "further runs and another grid add their rows": (
        Step("--seeds 1", trained="seed=1", table="seed=1 done"),
        Step("--seeds 2", trained="seed=2", table="seed=1 done, seed=2 done"),
        Step("--set train.lr=1,2", trained="lr=1 lr=2", table="lr=1 done, lr=2 done, seed=1 done, seed=2 done"),
        Step("--set train.lr=1,2", "rm -r out/seed=1", table="lr=1 done, lr=2 done, seed=2 done")),
    "a folder of someone else is left as it is": (
        *(Step(option, f"mkdir -p out; printf '{table}' > out/summary.csv", code=2,
               error=r"\[sweep\] out/summary.csv: .* --out DIR\n")
          for table in (r"my,precious\n1,2\n", "", r"name,status\nme,fine\n") for option in ("", "--dry-run")),
        *(Step(option, "rm -rf out; mkdir -p out/mine; echo '{}' > out/mine/config.json", code=2,
               error=r"\[sweep\] out: holds other runs, such as mine, .* --out DIR\n")
          for option in ("", "--dry-run"))),
    "a table that cannot be written ends no sweep": (
        Step("--set train.steps=2,3,4", stub="mkdir -p out/summary.csv", code=1, trained="steps=2 steps=3 steps=4",
             says=r"out\nout/summary.csv: Is a directory; .*\ndone  .*\ndone  .*\ndone  ",
             error=r"\[sweep\] out/summary.csv: Is a directory; .*\n"),
        Step("--set train.steps=2,3,4", "rm -r out/summary.csv out/steps=2", code=1,
             stub='case "$*" in *steps=2*) mkdir out/summary.csv; exit 1 ;; *steps=4*) rmdir out/summary.csv ;; esac',
             table="steps=3 done, steps=4 done", error=r"\[sweep\] 1 of 3 runs failed; .*\n")),
    "the program is needed, and what only helps is not": (
        Step(env={"NORMSCOPE_BINARY": "none"}, code=1,
             error=r"\[sweep\] none: No such file .*: build it by scripts/build.sh, or name .*\n"),
        Step(env={"PATH": "."}, trained="tiny", table="tiny done")),  # neither setpriv nor nproc
    "cores are shared out": (
        Step(env={"OMP_NUM_THREADS": "8"}, trained="tiny", says="; 1 at a time, 8 threads each;"),
        Step("--set train.lr=1,2 --jobs 3", env={"OMP_NUM_THREADS": "8"}, trained="lr=1 lr=2",
             stub='case "$*" in *"--threads 2"*) ;; *) exit 1 ;; esac'))}


class SweepTest(CliTest):
    def file(self, name="sweep.json", changes=None, **parts):
        self.config(changes)
        self.write(name, json.dumps({"base": "tiny.json", **parts}))
        return name

    def setUp(self):
        super().setUp()
        self.enterContext(without_comparison())

    def sweep(self, *options, code=0, out="out", **parts):
        return self.script("sweep.py", self.file(**parts), "--out", out, *options, code=code)

    def begin(self, *options, **env):
        return subprocess.Popen([*SWEEP, "sweep.json", "--out", "out", *options], stdin=subprocess.DEVNULL,
                                **self.streams({"env": environment(**env)}))

    def stub(self, lines):
        """A program that runs these lines of shell before `train`. Returns the environment in which a sweep takes it
        for normscope."""
        self.write("stub", f'#!/bin/sh\n[ $1 = train ] && {{ {lines}; }}\nexec {BINARY} "$@"\n')
        os.chmod(self.path("stub"), stat.S_IRWXU)
        return {"NORMSCOPE_BINARY": self.path("stub")}

    def end(self, process, code):
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, errors)
        return out, errors

    def table(self, out="out"):
        """{name: row} of summary.csv, without the columns that a clock fills."""
        rows = read_csv(self.path(out, "summary.csv"))[1]
        return {row["name"]: {key: value for key, value in row.items() if key not in CLOCK} for row in rows}

    def statuses(self):
        return [row["status"] for row in self.table().values()]


class Runs(SweepTest):
    def test_grid_cases_and_seeds(self):
        cases = [{"name": "warm up", "set": {"train.warmup_steps": 10}},
                 {"name": "wild", "set": {"train.optimizer": "sgd", "train.lr": 100, "model.norm": "none",
                                          "train.grad_clip": 0}}]
        with mock.patch.object(sys, "executable", PYTHON):
            shown = self.sweep("--jobs", "2", seeds=[1, 7], grid=GRID, cases=cases).stdout
        self.assertRegex(shown, r"(?m)^run +norm +params +status ")
        names = [f"norm_placement={p}_n_layer={l}_seed={s}" for p in ("pre", "post") for l in (1, 2) for s in (1, 7)]
        names += [f"{case}_seed={s}" for case in ("warm-up", "wild") for s in (1, 7)]
        columns, rows = read_csv(self.path("out", "summary.csv"))
        self.assertEqual(columns, ["name", *GRID, "train.warmup_steps", "train.optimizer", "train.lr", "model.norm",
                                   "train.grad_clip", "train.seed", "status", "final_train_loss", "best_val_loss",
                                   "final_val_loss", "grad_first_last", "growth", "steps", "seconds", "tokens_per_s"])
        self.assertEqual([row["name"] for row in rows], names)
        self.assertEqual([row["status"] for row in rows], ["done"] * 10 + ["diverged"] * 2)
        row = rows[names.index("norm_placement=post_n_layer=2_seed=7")]
        self.assertEqual([row[key] for key in ("model.n_layer", "train.warmup_steps", "train.seed", "steps")],
                         ["2", "0", "7", "25"])
        run = Run(self.path("out", row["name"]))
        for figure in ("final_train_loss", "best_val_loss", "final_val_loss", "growth", *CLOCK):
            self.assertEqual(float(row[figure]), run.summary[figure])
        self.normscope("train", "tiny.json", "--set", "model.norm_placement=post", "--set", "train.seed=7", "--set",
                       f"name={row['name']}", "--out", "alone")
        self.assert_same_results(run, Run(self.path("alone")))
        self.assertEqual(run.json("config.json")["name"], row["name"])

    def test_names_of_runs(self):
        self.config()
        grid = {"grid": {"train.lr": [1e-3]}, "cases": [{"name": "x" * 200, "set": {}}], "seeds": [3, 4]}
        for text, options, seeds, names in (
                (json.dumps({"base": "tiny.json", **grid}), ["model.n_head=1,2", "train.steps=1e0"], 1,
                 ["lr=0.001_n_head=1_seed=1", "lr=0.001_n_head=2_seed=1", f"{'x' * 83}-", f"{'x' * 83}-"]),
                ("{}", ['model.norm_placement=["pre","post"],pre'], 0,
                 ["norm_placement=--pre---post--", "norm_placement=pre"]),
                ("{}", ['model.norm_placement={"attn":"pre","ffn":"post"},"post"'], 0,
                 ["norm_placement=--attn---pre---ffn---post--", "norm_placement=post"]),
                ("{}", ["train.lr=1e-3,0.01"], 0, ["lr=0.001", "lr=0.01"]), ("{}", [], 2, ["seed=1", "seed=2"]),
                ("{}", ["log.every=5,6", "eval.every=5,6"], 0,
                 [f"log.every={log}_eval.every={evaluation}" for log in (5, 6) for evaluation in (5, 6)])):
            with self.subTest(text=text, options=options):
                runs = load_sweep(self.write("other.json", text), options, seeds).runs
                self.assertEqual([re.sub("-[0-9a-f]{16}$", "-", run.name) for run in runs], names)
        os.mkdir(self.path("sub"))
        self.write("sub/other.json", '{ // of the working directory\n "base": "tiny.json" /* no seeds */ }')
        sweep = load_sweep(self.path("sub/other.json"))
        self.assertEqual((sweep.base, [run.name for run in sweep.runs]), ("tiny.json", ["other"]))

    def test_a_value_may_be_longer_than_an_argument(self):
        names = [f"{'long' * 60}-{number}.txt" for number in range(700)]
        for name in names:
            self.write(name, "waves and whales\n")
        self.sweep(changes={"model": {"norm": "rmsnorm"}}, seeds=[1, 2], grid={"data.path": [names], **FAST})
        folders = [file.parent for file in pathlib.Path(self.path("out")).glob("*/config.json")]
        configs = [Run(folder).json("config.json") for folder in folders]
        self.assertEqual(sorted(config["train"]["seed"] for config in configs), [1, 2])
        for config in configs:
            self.assertEqual((config["data"]["path"], config["model"]["norm"]), ([*map(self.path, names)], "rmsnorm"))

    def test_a_dry_run_times_steps_of_each_shape(self):
        slow = {"train.steps": [4000], "model.n_layer": [1, 2], "train.lr": [0.1, 0.2, 0.3]}
        with mock.patch.multiple(sweep_time, SECONDS=0.2, LEAST=0.1):
            shown = self.script("sweep.py", self.file(grid=slow), "--dry-run", "--jobs", "2", "--out", "out").stdout
        self.assertRegex(shown, r"\n6 runs to train, about \d+:\d\d on \d+ cores?\n\Z")
        self.assertFalse(os.path.exists(self.path("out")))

    def test_the_time_of_runs(self):
        """Six runs of two shapes, three at a time: 2, 2, 2 and then 6, 6, 6 seconds, each with its evaluations."""
        self.write("long.txt", "e" * 1000)
        config = {"eval": {"every": 10, "batches": 1}, "data": {"path": self.path("long.txt"), "val_fraction": 0.3},
                  "train": {"batch_size": 3, "grad_accum": 1, "steps": 20}}
        runs = [GridPoint("", {}, {}, {**config, "model": {"n_layer": layers, "context": 10}},
                          pathlib.Path(self.path(f"{number}"))) for number, layers in enumerate((1, 1, 1, 2, 2, 2))]
        with mock.patch.object(sweep_time, "step_seconds", lambda run, jobs, *_:
                               {(1, 3): 0.1, (2, 3): 0.3}[run.config["model"]["n_layer"], jobs]):
            seconds = sweep_time.expected_seconds(runs, [1] * 6, 3, None)
        in_steps = 20 + (1 * 30 + 300) / 30 / 3  # one evaluation of a batch, the last one of the whole split
        self.assertAlmostEqual(seconds, in_steps * (0.1 + 0.3))

    def test_the_time_left(self):
        """Runs are taken to last as long as those that have ended; one that has begun has its part behind it."""
        runs = [GridPoint("", {}, {}) for _ in range(4)]
        self.enterContext(mock.patch.object(sweep_time.time, "monotonic", lambda: 940))
        runs[0].started = runs[1].started = 910
        self.assertIsNone(sweep_time.seconds_left(runs, 2))
        runs[0].status, runs[0].summary = "done", {"seconds": 50}
        self.assertAlmostEqual(sweep_time.seconds_left(runs, 1), 20 + 50 + 50)
        self.assertAlmostEqual(sweep_time.seconds_left(runs, 2), 20 + 50)
        runs[1].started = 800
        self.assertAlmostEqual(sweep_time.seconds_left(runs, 2), 50)

    def test_named_values_set_several_keys(self):
        batch = {"small": {"train.batch_size": 2, "train.steps": 6},
                 "lärge ": {"train.batch_size": 4, "train.steps": 3}}
        self.sweep(grid={"batch": batch}, cases=[{"name": "warm, up", "set": {"train.warmup_steps": 2}}], seeds=[1])
        columns, rows = read_csv(self.path("out/summary.csv"))
        self.assertEqual(columns[:6], ["name", "batch", "train.batch_size", "train.steps", "train.warmup_steps",
                                       "train.seed"])
        self.assertEqual([tuple(row[column] for column in (*columns[:3], "steps")) for row in rows],
                         [("batch=small_seed=1", "small", "2", "6"), ("batch=l-rge-_seed=1", "lärge ", "4", "3"),
                          ("warm--up_seed=1", "", "4", "25")])
        labels = read_labels(self.path("out"))
        self.assertEqual([*labels["runs"].values()], [{"batch": "small"}, {"batch": "lärge "}, {"case": "warm, up"}])
        self.assertTrue(all(os.path.exists(self.path("out", name, "config.json")) for name in labels["runs"]))
        self.assertEqual(labels["keys"], {
            "batch": ["train.batch_size", "train.steps"],
            "case": ["train.batch_size", "train.steps", "train.warmup_steps"]})
        # another sweep adds to the labels
        self.sweep(grid={"batch": {"tiny": {"train.batch_size": 1, "train.steps": 2}}})
        self.assertEqual(len(read_labels(self.path("out"))["runs"]), 4)
        for damaged in ("{}", '{"runs": {"a": 1}, "keys": {}}', '{"runs": {"a": {"batch": "small"}}, "keys": {}}'):
            self.write("out/labels.json", damaged)
            done = self.sweep(code=1, grid={"batch": batch}, out="out")
            self.assertRegex(done.stderr, r"\A\[sweep\] out/labels.json: is damaged, .*\n\Z")
            self.assertEqual(done.stdout, "")  # nothing was trained
        os.remove(self.path("out/labels.json"))  # they are written anew
        self.sweep(grid={"batch": batch})
        self.assertEqual(len(read_labels(self.path("out"))["runs"]), 2)
        self.assertEqual(read_labels(self.path("none"))["runs"], {})

    def test_mistakes_are_named_before_anything_runs(self):
        self.file(**TWO_AT_ONCE)
        for mistake, *words in MISTAKES:
            if isinstance(mistake, dict):
                self.file("bad.json", **mistake)
            elif isinstance(mistake, bytes):
                self.write("bad.json", mistake)
            options = mistake if isinstance(mistake, str) else "bad.json"
            with self.subTest(mistake):
                error = self.script("sweep.py", *options.split(), "--out", "never", code=2).stderr
                self.assertEqual(error.count("\n"), 2 if mistake == TWO_AT_ONCE else 1)
                self.assert_no_controls(error)
                for word in words:
                    self.assertIn(word, error)
        self.assertFalse(os.path.exists(self.path("never")))

    def times(self):
        """{name of a run: when its summary was written}"""
        return {path.parent.name: path.stat().st_mtime_ns for path in
                pathlib.Path(self.path("out")).glob("*/summary.json")}

    def test_stories(self):
        self.config({"train": {"steps": 2}})
        self.enterContext(mock.patch.object(processors, "quota", lambda: math.inf))
        self.enterContext(mock.patch.object(sweep_time, "expected_seconds",
                                            lambda _, shares, *rest: print(shares) or 100))
        for story, steps in STORIES.items():
            shutil.rmtree(self.path("out"), ignore_errors=True)
            for step in steps:
                subprocess.run(["sh", "-c", step.before], cwd=self.folder, check=True)
                env, files, times = self.stub(step.stub) if step.stub else {}, self.files(), self.times()
                with self.subTest(story, step=step), mock.patch.dict(os.environ, {**env, **step.env}):
                    done = self.script("sweep.py", "tiny.json", "--out", "out", *step.options.split(), code=step.code)
                    self.assert_no_controls(done.stdout + done.stderr)
                    self.assertRegex(done.stdout, step.says)
                    self.assertRegex(done.stderr, rf"\A{step.error}\Z")
                    changed = [name for name, time in self.times().items() if times.get(name) != time]
                    self.assertEqual(sorted(changed), step.trained.split())
                    if step.table is not None:
                        rows = [f"{name} {row['status']}" for name, row in self.table().items()]
                        self.assertEqual(", ".join(rows), step.table)
                    if step.code == 2 or "--dry-run" in step.options:
                        self.assertEqual(self.files(), files)

    def test_shards_share_the_work_and_the_table(self):
        self.file(seeds=[1, 2, 3, 4, 5], grid=FAST)
        os.makedirs(self.path("out"))
        self.write("out/steps=2_seed=1", "a file where a folder should be")
        # the last does others' runs too
        started = [self.begin("--shard", shard) for shard in ("1/3", "2/3", "3/3", "2/2")]
        for process, code in zip(started, (1, 0, 0, 0)):
            self.end(process, code)
        self.assertEqual(self.statuses(), ["failed"] + ["done"] * 4)

    def test_progress_on_a_terminal(self):
        self.file(grid=FAST, seeds=[1, 2])
        # The second run begins when the line of progress has come.
        env = environment(TERM="xterm", **self.stub("[ -e begun ] && until grep -q '1 of 2 done, 1 running' shown; "
                                                    "do sleep 0.01; done; touch begun"))
        command = shlex.join([*SWEEP, "sweep.json", "--out", "out", "--jobs", "1"])
        shown = subprocess.run(["script", "-qfec", command, "shown"], cwd=self.folder, env=env, timeout=PATIENCE,
                               stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
        self.assertRegex(shown, rb"\r\x1b\[K1 of 2 done, 1 running, about \d+:\d\d left")
        self.assertRegex(shown, rb"\r\x1b\[Kdone +steps=2_seed=1 ")


class Killed(BaseException):
    """The end of a sweep that the system kills."""


class Tables(unittest.TestCase):
    """Sweeps with other grids in one folder at the same time, each killed at any moment and started again. At the end
    every run that has finished has its row with its figures."""

    GRIDS = ({"train.lr": [1, 2, 3]}, {"train.lr": [1, 2, 3, 4]}, {"train.lr": [2, 5], "model.n_layer": [2, 4]},
             {"batch": {"small": {"train.batch_size": 2}, "large": {"train.batch_size": 8}}},
             {"batch": {"small": {"train.batch_size": 3}}, "train.lr": [1, 2]},  # of other names than the next one's
             {"batch": {"small": {"train.batch_size": 4}}},
             {"data.path": ["b", "\u2028", "\x85\x0b\x1c", "\r\n,\""]})  # a cell may hold any characters

    def opened(self, values, folder):
        """A Table of the grid as sweep.py opens it, and the runs that the sweep has to train."""
        with open(folder.parent / "sweep.json", "w", encoding="utf-8") as file:
            json.dump({"base": "tiny.json", "grid": values}, file)
        sweep = load_sweep(file.name)
        for run in sweep.runs:
            run.folder, run.config = folder / run.name, {}
            for key, value in run.settings.items():
                section, _, name = key.partition(".")
                run.config.setdefault(section, {})[name] = value
        table = Table(folder / "summary.csv", sweep)
        table.open()
        return table, list(sweep.runs)

    def train(self, run, draw):
        """As normscope: it finishes the run, or finds it finished, or refuses it, since its config is another."""
        config, summary = run.folder / "config.json", run.folder / "summary.json"
        if not config.exists():
            run.folder.mkdir()
            config.write_text(json.dumps(run.config))
            status = draw.choice(("done", "done", "diverged"))
            summary.write_text(json.dumps({"status": status, "final_val_loss": draw.random(), "steps": 7}))
        run.status = "failed"
        if json.loads(config.read_text()) == run.config:
            run.summary = json.loads(summary.read_text())
            run.status = run.summary["status"]

    def kill_in(self, draw):
        """Makes one of the next calls that replace a file end the sweep, before or after it."""
        replace, calls = os.replace, [draw.randrange(6)]

        def replace_or_end(new, old):
            calls[0] -= 1
            if calls[0] == 0:
                raise Killed
            replace(new, old)
            if calls[0] == 1 and draw.random() < 0.5:
                raise Killed

        return mock.patch.object(os, "replace", replace_or_end)

    def test_every_finished_run_has_its_row(self):
        kills = 0
        for number in range(100):
            with tempfile.TemporaryDirectory() as root, self.subTest(number):
                draw, folder, sweeps = random.Random(number), pathlib.Path(root, "out"), {}
                grids = draw.sample(range(len(self.GRIDS)), draw.choice((2, 3)))
                for _ in range(draw.randint(3, 12)):
                    chosen = draw.choice(grids)
                    try:
                        with self.kill_in(draw):
                            if not sweeps.get(chosen, (None, []))[1]:  # killed before, or at its end
                                sweeps[chosen] = self.opened(self.GRIDS[chosen], folder)
                            table, runs = sweeps[chosen]
                            run = runs.pop(0)
                            self.train(run, draw)
                            if draw.random() < 0.2:
                                raise Killed
                            table.write(run)
                    except Killed:
                        kills += 1
                        sweeps.pop(chosen, None)
                table, runs = self.opened(self.GRIDS[draw.choice(grids)], folder)
                for run in runs:
                    self.train(run, draw)
                    table.write(run)
                self.assert_complete(folder)
        self.assertGreater(kills, 100)

    def assert_complete(self, folder):
        rows = {row["name"]: row for row in read_csv(folder / "summary.csv")[1]}
        self.assertEqual(rows.keys(), {path.parent.name for path in folder.glob("*/summary.json")})
        for name, row in rows.items():
            config, summary = (json.loads((folder / name / f"{part}.json").read_text())
                               for part in ("config", "summary"))
            for column, cell in row.items():
                section, _, key = column.partition(".")
                value = config.get(section, {}).get(key, "") if key else summary.get(column, cell)
                self.assertEqual(cell, str(value), (name, column))


class Stopped(SweepTest):
    def test_killed_at_any_moment_it_ends_as_if_left_alone(self):
        draw = random.Random(int(os.environ.get("NORMSCOPE_SEED", "1")))
        parts = {"seeds": [1, 2], "grid": {"train.lr": [1e-3, 1e-2]}, "changes": BUSY}
        begin = time.monotonic()
        self.sweep("--jobs", "2", out="whole", **parts)
        seconds = time.monotonic() - begin
        kills, sweeps = 0, 0
        while kills < KILLS:
            process = None
            while process is None or process.returncode != 0:  # until a sweep ends before it is killed
                process = self.begin("--jobs", "2")
                try:
                    process.wait(timeout=draw.uniform(0, seconds) if kills < KILLS else PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    kills += 1
                self.assertEqual(process.communicate()[1], "")
            sweeps += 1
            self.assertEqual(self.table(), self.table("whole"))
            self.assertEqual(*({name for name in os.listdir(self.path(folder))
                                if not name.startswith(".normscope-")}  # a temporary file that a kill has left
                               for folder in ("out", "whole")))
            for name in self.table():
                self.assert_same_results(Run(self.path("out", name)), Run(self.path("whole", name)))
            shutil.rmtree(self.path("out"))
        print(f"kills survived: {kills}, in {sweeps} sweeps", file=sys.stderr)

    def test_signals_stop_it_and_save_the_runs(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores hangups, and the sweeps of this test would too
        self.file(grid={"train.steps": [10_000_000]}, seeds=[1, 2])  # long enough to be stopped in it
        runs = [Run(self.path(f"out/steps=10000000_seed={seed}")) for seed in (1, 2)]
        advice = "interrupted; go on with the same command\n"
        for number, code, error in ((signal.SIGINT, 130, advice), (signal.SIGTERM, 130, advice),
                                    (signal.SIGHUP, 130, advice), (signal.SIGUSR1, 130, advice),
                                    (signal.SIGKILL, -signal.SIGKILL, "")):
            process = self.begin("--jobs", "2")
            for run in runs:
                self.wait_for_rows(run.file("metrics.csv"), 3, process)
            process.send_signal(number)
            self.assertEqual(self.end(process, code)[1], error)
            for run in runs:
                self.wait_for(lambda run=run: run.summary["status"] != "running")
                self.assertEqual((run.summary["status"], run.metadata("checkpoint.safetensors")["step"]),
                                 ("interrupted", str(run.summary["steps"])))
            self.assertFalse(os.path.exists(self.path("out", "summary.csv")))
            shutil.rmtree(self.path("out"))

    def test_a_second_signal_ends_it_at_once(self):
        self.file(grid=FAST)
        process = self.begin(
            **self.stub('trap "trap - INT; echo > signalled" INT; echo $$ > pid; sleep 60 & wait; wait'))
        self.wait_for(lambda: os.path.exists(self.path("pid")))
        process.send_signal(signal.SIGINT)
        self.wait_for(lambda: os.path.exists(self.path("signalled")))
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=PATIENCE), 130)
        child = int(Run(self.folder).bytes("pid"))
        self.wait_for(lambda: not os.path.exists(f"/proc/{child}")
                      or "(zombie)" in Run(f"/proc/{child}").bytes("status").decode())
        process.communicate()

    def test_a_run_that_ends_after_the_signal_has_its_row(self):
        self.file(grid={"train.steps": [2, 3]})
        lines = 'trap "echo > signalled" INT; echo > started; until [ -e signalled ]; do sleep 0.01; done'
        process = self.begin("--jobs", "1", **self.stub(lines))
        self.wait_for(lambda: os.path.exists(self.path("started")))
        process.send_signal(signal.SIGINT)
        self.assertRegex(self.end(process, 130)[0], "(?m)^done +steps=2 ")
        self.assertEqual([*self.table()], ["steps=2"])

    def test_a_run_that_another_process_trains_is_awaited(self):
        self.file(grid={"train.steps": [2, 3]})
        os.makedirs(self.path("out/steps=2"))
        self.write("out/.lock", "")
        folder = os.open(self.path("out/steps=2"), os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        process = self.begin("--jobs", "1")
        self.wait_for(lambda: os.path.exists(self.path("out/summary.csv")))
        self.assertEqual([*self.table()], ["steps=3"])
        self.assertIsNone(process.poll())
        fcntl.flock(folder, fcntl.LOCK_UN)
        self.end(process, 0)
        self.assertEqual(self.statuses(), ["done"] * 2)

    def test_a_file_system_without_locks_grants_every_claim(self):
        os.mkdir(self.path("run"))
        run = GridPoint("run", {}, {}, folder=pathlib.Path(self.path("run")))
        for module, function, error, is_granted in (
                (fcntl, "lockf", OSError(errno.ENOLCK, "No locks available"), True),
                (fcntl, "flock", OSError(errno.ENOLCK, "No locks available"), True),
                (os, "open", OSError(errno.ENOSPC, "No space left on device"), True),
                (fcntl, "flock", BlockingIOError, False)):
            with mock.patch.object(module, function, side_effect=error):
                self.assertEqual(Locks(run.folder).acquire(run), is_granted)

    def test_a_second_sweep_does_the_runs_that_the_first_has_not_begun(self):
        self.file(grid={"train.steps": [9_000_000, 2]})
        first = self.begin("--jobs", "1")
        self.wait_for_rows(self.path("out/steps=9000000/metrics.csv"), 1, first)
        second = self.begin("--jobs", "1")
        self.wait_for(lambda: os.path.exists(self.path("out/summary.csv")))
        self.assertEqual([*self.table()], ["steps=2"])
        for process in (first, second):
            self.assertIsNone(process.poll())
            process.send_signal(signal.SIGTERM)
            self.end(process, 130)


if __name__ == "__main__":
    unittest.main()
