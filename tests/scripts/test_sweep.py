#!/usr/bin/python3
"""scripts/sweep.py: the runs of a file, those that remain to be done, and that a sweep can be stopped at any moment.

NORMSCOPE_LONG=1 kills 200 times instead of 12; NORMSCOPE_SEED=N draws other moments."""

import contextlib
import errno
import fcntl
import json
import math
import os
import pathlib
import random
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
from lib.base import files, processors  # in scripts, which cli.py puts on the path
from lib.sweeps import grid, sweep_folder, sweep_time
from lib.sweeps.grid import GridPoint, labelled_keys, labels_of, load_sweep
from lib.sweeps.sweep_folder import Locks, Table

# A sweep in a process of its own, also without the table of compare.py.
SWEEP = [sys.executable, "-c", "import runpy, sys; sys.executable = '/bin/true'; del sys.argv[0]; "
         "runpy.run_path(sys.argv[0], run_name='__main__')", os.path.join(ROOT, "scripts", "sweep.py")]
GRID = {"model.norm_placement": ["pre", "post"], "model.n_layer": [1, 2e0]}
FAST = {"train.steps": [2]}
SLOW = {"train.steps": [10_000_000]}  # long enough to be stopped in it
BUSY = {"model": {"n_layer": 1}, "train": {"steps": 60}, "eval": {"every": 7}, "log": {"every": 1},
        "checkpoint": {"every": 3}}
CLOCK = ("seconds", "tokens_per_s")
KILLS = 200 if LONG else 12
# Mistakes of a sweep's file, of its parts beside the base, and of options; each with words of the message.
OF_TEXTS = (
    ("[]", "expected an object"), ('{"seeds": [1]}', "base: got null"), ('{"base": "no.json"}', "no file no.json"),
    ('{"base": "tiny.json", "grid": {"train.lr": [1], "train.lr": [2]}}', "duplicate key 'train.lr'"),
    ('{"base": "tiny.json"\n "grid": {}}', "line 2 column 2"), (b'{"base": "\xff"}', "utf-8"))
OF_PARTS = (
    ({"gird": 1}, "gird: unknown key; expected name, base, seeds"),
    ({"cases": [{"set": {}}]}, "cases: got", '{"name": "warm", "set": {'),
    ({"cases": [{"name": "", "set": {"train.lr": 1}}]}, "a case or a named value has an empty name"),
    ({"seeds": [-1]}, "train.seed", "-1", "in seed=-1"),
    ({"seeds": [2, 2]}, "train.seed: has the value 2 twice"),
    ({"seeds": [1], "grid": {"train.seed": [1]}}, "train.seed: set twice"),
    ({"grid": {"train.lr": [0.001, 1e-3]}}, "train.lr: has the value 0.001 twice"),
    ({"grid": {"train.lr": []}}, "grid: train.lr: got []; expected a list"),
    ({"grid": {"train.lr": {"a": {"train.lr": 1}}}}, "grid: train.lr: a key or column"),
    ({"grid": {"data.path": ["a:b", "a-b"]}}, "share the folder path=a-b"),
    ({"grid": {"model.nrom": ["a", "b"]}}, "did you mean model.norm?", "in nrom=a"),
    ({"grid": {"batch": {" ": {"train.lr": 1}}}}, "a case or a named value has an empty name"),
    ({"grid": {"batch": {"a": {}}}}, "grid: batch: got", "or named values: {"),
    ({"grid": {"batch": {"a": [1]}}}, "grid: batch: got", "or named values: {"),
    ({"grid": {"status": {"a": {"train.lr": 1}}}}, "grid: status: a key or column"),
    ({"grid": {"a": {"b": {"train.lr": 1}}, "train.lr": [1]}}, "train.lr: set twice"),
    ({"grid": {"a": {"b": {"train.lr": -1}}}}, "train.lr", "in a=b"))
OF_OPTIONS = (
    ("none.json", "no file none.json"), ("sweep.json --set train.lr=1", "train.lr: set twice"),
    ("sweep.json --jobs 0", "from 1"), ("sweep.json --shard 3/2", "got 3/2; expected I/N"),
    ("sweep.json --shard ²/2", "got ²/2; expected I/N"), ("sweep.json --sed 2", "--sed"),
    ("sweep.json --seeds 1000000000", "--seeds from 0 to 100,000"),
    ("sweep.json --seeds 100000", "400,000 runs; expected at most 100,000"),
    ("sweep.json --seeds 2 --seeds 3", "--seeds is given twice"),
    ("tiny.json --set train.lr=1,2 --set train.lr=3", "train.lr: set twice, by two options --set"))


