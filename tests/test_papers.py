#!/usr/bin/python3
"""configs/papers: every file can be run, and the claims about their results can fail."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from cli import BINARY, ROOT

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import reproduce  # noqa: E402  (the scripts are no package)


def rows(losses, **columns):
    """A sweep's summary with these losses, one a row, and what the runs vary."""
    table = [{"name": "run", "status": "done", "final_val_loss": str(loss)} for loss in losses]
    for row, *values in zip(table, *columns.values()):
        row.update(dict(zip((f"model.{key}" for key in columns), values)))
    return reproduce.Rows(table)


class Papers(unittest.TestCase):
    def test_every_file_can_be_run_and_has_its_experiment(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "reproduce.py"), "--quick", "--out", folder],
                                  env={**os.environ, "NORMSCOPE_BINARY": BINARY}, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        files = {path.stem for path in Path(ROOT, "configs", "papers").glob("*.json")}
        self.assertEqual(files, {experiment.name for experiment in reproduce.EXPERIMENTS})
        self.assertEqual(done.stdout.count("its file is sound"), len(files) - 1)  # xiong really runs
        self.assertEqual(done.stdout.count("  ok "), 2)

    def test_a_missed_claim_is_a_failure(self):
        for missed, found in ((False, [2.5, 2.5]), (True, [2.5, 2.6]), (True, [2.5, float("nan")])):
            experiment = reproduce.Experiment("rmsnorm", lambda *_: rows(found, norm=["layernorm", "rmsnorm"]),
                                              next(e for e in reproduce.EXPERIMENTS if e.name == "rmsnorm").claims)
            with mock.patch.object(reproduce, "EXPERIMENTS", [experiment]), mock.patch.object(sys, "argv", ["reproduce"]), \
                    contextlib.redirect_stdout(io.StringIO()) as said:
                if missed:
                    with self.assertRaisesRegex(SystemExit, "1 of the claims is missed"):
                        reproduce.main()
                    self.assertIn("MISSED", said.getvalue())
                else:
                    reproduce.main()
                    self.assertIn("ok", said.getvalue())

    def test_a_diverged_run_has_learnt_nothing(self):
        table = rows([2.5, 2.5], norm_placement=["pre", "post"])
        table.rows[1]["status"] = "diverged"
        self.assertEqual(table.losses(norm_placement="pre"), [2.5])
        self.assertEqual(table.losses(norm_placement="post"), [float("inf")])

    def test_slope_and_largest_rate(self):
        self.assertAlmostEqual(reproduce.slope({("pre", layers): 3 * layers**-0.5 for layers in (4, 9, 30)}, "pre"), -0.5)
        table = rows([2.5, 2.6, 3.1, 2.4], norm_placement=["pre"] * 4, lr=["0.001", "0.003", "0.01", "0.03"])
        self.assertEqual(reproduce.largest_rate(table, "pre"), 0.003)


if __name__ == "__main__":
    unittest.main()
