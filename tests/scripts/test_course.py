#!/usr/bin/python3
"""The course of configs/course: every command of its page works when all are pasted from top to bottom in a fresh copy
of the tree, with a tiny model and one seed; its tables have the rows that compare.py prints. The long form trains every
grid with the seeds 6 to 8, by which no range was set, and looks for the page's quotations in what the commands
print."""

import re
import shlex
import tempfile
import types
import unittest
from pathlib import Path

import course
from cli import LONG, CliTest, run_script, without_comparison
from made_runs import draw_once
from test_readme import copy_tree

from lib.compare import ranges
from lib.compare.comparison import comparison  # in scripts, which cli.py puts on the path
from lib.base.files import read_json
from lib.compare.groups import Group
from lib.compare.symptoms import SYMPTOMS
from lib.logs.runs import find_runs

TEXT = course.PAGE.read_text(encoding="utf-8")
GRIDS = sorted(file.stem for file in course.PAGE.parent.glob("*.json") if '"grid"' in file.read_text(encoding="utf-8"))
FAILING = "model.norm=batchnorm"  # as the answer to question 10 says
TINY = {"n_layer": 2, "d_model": 16, "d_ff": 16, "steps": 5, "warmup_steps": 1,
        "train.steps": 5, "train.warmup_steps": 1, "model.d_ff": 24, "model.n_layer": 1}


def grid_of(table):
    return table.folder.removeprefix(course.RUNS)


def made_up(losses, status="done"):
    """A group with these final validation losses."""
    return Group([types.SimpleNamespace(record={"final_val_loss": loss}, diverged=status == "diverged", seed=1,
                                        config={}, history={}, text_hash="") for loss in losses])


class Page(unittest.TestCase):
    def test_each_grid_has_a_table_and_a_command(self):
        tables = ranges.tables_in(TEXT)
        self.assertEqual(sorted(map(grid_of, tables)), GRIDS)
        for table in tables:
            self.assertIn(str(table), TEXT)
            grid = grid_of(table)
            line = f"scripts/sweep.py configs/course/{grid}.json --out runs/course/{grid}"
            self.assertIn(line, course.commands(TEXT))

    def test_tables_ask_for_what_their_grids_run(self):
        for table in ranges.tables_in(TEXT):
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual(table.asked, course.planned(grid_of(table), folder))

    def test_ranges_are_outward_and_hold_for_means(self):
        groups = {"a": made_up([2.001, 2.011, 2.021]), "b": made_up([3.004, 3.104, 3.204]),
                  "c": made_up([4.0], "diverged")}
        table = ranges.measured("runs", ["final val"], groups)._replace(asked={})  # as an older normscope printed it
        self.assertEqual(table.rows, {"a": ["1.98 to 2.05"], "b": ["2.80 to 3.41"], "c": ["diverged"]})
        self.assertEqual(ranges.tables_in(f"words\n{TEXT}\n{table}")[-1], table)
        self.assertEqual(ranges.checked(table, groups), (3, []))
        self.assertEqual(ranges.checked(table, {**groups, "b": made_up([2.7, 3.3])}), (3, []))
        self.assertEqual(
            ranges.checked(table, {"a": made_up([2.05, 2.06]), "b": groups["c"], "c": groups["b"], "d": 0}),
            (0, ["d: no row of the table", "a: final val 2.055, expected 1.98 to 2.05",
                 "b: final val 1 of 1 diverged, expected 2.80 to 3.41", "c: final val 3.104, expected diverged"]))
        self.assertEqual(ranges.checked(table, {"a": groups["a"], "b": groups["b"]}), (2, ["c: no runs"]))
        self.assertEqual(ranges.range_text(-3.5, 0.3, "grad first/last"), "0.0001 to 0.0007")

    def test_the_page_has_the_table_of_symptoms(self):
        grid = read_json(course.PAGE.parent / "symptoms.json")["grid"]["fault"]
        for symptom in SYMPTOMS:
            self.assertIn(" Cure: ", symptom.text)
            for case, cured in symptom.cases.items():
                self.assertLessEqual({case, cured}, set(grid))
                cells = re.escape(" | ".join(course.cells_of(symptom, case)))
                self.assertRegex(TEXT, rf"\n\| {cells} \|.*\| {cured} \|")

    def test_every_quotation_follows_a_command(self):
        self.assertEqual((len(course.quotations(TEXT)), TEXT.count("```text")), (10, 10))


class Commands(CliTest):
    def test_commands(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="normscope-course-"))
        copy_tree(self.folder)
        for file in Path(self.folder, "configs", "course").glob("*.json"):
            config = re.sub(r'"seeds": \[1, 2, 3\]', '"seeds": [1]', file.read_text(encoding="utf-8"))
            for key, value in TINY.items():
                config = re.sub(rf'"{re.escape(key)}": \d+', f'"{key}": {value}', config)
            file.write_text(config, encoding="utf-8")
        self.enterContext(without_comparison())  # the page's own commands compare the runs
        draw_once()
        for line in dict.fromkeys(course.commands(TEXT)):
            with self.subTest(line):
                words = shlex.split(line, comments=True)
                run = run_script(*words, cwd=self.folder) if words[0].endswith(".py") else self.call(
                    *words[1:], program=self.path(words[0]))
                self.assertEqual(run.returncode, 1 if FAILING in line else 0, f"{run.stdout}\n{run.stderr}")
        for table in ranges.tables_in(TEXT):
            entries = comparison(find_runs([self.path(table.folder)], "config.json"))["runs"]
            self.assertEqual([entry["label"] for entry in entries], list(table.rows))


@unittest.skipUnless(LONG, "trains for minutes")
class Long(unittest.TestCase):
    def test_ranges_hold_for_seeds_that_did_not_set_them(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [line for table in ranges.tables_in(TEXT)
                     for line in ranges.checked(table, course.train(grid_of(table), [6, 7, 8], folder))[1]]
        self.assertEqual(lines, [])

    def test_quotations_are_what_the_program_prints(self):
        with tempfile.TemporaryDirectory() as folder:
            for table in ranges.tables_in(TEXT):
                course.train(grid_of(table), [1, 2, 3], Path(folder, course.RUNS))
            self.assertEqual(course.symptoms_anew(TEXT, Path(folder, course.RUNS, "symptoms")), TEXT)
            for lines, quoted in course.quotations(TEXT):
                with self.subTest(quoted):
                    here = [line.replace(course.RUNS, f"{folder}/{course.RUNS}") for line in lines]
                    course.quoted_anew(quoted, course.output_of(here))


if __name__ == "__main__":
    unittest.main()