class SweepTest(CliTest):
    def file(self, name="sweep.json", changes=None, **parts):
        self.config(changes)
        self.write(name, json.dumps({"base": "tiny.json", **parts}))
        return name

    def script(self, *arguments, with_comparison=False, **options):
        """As in CliTest. A sweep prints the table of compare.py only with `with_comparison`."""
        with contextlib.nullcontext() if with_comparison else without_comparison():
            return super().script(*arguments, **options)

    def sweep(self, *options, code=0, out="out", with_comparison=False, **parts):
        return self.script("sweep.py", self.file(**parts), "--out", out, *options, code=code,
                           with_comparison=with_comparison)

    def planned(self, *arguments):
        """The names of the runs that a sweep would train."""
        with mock.patch.object(sweep_time, "expected_seconds", lambda *_: 100):
            lines = self.script("sweep.py", *arguments, "--dry-run").stdout.splitlines()
        self.assertRegex(lines[-1], rf"^{len(lines) - 2} runs? to train, about 2 minutes on \d+ cores?$")
        return lines[1:-1]

    def refused(self, *arguments, code=2, says=(), lines=1):
        error = self.script("sweep.py", *arguments, code=code).stderr
        self.assertEqual(len(error.splitlines()), lines, error)
        for word in says:
            self.assertIn(word, error)
        self.assert_no_controls(error)

    def begin(self, *options, out="out", **env):
        return subprocess.Popen([*SWEEP, "sweep.json", "--out", out, *options], cwd=self.folder, env=environment(**env),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                encoding="utf-8")

    def stub(self, lines):
        """A program that runs these lines of shell before `train`. Returns the environment in which a sweep takes it
        for normscope."""
        self.write("stub", f'#!/bin/sh\n[ $1 = train ] && {{ {lines}; }}\nexec {BINARY} "$@"\n')
        os.chmod(self.path("stub"), stat.S_IRWXU)
        return {"NORMSCOPE_BINARY": self.path("stub")}

    def begin_and_wait_for_rows(self, *options, **parts):
        """Starts a sweep in the background and waits until all of its runs have trained some steps."""
        names = self.planned(self.file(**parts))
        process = self.begin(*options)
        for name in names:
            self.wait_for_rows(self.path("out", name, "metrics.csv"), 3, process)
        return process

    def end(self, process, code):
        out, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, code, errors)
        return out, errors

    def folders(self):
        return sorted(name for name in os.listdir(self.path("out")) if os.path.isdir(self.path("out", name)))

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
        shown = self.sweep("--jobs", "2", seeds=[1, 7], grid=GRID, cases=cases, with_comparison=True).stdout
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
        before = {name: os.stat(self.path("out", name, "checkpoint.safetensors")).st_mtime_ns for name in names[:-2]}
        self.sweep(seeds=[1, 7, 8], grid=GRID, cases=cases)
        self.assertEqual(self.statuses().count("diverged"), 3)
        self.assertEqual({name: os.stat(self.path("out", name, "checkpoint.safetensors")).st_mtime_ns
                          for name in before}, before)

    def test_names_and_options(self):
        self.file(grid={"train.lr": [1e-3]}, cases=[{"name": "x" * 200, "set": {}}], seeds=[3, 4])
        names = self.planned("sweep.json", "--set", "model.n_head=1,2", "--set", "train.steps=1e0", "--seeds", "1")
        self.assertEqual(names[:2], ["lr=0.001_n_head=1_seed=1", "lr=0.001_n_head=2_seed=1"])
        self.assertRegex(names[2], r"^x{83}-[0-9a-f]{16}$")
        for option, values in (('model.norm_placement=["pre","post"],pre', ["--pre---post--", "pre"]),
                               ('model.norm_placement={"attn":"pre","ffn":"post"},"post"',
                                ["--attn-:-pre---ffn-:-post--", "post"]),
                               ("train.lr=1e-3,0.01", ["0.001", "0.01"])):
            expected = [f"{option.partition('=')[0].rpartition('.')[2]}={value}".replace(":", "-") for value in values]
            self.assertEqual(self.planned("tiny.json", "--set", option), expected)
        self.assertEqual(self.planned("tiny.json", "--seeds", "2"), ["seed=1", "seed=2"])
        self.assertEqual(self.planned("tiny.json", "--set", "log.every=5,6", "--set", "eval.every=5,6")[0],
                         "log.every=5_eval.every=5")
        os.mkdir(self.path("sub"))
        self.write("sub/other.json", '{ // of the working directory\n "base": "tiny.json" /* no seeds */ }')
        self.assertEqual(self.planned("sub/other.json"), ["other"])

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
        self.assertRegex(shown, r"\n6 runs to train, about \d+ (second|minute)s? on \d+ cores?\n\Z")
        self.assertFalse(os.path.exists(self.path("out")))
        self.sweep(grid=FAST)
        self.assertRegex(self.sweep("--dry-run", grid=FAST).stdout, r"\nall runs are done\n\Z")

    def test_a_dry_run_counts_what_the_command_trains_again(self):
        """Runs that are done, of which nothing is left, unless their steps are raised; and one that diverged."""
        wild = {"train.optimizer": "sgd", "train.lr": 100, "model.norm": "none", "train.grad_clip": 0}
        parts = {"grid": {"train.seed": [1, 2]}, "cases": [{"name": "wild", "set": wild}]}
        command = self.file(**parts), "--out", "out", "--set"
        self.script("sweep.py", *command, "train.steps=9")
        self.assertEqual(self.statuses(), ["done", "done", "diverged"])
        for steps, again, least in ((9, 1, ""), (7, 1, ""), (12, 3, "0.25, 0.25, ")):
            with mock.patch.object(sweep_time, "expected_seconds", lambda _, shares, *rest: print(shares) or 100):
                shown = self.script("sweep.py", *command, f"train.steps={steps}", "--dry-run").stdout
            self.assertRegex(shown, rf"\n\({least}[\d.]+,?\)\n{again} runs? to train, about 2 minutes on ")
            times = {name: os.stat(self.path("out", name, "summary.json")).st_mtime_ns for name in self.folders()}
            self.script("sweep.py", *command, f"train.steps={steps}")
            changed = [name for name, before in times.items()
                       if os.stat(self.path("out", name, "summary.json")).st_mtime_ns != before]
            self.assertEqual(len(changed), again)

    def test_the_time_of_runs(self):
        """Six runs of two shapes, three at a time: 2, 2, 2 and then 6, 6, 6 seconds, each with its evaluations."""
        self.write("long.txt", "e" * 1000)
        runs = []
        for layers, steps in ((1, 20), (2, 20)):
            config = {"model": {"n_layer": layers, "context": 10}, "eval": {"every": 10, "batches": 1},
                      "data": {"path": self.path("long.txt"), "val_fraction": 0.3},
                      "train": {"batch_size": 3, "grad_accum": 1, "steps": steps}}
            runs += [GridPoint("", {}, {}, [], config) for _ in range(3)]

        def steps(run, jobs, seconds, start):
            self.assertEqual(jobs, 3)
            return {1: 0.1, 2: 0.3}[run.config["model"]["n_layer"]]

        with mock.patch.object(sweep_time, "step_seconds", steps):
            seconds = sweep_time.expected_seconds(runs, [1] * 6, 3, None)
        in_steps = 20 + (1 * 30 + 300) / 30 / 3  # one evaluation of a batch, the last one of the whole split
        self.assertAlmostEqual(seconds, in_steps * (0.1 + 0.3))
        first, second = (pathlib.Path(self.folder, name) for name in ("first", "second"))
        for run, folder, rows in ((runs[3], first, "1,9\n3,11\n11,19\n2"), (runs[4], second, "1,9")):
            run.folder = folder
            folder.mkdir()
            (folder / "metrics.csv").write_text("step,seconds\n" + rows)
        runs[5].folder = pathlib.Path(self.folder, "none")
        self.assertIsNone(sweep_time.seconds_left(runs[4:], 2))  # the row is torn
        self.assertAlmostEqual(sweep_time.seconds_left(runs[3:4], 2), in_steps - 19)  # a second a step
        self.assertAlmostEqual(sweep_time.seconds_left(runs[3:], 2), 2 * in_steps - 19)
        runs[3].status, runs[3].summary = "done", {"seconds": 50}
        self.assertAlmostEqual(sweep_time.seconds_left(runs[3:], 1), 100)
        for seconds, words in ((0.2, "1 second"), (40, "40 seconds"), (400, "7 minutes"), (9000, "2.5 hours")):
            self.assertEqual(sweep_time.duration(seconds), words)

    def test_named_values_set_several_keys(self):
        batch = {"small": {"train.batch_size": 2, "train.steps": 6},
                 "lärge ": {"train.batch_size": 4, "train.steps": 3}}
        parts = {"seeds": [1, 2], "cases": [{"name": "warm, up", "set": {"train.warmup_steps": 2}}]}
        self.sweep(grid={"batch": batch, "model.n_layer": [1, 2]}, **parts)
        names = [f"batch={value}_n_layer={layers}_seed={seed}"
                 for value in ("small", "l-rge-") for layers in (1, 2) for seed in (1, 2)]
        columns, rows = read_csv(self.path("out/summary.csv"))
        self.assertEqual(columns[:7], ["name", "batch", "train.batch_size", "train.steps", "model.n_layer",
                                       "train.warmup_steps", "train.seed"])
        self.assertEqual([row["name"] for row in rows], [*names, "warm--up_seed=1", "warm--up_seed=2"])
        self.assertEqual([(row["batch"], row["train.batch_size"], row["steps"]) for row in rows[:8:4]],
                         [("small", "2", "6"), ("lärge ", "4", "3")])
        self.assertEqual(rows[8]["batch"], "")
        labels = labels_of(self.path("out"))
        self.assertEqual({path.name: label for path, label in labels.items()},
                         {**dict.fromkeys(names[:4], {"batch": "small"}),
                          **dict.fromkeys(names[4:], {"batch": "lärge "}),
                          "warm--up_seed=1": {"case": "warm, up"}, "warm--up_seed=2": {"case": "warm, up"}})
        self.assertTrue(all((path / "config.json").exists() for path in labels))
        self.assertEqual(labelled_keys(self.path("out")),
                         {"batch": ["train.batch_size", "train.steps"],
                          "case": ["train.batch_size", "train.steps", "model.n_layer", "train.warmup_steps"]})
        # another sweep adds to the labels
        self.sweep(grid={"batch": {"tiny": {"train.batch_size": 1, "train.steps": 2}}})
        self.assertEqual(len(labels_of(self.path("out"))), 11)
        for damaged in ("{}", '{"runs": {"a": 1}, "keys": {}}', '{"runs": {"a": {"batch": "small"}}, "keys": {}}'):
            self.write("out/labels.json", damaged)
            self.assertIn("labels.json: is damaged", self.sweep(code=1, grid={"batch": batch}, out="out").stderr)
        self.assertEqual(labels_of(self.path("none")), {})

    def test_mistakes_are_named_before_anything_runs(self):
        self.config()
        for text, *words in (*OF_TEXTS, *((json.dumps({"base": "tiny.json", **parts}), *words)
                                          for parts, *words in OF_PARTS)):
            self.write("bad.json", text)
            self.refused("bad.json", "--out", "never", says=words)
        self.file(grid={"train.lr": [-1, 0.1], "model.n_head": [2, 5]})
        self.refused("sweep.json", "--out", "never", lines=2,
                     says=["train.lr", "model.n_head: 5 does not divide", "in lr=-1_n_head="])
        for options, words in OF_OPTIONS:
            self.refused(*options.split(), says=[words])
        self.assertFalse(os.path.exists(self.path("never")))

    def test_a_failed_run_is_named_and_tried_again(self):
        os.makedirs(self.path("out"))
        self.write("out/lr=0.001", "a file where a folder should be")
        parts = {"grid": {"train.lr": [1e-3, 1e-2]}}
        result = self.sweep(code=1, **parts)
        self.assertRegex(result.stdout, r"(?m)^failed +lr=0.001 .*is a file")
        self.assertRegex(result.stderr, r"^\[sweep\] 1 of 2 runs failed; .*\n$")
        self.assertEqual(self.statuses(), ["failed", "done"])
        os.remove(self.path("out/lr=0.001"))
        self.sweep(**parts)
        self.assertEqual(self.statuses(), ["done"] * 2)
        self.write("out/lr=0.01/summary.json", '{"status":')
        self.sweep(**parts)
        self.assertEqual(self.statuses(), ["done"] * 2)

    def test_cells_may_hold_any_characters(self):
        texts = ["b.txt", "\u2028.txt", "\x85\x0b\x1c.txt", "\r\n,\".txt"]
        for name in texts:
            self.write(name, Run(self.folder).bytes("text.txt"))
        self.file(grid={"data.path": texts, **FAST})
        for arguments in (["--shard", "1/2"], ["--shard", "2/2"], []):
            self.script("sweep.py", "sweep.json", "--out", "out", *arguments)
        rows = read_csv(self.path("out/summary.csv"))[1]
        self.assertEqual([row["data.path"] for row in rows], [self.path(name) for name in texts])
        self.assertEqual([(row["status"], row["steps"]) for row in rows], [("done", "2")] * 4)

    def test_a_table_that_cannot_be_written_ends_no_sweep(self):
        self.file(grid={"train.steps": [2, 3, 4]})
        out, errors = self.end(self.begin("--jobs", "1", **self.stub("mkdir -p out/summary.csv")), 1)
        self.assertEqual(out.count("done  "), 3)
        self.assertEqual(out.count("out/summary.csv: Is a directory"), 1)
        self.assertRegex(errors, r"^\[sweep\] out/summary.csv: Is a directory; .*\n$")
        os.rmdir(self.path("out/summary.csv"))
        self.end(self.begin(**self.stub('case "$*" in *out/steps=4*) rmdir out/summary.csv ;; '
                                        '*) mkdir -p out/summary.csv ;; esac')), 0)
        self.assertEqual(self.statuses(), ["done"] * 3)

    def test_a_table_of_someone_else_is_never_replaced(self):
        os.makedirs(self.path("out"))
        self.file(grid=FAST)
        for table in ("my,precious\n1,2\n", "", "name,status\nme,fine\n"):
            self.write("out/summary.csv", table)
            for option in ([], ["--dry-run"]):
                self.refused("sweep.json", "--out", "out", *option, says=["out/summary.csv", "--out DIR"])
            self.assertEqual(Run(self.path("out")).contents(), {"summary.csv": table.encode()})
        os.remove(self.path("out", "summary.csv"))
        self.sweep(grid=FAST)
        self.sweep(grid={"train.lr": [1]})  # a table of ours, of another grid
        self.assertEqual(list(self.table()), ["lr=1", "steps=2"])
        shutil.rmtree(self.path("out/steps=2"))
        self.sweep(grid={"train.lr": [1]})
        self.assertEqual(list(self.table()), ["lr=1"])
        self.normscope("train", "tiny.json", "--set", "train.steps=2", "--out", "runs/mine")
        for option in ([], ["--dry-run"]):
            self.refused("sweep.json", "--out", "runs", *option, says=["runs: holds other runs, such as mine"])

    def test_shards_share_the_work_and_the_table(self):
        self.file(seeds=[1, 2, 3, 4, 5], grid=FAST)
        os.makedirs(self.path("out"))
        self.write("out/steps=2_seed=1", "a file where a folder should be")
        # the last does others' runs too
        started = [self.begin("--shard", shard) for shard in ("1/3", "2/3", "3/3", "2/2")]
        for process, code in zip(started, (1, 0, 0, 0)):
            self.end(process, code)
        self.assertEqual(self.statuses(), ["failed"] + ["done"] * 4)

    def test_without_the_program_or_what_only_helps(self):
        self.file(grid=FAST)
        error = self.end(self.begin(NORMSCOPE_BINARY="none"), 1)[1]
        self.assertRegex(error, r"\A\[sweep\] none: No such file .*: build it by scripts/build.sh, or name .*\n\Z")
        self.end(self.begin(PATH=self.folder), 0)  # neither setpriv nor nproc
        self.assertEqual(self.statuses(), ["done"])

    def test_cores_are_shared_out(self):
        with (mock.patch.dict(os.environ, OMP_NUM_THREADS="8"),
              mock.patch.object(processors, "quota", lambda: math.inf)):
            shown = self.sweep("--dry-run", grid=FAST).stdout
            self.sweep("--jobs", "3", grid=FAST)
        self.assertIn("; 1 at a time, 8 threads each;", shown)
        self.assertEqual(Run(self.path("out", "steps=2")).summary["threads"], 2)

    def test_progress_on_a_terminal_and_in_a_pipe(self):
        self.file(grid=FAST, seeds=[1, 2])
        # The second run begins when the line of progress has come.
        env = environment(TERM="xterm", **self.stub("[ -e begun ] && until grep -q '1 of 2 done, 1 running' shown; "
                                                    "do sleep 0.01; done; touch begun"))
        command = shlex.join([*SWEEP, "sweep.json", "--out", "out", "--jobs", "1"])
        shown = subprocess.run(["script", "-qfec", command, "shown"], cwd=self.folder, env=env, timeout=PATIENCE,
                               stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
        self.assertRegex(shown, rb"\r\x1b\[K1 of 2 done, 1 running, about \d+:\d\d left")
        self.assertRegex(shown, rb"\r\x1b\[Kdone +steps=2_seed=1 ")
        self.assertNotRegex(self.sweep(grid=FAST, out="piped").stdout, "[\r\x1b]")


class Killed(BaseException):
    """The end of a sweep that the system kills."""


class Tables(unittest.TestCase):
    """Sweeps with other grids in one folder at the same time, each killed at any moment and started again. At the end
    every run that has finished has its row with its figures."""

    GRIDS = ({"train.lr": [1, 2, 3]}, {"train.lr": [1, 2, 3, 4]}, {"train.lr": [2, 5], "model.n_layer": [2, 4]},
             {"batch": {"small": {"train.batch_size": 2}, "large": {"train.batch_size": 8}}},
             {"batch": {"small": {"train.batch_size": 3}}, "train.lr": [1, 2]},  # of other names than the next one's
             {"batch": {"small": {"train.batch_size": 4}}})

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
        table.open(folder)
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
        """Makes one of the next calls that write a file end the sweep, before or after it."""
        calls = [draw.randrange(6)]

        def write(path, content):
            calls[0] -= 1
            if calls[0] == 0:
                raise Killed
            files.write_atomically(path, content)
            if calls[0] == 1 and draw.random() < 0.5:
                raise Killed

        return (mock.patch.object(grid, "write_atomically", write),
                mock.patch.object(sweep_folder, "write_atomically", write))

    def test_every_finished_run_has_its_row(self):
        kills = 0
        for number in range(100):
            with tempfile.TemporaryDirectory() as root, self.subTest(number):
                draw, folder, sweeps = random.Random(number), pathlib.Path(root, "out"), {}
                grids = draw.sample(range(len(self.GRIDS)), draw.choice((2, 3)))
                for _ in range(draw.randint(3, 12)):
                    chosen, patches = draw.choice(grids), self.kill_in(draw)
                    try:
                        with patches[0], patches[1]:
                            if not sweeps.get(chosen, (None, []))[1]:  # killed before, or at its end
                                sweeps[chosen] = self.opened(self.GRIDS[chosen], folder)
                            table, runs = sweeps[chosen]
                            run = runs.pop(0)
                            self.train(run, draw)
                            if draw.random() < 0.2:
                                raise Killed
                            table.add(run)
                    except Killed:
                        kills += 1
                        sweeps.pop(chosen, None)
                table, runs = self.opened(self.GRIDS[draw.choice(grids)], folder)
                for run in runs:
                    self.train(run, draw)
                    table.add(run)
                self.assert_complete(folder)
        self.assertGreater(kills, 100)

    def assert_complete(self, folder):
        _, rows = read_csv(folder / "summary.csv")
        finished = {path.parent: json.loads(path.read_text()) for path in folder.glob("*/summary.json")}
        self.assertEqual({row["name"]: (row["status"], row["final_val_loss"], row["steps"]) for row in rows},
                         {path.name: (summary["status"], str(summary["final_val_loss"]), str(summary["steps"]))
                          for path, summary in finished.items()})
        for row in rows:
            config = json.loads((folder / row["name"] / "config.json").read_text())
            for key, cell in row.items():
                section, _, name = key.partition(".")
                if name:
                    self.assertEqual(cell, str(config.get(section, {}).get(name, "")), (row["name"], key))


class Stopped(SweepTest):
    def test_killed_at_any_moment_it_ends_as_if_left_alone(self):
        draw = random.Random(int(os.environ.get("NORMSCOPE_SEED", "1")))
        parts = {"seeds": [1, 2], "grid": {"train.lr": [1e-3, 1e-2]}, "changes": BUSY}
        begin = time.monotonic()
        self.sweep("--jobs", "2", out="whole", **parts)
        seconds = time.monotonic() - begin
        kills, sweeps, is_finished = 0, 0, False
        # Ends with a sweep that finishes, as the runs of a killed one would still write into the folder.
        while kills < KILLS or not is_finished:
            process = self.begin("--jobs", "2")
            try:
                process.wait(timeout=draw.uniform(0, seconds) if kills < KILLS else PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            self.assertEqual(process.communicate()[1], "")
            is_finished = process.returncode == 0
            if is_finished:
                sweeps += 1
                self.assertEqual(self.table(), self.table("whole"))
                self.assertEqual(*({name for name in os.listdir(self.path(folder))
                                    if not name.startswith(".normscope-")}  # a temporary file that a kill has left
                                   for folder in ("out", "whole")))
                for name in self.folders():
                    self.assert_same_results(Run(self.path("out", name)), Run(self.path("whole", name)))
                shutil.rmtree(self.path("out"))
        print(f"kills survived: {kills}, in {sweeps} sweeps", file=sys.stderr)

    def test_the_runs_of_a_killed_sweep_save_their_state(self):
        process = self.begin_and_wait_for_rows(grid=SLOW, seeds=[1])
        process.kill()
        process.communicate()
        run = Run(self.path("out", "steps=10000000_seed=1"))
        self.wait_for(lambda: run.summary["status"] != "running")
        self.assertEqual(run.summary["status"], "interrupted")

    def test_signals_stop_it_and_save_the_runs(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores hangups, and the sweeps of this test would too
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            process = self.begin_and_wait_for_rows("--jobs", "2", grid=SLOW, seeds=[1, 2])
            process.send_signal(number)
            self.assertEqual(self.end(process, 130)[1], "interrupted; go on with the same command\n")
            for name in self.folders():
                run = Run(self.path("out", name))
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
        with open(self.path("pid"), encoding="ascii") as pid:
            child = int(pid.read())
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

    def test_a_run_that_alone_gets_a_signal_is_interrupted(self):
        process = self.begin_and_wait_for_rows("--jobs", "2", grid={"train.steps": [9_000_000, 9_000_001]})
        children = self.children_of(process)
        os.kill(children["steps=9000000"], signal.SIGTERM)
        self.wait_for(lambda: len(self.children_of(process)) == 1)
        os.kill(children["steps=9000001"], signal.SIGKILL)
        out, errors = self.end(process, 1)
        self.assertRegex(out, "(?m)^interrupted +steps=9000000 +its state is saved$")  # no advice but the sweep's
        self.assertRegex(out, "(?m)^failed +steps=9000001 +ended by signal 9, as the system does if memory is short: ")
        self.assertRegex(errors, r"^\[sweep\] 1 of 2 runs failed; .*\n\[sweep\] 1 of 2 runs interrupted, .*\n$")
        self.assertEqual({name: row["status"] for name, row in self.table().items()}, {"steps=9000001": "failed"})

    def children_of(self, process):
        """{name of the run: process id} of the programs that a sweep has started."""
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as children:
            pids = children.read().split()
        commands = {pid: Run(f"/proc/{pid}").bytes("cmdline").decode().split("\0") for pid in pids}
        return {os.path.basename(words[words.index("--out") + 1]): int(pid)
                for pid, words in commands.items() if "--out" in words}

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
        run = GridPoint("run", {}, {}, [], folder=pathlib.Path(self.path("run")))
        for lock in ("lockf", "flock"):
            with mock.patch.object(fcntl, lock, side_effect=OSError(errno.ENOLCK, "No locks available")):
                self.assertTrue(Locks(run.folder).acquire(run))
        with mock.patch.object(os, "open", side_effect=OSError(errno.ENOSPC, "No space left on device")):
            self.assertTrue(Locks(run.folder).acquire(run))
        with mock.patch.object(fcntl, "flock", side_effect=BlockingIOError):
            self.assertFalse(Locks(run.folder).acquire(run))

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
