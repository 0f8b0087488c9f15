#!/usr/bin/python3
"""The measurement beside busy programs: its table and goals from made-up figures, its loops, and the quick form."""

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

from cli import ROOT, environment

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import bench_load

SCRIPT = os.path.join(ROOT, "scripts", "bench_load.py")
HAS_TORCH = importlib.util.find_spec("torch") is not None


def made_up(one, two, default, load=1, torch=None):
    row = {"1": one, "2": two, "default": default}
    return {("deep_pre", load): {name: {"ms": ms, "chosen": [1, 2], "torch_ms": torch} for name, ms in row.items()}}


class Figures(unittest.TestCase):
    def met(self, *times, load=1):
        return [is_met for is_met, _ in bench_load.judged(made_up(*times, load=load))]

    def test_the_default_is_held_to_the_best_fixed_count_and_to_one_thread(self):
        self.assertEqual(self.met(20, 25, 20.9), [True, True])
        self.assertEqual(self.met(20, 25, 21.5), [True, False])
        self.assertEqual(self.met(20, 25, 23), [False, False])
        self.assertEqual(self.met(20, 15, 17), [False, True])
        self.assertEqual(self.met(20, 10, 10.4, load=0), [False, True])
        self.assertEqual(self.met(20, 10, 10.2, load=0), [True, True])
        self.assertEqual(self.met(20, 10, math.nan), [False, False])

    def test_lines_say_figure_and_goal(self):
        lines = [line for _, line in bench_load.judged(made_up(20, 25, 21.5))]
        self.assertEqual(lines, ["deep_pre, 1 busy loop: default at 1.07 of the best fixed count's time (1) (at most 1.10)",
                                 "deep_pre, 1 busy loop: default at 1.07 of one thread's time (at most 1.05)"])

    def test_the_table_has_a_row_for_each_load(self):
        head, row = bench_load.table(made_up(20, 25.5, 21, torch=30.25))
        self.assertEqual(row.split(), ["deep_pre", "1", "20.00", "25.50", "21.00", "1,2", "30.25", "30.25", "30.25"])
        self.assertLess(head.index("busy loops"), head.index("default"))
        self.assertEqual(bench_load.table(made_up(20, 25.5, 21))[1].split()[-3:], ["-"] * 3)

    def test_medians_are_taken_over_turns(self):
        times = {"1": iter([5, 1, 3]), "2": iter([9, 7, 8]), "default": iter([4, 6, 2])}
        asked = []

        def ours(config, steps, threads):
            asked.append((config, steps, threads))
            return next(times[threads]), 2

        found = bench_load.measure({"deep_pre": 400}, [0], 3, ours=ours, peer=lambda config, steps, threads: steps)
        self.assertEqual(asked, 3 * [("deep_pre", 400, threads) for threads in ("1", "2", "default")])
        self.assertEqual([found["deep_pre", 0][name]["ms"] for name in ("1", "2", "default")], [3, 8, 4])
        self.assertEqual(found["deep_pre", 0]["1"], {"ms": 3, "chosen": [2], "torch_ms": 100})

    def test_loops_are_busy_while_they_last_and_gone_after(self):
        def children():
            listed = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "while os.getppid"], capture_output=True,
                                    text=True, check=False)
            return listed.stdout.split()

        with contextlib.suppress(KeyError), bench_load.busy_loops(2):
            self.assertEqual(len(children()), 2)
            raise KeyError
        self.assertEqual(children(), [])


class Script(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], env=environment(), capture_output=True, text=True,
                              timeout=280, check=False)

    def test_wrong_arguments_are_refused(self):
        for arguments in (["--loads", "1,1"], ["--loads", "-1"], ["--turns", "0"]):
            result = self.run_script(*arguments)
            self.assertEqual(result.returncode, 2)
            self.assertIn("invalid", result.stderr)

    def test_quick_form(self):
        with tempfile.TemporaryDirectory(prefix="normscope-test-") as folder:
            path = os.path.join(folder, "figures.json")
            result = self.run_script("--quick", "--turns", "1", "--loads", "0", "--json", path, "--python", "false")
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path, encoding="utf-8") as file:
                results = json.load(file)["results"]
        self.assertEqual([(row["config"], row["busy_loops"]) for row in results], [("deep_pre", 0), ("nanogpt_cpu", 0)])
        for row in results:
            self.assertEqual(row["threads"]["2"]["chosen"], [2])
            for times in row["threads"].values():
                self.assertGreater(times["ms"], 0)
                self.assertIsNone(times["torch_ms"])

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_the_peer_takes_the_same_config(self):
        self.assertGreater(bench_load.Peer(sys.executable).step_ms("deep_pre", 2, "1"), 0)


if __name__ == "__main__":
    unittest.main()
