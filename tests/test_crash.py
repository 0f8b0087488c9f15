#!/usr/bin/python3
"""kill -9 at any moment: the run that is then resumed ends with the bits of a run that was left alone.

NORMSCOPE_LONG=1 kills 1,000 times instead of 60; NORMSCOPE_SEED=N draws other moments."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import unittest

from cli import BINARY, LONG, CliTest, Run, environment

KILLS = 1000 if LONG else 60
SWEEP_KILLS = 100 if LONG else 5
# Every step logs, every second one saves: most moments lie in or beside a write.
BUSY = {"model": {"n_layer": 1, "dropout": 0.1}, "train": {"steps": 120, "warmup_steps": 5},
        "eval": {"every": 3, "batches": 1}, "log": {"every": 1, "layers_every": 2}, "checkpoint": {"every": 2}}


class Crash(CliTest):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("NORMSCOPE_SEED", "1"))
        self.draw = random.Random(seed)

    def seconds_of(self, *arguments):
        begin = time.monotonic()
        self.normscope(*arguments)
        return time.monotonic() - begin

    def run_and_kill(self, after, *arguments):
        """Starts the program and kills it `after` seconds; False: it was done before."""
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.kill()
        # A note would say that a kill had left a damaged checkpoint.
        self.assertEqual(process.communicate()[1], "")
        self.assertIn(process.returncode, (0, -9))
        return process.returncode != 0

    def assert_whole_rows(self, run):
        for name in ("metrics.csv", "layers.csv", "params.csv"):
            if os.path.exists(run.file(name)) and (rows := run.bytes(name)):
                self.assertTrue(rows.endswith(b"\n"), f"{name} ends in a torn row")

    def test_runs_killed_anywhere_end_as_if_left_alone(self):
        config = self.config(BUSY)
        seconds = self.seconds_of("train", config, "--out", "whole", "--quiet")
        start_up = self.seconds_of("train", config, "--out", "whole", "--quiet", "--resume")  # and nothing to do
        whole, run = Run(self.path("whole")), Run(self.path("run"))
        kills = finished = 0
        killed_at = set()
        start = ["--resume"]
        while kills < KILLS or finished == 0:
            # Mostly within a quarter of the work, so that a run is killed several times; now and then anywhere.
            work = (seconds - start_up) * self.draw.choice((0.25, 0.25, 0.25, 1))
            after = self.draw.uniform(0, start_up + work)
            if self.run_and_kill(after, "train", config, "--out", "run", *start):
                kills += 1
                start = ["--resume"]
                if os.path.isdir(run.path):
                    self.assert_whole_rows(run)
                    killed_at.add(tuple(sorted(os.listdir(run.path))))
                if kills < KILLS:
                    continue
                self.normscope("train", config, "--out", "run", "--resume", "--quiet")
            self.assertEqual(sorted(os.listdir(run.path)), sorted(os.listdir(whole.path)), "something is left over")
            self.assert_same_results(run, whole, files=(
                "model.safetensors", "best.safetensors", "checkpoint.safetensors", "checkpoint.previous.safetensors",
                "config.json", "sample.txt"))
            self.assertEqual(run.summary["final_val_loss"], whole.summary["final_val_loss"])
            finished += 1
            # The next one starts over what is there, or from nothing.
            start = self.draw.choice((["--resume"], ["--overwrite"]))
            if start == ["--resume"]:
                shutil.rmtree(run.path)
        print(f"kills survived: {kills}, in {finished} runs, in {len(killed_at)} states of the folder", file=sys.stderr)
        self.assertGreater(len(killed_at), 3, "the kills came all at the same stage")

    def test_sweeps_killed_anywhere_end_as_if_left_alone(self):
        self.config(BUSY)
        self.write("sweep.json", json.dumps({"base": "tiny.json", "seeds": [1, 2], "grid": {"train.lr": [1e-3, 1e-2]}}))
        seconds = self.seconds_of("sweep", "sweep.json", "--out", "whole", "--jobs", "2")
        for _ in range(SWEEP_KILLS):
            if not self.run_and_kill(self.draw.uniform(0, 1.2 * seconds), "sweep", "sweep.json", "--out", "out", "--jobs", "2"):
                shutil.rmtree(self.path("out"))
        self.normscope("sweep", "sweep.json", "--out", "out", "--jobs", "2")
        self.assertEqual(sorted(os.listdir(self.path("out"))), sorted(os.listdir(self.path("whole"))))
        for name in os.listdir(self.path("whole")):
            if os.path.isdir(self.path("whole", name)):
                self.assert_same_results(Run(self.path("out", name)), Run(self.path("whole", name)))


if __name__ == "__main__":
    unittest.main()
