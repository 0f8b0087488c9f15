#!/usr/bin/python3
"""scripts/diagnose.py: a column leaves when enough of its cells do, a healthy run's never does, and each fault of the
course's table of symptoms is called by its name in small runs of it."""

import json
import math
import os
import unittest
from pathlib import Path

from cli import ROOT, CliTest, merged
from made_runs import MadeRuns

from lib.base.command import ScriptError  # in scripts, which cli.py puts on the path
from lib.base.files import read_json
from lib.compare.departures import departures
from lib.compare.symptoms import SYMPTOMS

COURSE = os.path.join(ROOT, "configs", "course")
SMALL = {"model": {"context": 32}, "train": {"steps": 31, "batch_size": 4},
         "eval": {"every": 0, "batches": 1}, "log": {"every": 1}}


def logs(value_at, steps=range(1, 9), places=8, log="layers.csv", column="rms"):
    """A log whose row p of step s has value_at(s, p) in a column."""
    return {log: {step: {f"layer {p}, head 1": {column: value_at(step, p)} for p in range(places)} for step in steps}}


def left(run, healthy=(), **settings):
    """(step, first place, value, range, others) of the one departure; None without one."""
    for found in departures(logs(run, **settings), [logs(other, **settings) for other in healthy]):
        return found.step, found.place, found.value, (found.low, found.high), found.others
    return None


def faulty(factor, places, steps):
    return lambda step, p: factor if p in places and step in steps else 1.0


one = faulty(1.0, (), ())


class Rules(unittest.TestCase):
    def test_enough_cells_leave_and_stay_out(self):
        late = range(4, 9)
        for factor in (4, 0.2, math.nan):
            self.assertEqual(str(left(faulty(factor, (2, 3, 5), late), [one])),
                             str((4, "layer 2, head 1", factor, (1.0, 1.0), 2)))
        for run in (faulty(2.9, range(8), late), faulty(0.4, range(8), late), faulty(9, (2, 3), late),
                    faulty(9, range(8), [4])):
            self.assertIsNone(left(run, [one]))
        self.assertEqual(left(faulty(9, range(8), [8]), [one])[0], 8)
        self.assertEqual(left(faulty(9, [0], late), [one], places=1)[0], 4)

    def test_healthy_runs_give_a_range_over_seeds_steps_and_heads(self):
        self.assertIsNone(left(lambda step, p: 11.0, [one, lambda step, p: 4.0]))
        self.assertEqual(left(lambda step, p: 13.0, [one, lambda step, p: 4.0])[3], (1.0, 4.0))
        for late, at in ((1, 8), (2, 1)):  # one logged step behind is seen at the end, where none follows
            self.assertEqual(left(lambda step, p: 10.0 ** step, [lambda step, p, by=late: 10.0 ** (step - by)])[0], at)
        infinite = faulty(math.inf, range(8), range(1, 8))  # which is no range
        self.assertEqual(left(lambda step, p: 4.0, [infinite])[::3], (7, (1.0, 1.0)))
        swapped = [{"heads.csv": {1: {f"layer 1, head {head}": {"entropy": abs(first - head)} for head in (0, 1)}}}
                   for first in (0.1, 0.9)]
        self.assertEqual(departures(swapped[0], swapped[1:]), [])

    def test_sizes_of_columns(self):
        for column, before, inside, outside in (
                ("train_loss", 2.0, 3.0, 3.2), ("token_cosine", 0.5, 0.8, 0.9),
                ("token_cosine", 1.0, 1.0, 0.999), ("max_logit", 0.01, 8.0, 10.0),
                ("nonfinite", 0, 0, 1)):
            log = {"train_loss": "metrics.csv", "max_logit": "heads.csv"}.get(column, "layers.csv")
            healthy = [lambda step, p, before=before: before]
            self.assertIsNone(left(lambda step, p, inside=inside: inside, healthy, log=log, column=column))
            for out in (outside, math.nan, math.inf, -math.inf):
                self.assertIsNotNone(left(lambda step, p, out=out: out, healthy, log=log, column=column), (column, out))
        for column, before in (("mean", 1.0), ("grad_abs_max", 1.0), ("rms", 0.0)):  # a bias starts at 0
            with self.subTest(column), self.assertRaisesRegex(ScriptError, "no row to compare with"):
                left(one, [lambda step, p, before=before: before], column=column)

    def test_without_a_healthy_run_the_own_first_rows_are_one(self):
        self.assertIsNone(left(lambda step, p: 2.0 ** step))
        self.assertEqual(left(faulty(9, range(8), range(3, 9)))[::3], (3, (1.0, 1.0)))
        self.assertEqual(left(lambda step, p: 1.25 ** step, steps=range(1, 30))[0], 15)  # 1.25^10 is 9.3
        with self.assertRaisesRegex(ScriptError, "fewer than two logged steps"):
            left(one, steps=[1])


class Command(MadeRuns):
    def test_a_run_is_named_by_step_and_a_seed_is_not_accused(self):
        self.make("ill", steps=(1, 2, 3, 4), diverged=True)
        seeds = [self.make(f"seed{seed}", steps=(1, 2, 3, 4), train__seed=seed) for seed in (2, 3)]
        done = self.call("diagnose.py", "ill", *seeds)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^step +log +column +run +2 healthy runs +row +more\n"
                         r"4 +layers.csv +branch_share +nan +0.25 +layer 1, site attn_out +5$")
        self.assertIn("\n4,layers.csv,branch_share,nan,", self.call("diagnose.py", "--csv", "ill", *seeds).stdout)
        done = self.call("diagnose.py", *seeds, "ill")
        self.assertIn("no column leaves the range of the 2 healthy runs", done.stdout)

    def test_errors_are_one_line(self):
        run, other = self.make("run", steps=(1, 2)), self.make("other", steps=(5, 6))
        for log in self.make("bare").glob("*.csv"):
            log.unlink()
        for words, says in (((run, other), "run: no row to compare with"), ((run, run), "no run but"),
                            (("bare",), "bare: has no row in"), (("nothing",), "nothing: no config.json")):
            done = self.call("diagnose.py", *words)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf"\A\[diagnose\] .*{says}.*\n\Z")


class Symptoms(CliTest):
    def test_each_fault_of_the_table_is_named(self):
        self.write("text.txt", Path(ROOT, "data", "austen.txt").read_text(encoding="utf-8")[:60_000])
        base, grid = (read_json(os.path.join(COURSE, name)) for name in ("base.json", "symptoms.json"))
        self.write("base.json", json.dumps(merged(merged(base, SMALL), {"data": {"path": "text.txt"}})))
        for case in {name for symptom in SYMPTOMS for pair in symptom.cases.items() for name in pair}:
            faults = [f"--set={key}={json.dumps(value)}" for key, value in grid["grid"]["fault"][case].items()]
            self.call("train", "base.json", *faults, "--out", case)
        for symptom in SYMPTOMS:
            for case, cured in symptom.cases.items():
                for healthy in ((cured,), ()):
                    with self.subTest(case, healthy=healthy):
                        said = self.script("diagnose.py", case, *healthy).stdout
                        self.assertIn(f"\n{symptom.fault}: at step ", said)


if __name__ == "__main__":
    unittest.main()
