#!/usr/bin/python3
"""configs/papers: all of it runs in its quick form, the claims can fail, and the page holds what was measured."""

import contextlib
import io
import math
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from cli import BINARY, ROOT, CliTest, environment, run_script

sys.path.insert(0, os.path.join(ROOT, "scripts"))
from lib import papers  # noqa: E402
from lib import papers_run  # noqa: E402
from lib import papers_tables  # noqa: E402
import measure  # noqa: E402
import reproduce  # noqa: E402
from lib import runs, safetensors_io  # noqa: E402


def rows(losses, **columns):
    """A sweep's summary with these losses, one a row, and what the runs vary."""
    table = [{"name": "run", "status": "done", "final_val_loss": str(loss)} for loss in losses]
    for row, *values in zip(table, *columns.values()):
        row.update(dict(zip(columns, values)))
    return papers_run.Rows(table)


def experiment(name):
    return next(e for e in papers.EXPERIMENTS if e.name == name)


def run(*arguments):
    with mock.patch.object(papers_run, "PROGRAM", BINARY), mock.patch.object(measure, "PRODUCTS", 3), \
            mock.patch.dict(os.environ, environment()):
        return run_script(os.path.join(ROOT, "scripts", "reproduce.py"), *arguments, cwd=ROOT, timeout=1500)


class Papers(unittest.TestCase):
    def test_the_quick_form_runs_measures_and_draws_everything(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("--quick", "--out", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            page = Path(folder, "README.md").read_text(encoding="utf-8")
            pictures = {path.stem: path.read_bytes()[:8] for path in Path(folder, "pictures").iterdir()}
        files = {path.stem for path in Path(ROOT, "configs", "papers").glob("*.json")}
        self.assertEqual(files, {e.name for e in papers.EXPERIMENTS})
        self.assertEqual(pictures, {e.name: b"\x89PNG\r\n\x1a\n" for e in papers.EXPERIMENTS if e.draw})
        self.assertRegex(done.stdout, r"(?m)^\d+:\d\d in all")
        self.assertNotIn("MISSED", done.stdout + page)
        for e in papers.EXPERIMENTS:
            part = page.partition(f"<!-- results:{e.name} -->\n")[2].partition("<!-- /results")[0]
            for claim in e.claims:
                self.assertIn(claim.text, done.stdout)
                self.assertIn(claim.text.replace("|", "\\|"), part)
            self.assertNotRegex(part, r"\b(nan|inf|diverged)\b", e.name)
            self.assertEqual(f"![{e.name}](pictures/{e.name}.png)" in part, e.draw is not None)

    def test_what_is_finished_is_not_done_again(self):
        with tempfile.TemporaryDirectory() as folder:
            stamps = []
            for _ in range(2):
                self.assertEqual(run("growth", "--quick", "--out", folder).returncode, 0)
                stamps.append([path.stat().st_mtime_ns for path in sorted(Path(folder).glob("growth/*/*/params.csv"))])
        self.assertEqual(len(stamps[0]), 2 * 5)
        self.assertEqual(*stamps)

    def test_usage(self):
        for arguments, says in ((["nonsense"], "no experiment 'nonsense'"), (["--quick", "--write-page"], "mean nothing")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr)

    def test_a_missed_claim_is_a_failure(self):
        for missed, loss, holds in ((False, 2.5, True), (True, 2.9, True), (True, float("nan"), True), (True, 2.9, False)):
            claim = papers.Claim("pre", papers.final(norm_placement="pre"), 2.0, 2.8, holds)
            made = papers.Experiment("deep", lambda *_, loss=loss: rows([loss], norm_placement=["pre"]),
                                     papers.losses(papers.placements("pre")), [claim])
            with tempfile.TemporaryDirectory() as folder, mock.patch.object(reproduce, "EXPERIMENTS", [made]), \
                    mock.patch.object(sys, "argv", ["reproduce", "--out", folder]), \
                    contextlib.redirect_stdout(io.StringIO()) as said:
                if missed and holds:
                    with self.assertRaisesRegex(SystemExit, "1 of the claims is missed"):
                        reproduce.main()
                else:
                    reproduce.main()
                page = Path(folder, "README.md").read_text(encoding="utf-8")
            part = page.partition("<!-- results:deep -->")[2].partition("<!-- /results")[0]
            for text in (said.getvalue(), part):
                self.assertEqual("MISSED" in text, missed)

    def test_a_diverged_run_has_learnt_nothing(self):
        table = rows([2.5, 2.5], norm_placement=["pre", "post"])
        table.rows[1]["status"] = "diverged"
        self.assertEqual(table.losses(norm_placement="pre"), [2.5])
        self.assertEqual(table.losses(norm_placement="post"), [math.inf])
        self.assertEqual(papers_tables.spread(table.losses(norm_placement="post")), "diverged")

    def test_measures(self):
        norms = {("pre", layers): (np.full((2, layers), 3 * layers**-0.5), None) for layers in (4, 9, 30)}
        self.assertAlmostEqual(papers_tables.slope(norms, "pre"), -0.5)
        table = rows([2.5, 2.6, 3.1, 2.4], norm_placement=["pre"] * 4, lr=["0.001", "0.003", "0.01", "0.03"])
        self.assertEqual(papers.rate_that_learns({"norm_placement": "pre"}, "0.001", "0.003", "0.01", "0.03")(table), 0.003)
        table = rows([2.5, 2.4, 2.6, 2.3, 2.5, 2.8], n_layer=["6"] * 3 + ["48"] * 3, lr=["0.001", "0.003", "0.01"] * 2)
        self.assertAlmostEqual(papers.lost_by_rate({"n_layer": 6}, {"n_layer": 48}, "0.001", "0.003", "0.01")(table), 0.2)
        self.assertEqual(papers_tables.thirds(np.array([[4.0, 4, 9, 9, 1, 1], [4, 4, 9, 9, 3, 3]])), 0.5)
        by_seed = {"pre": (np.array([[1.0, 2], [1, 3]]), np.array([1.0, 2]))}
        self.assertAlmostEqual(papers_tables.worst_off(by_seed), 0.25)
        self.assertAlmostEqual(papers_tables.worst_off(by_seed, relative=False), 0.5)
        of_post = rows([2.5, 2.6, 3.1, 2.7], n_layer=["6", "12", "24", "48"], branch_scale=["1"] * 4, lr=["0.001"] * 4,
                       A=[7.0, 16.0, 33.0, 70.0])
        self.assertEqual(papers_tables.limit(of_post, "0.001"), math.sqrt(70 * 33))
        self.assertEqual(papers_tables.out_of_order(of_post, "0.001"), 1)
        of_post.rows[3]["final_val_loss"] = "3.08"
        self.assertEqual(papers_tables.limit(of_post, "0.001"), math.sqrt(16 * 33))
        self.assertEqual(papers_tables.out_of_order(of_post, "0.001"), 0)
        # mean of 0, 0.5 and, of a run above its first loss, 1.5
        table = rows([2.5, 3.0, math.inf], lr=["0.001", "0.01", "0.1"], first=[4.0] * 3)
        self.assertAlmostEqual(papers_tables.sensitivity()(table), 2 / 3)
        table = rows([2.5, 2.3, 2.6, 2.5], norm=["rmsnorm"] * 2 + ["derf"] * 2, lr=["0.001", "0.004"] * 2)
        self.assertAlmostEqual(papers_tables.behind({"norm": "rmsnorm"}, norm="derf")(table), 0.2)
        table = rows([0] * 3, n_layer=["2", "4", "8"], curvature=[[1, y] for y in (3.0, 6.0, 12.0)])
        self.assertAlmostEqual(papers_tables.curvature_slope(1)(table), 1)
        self.assertEqual(papers_tables.out_of_order_kinds([1, 2, 2, 3, 0]), 2)


class Measured(CliTest):
    def test_a_block_that_adds_nothing_turns_nothing_and_can_be_left_out(self):
        folder = Path(self.train("run").path)
        tensors, metadata = safetensors_io.read(folder / "model.safetensors")
        del metadata["checksum"]
        for part in ("attn", "ffn"):
            tensors[f"blocks.0.{part}.out.weight"] *= 0
        safetensors_io.write(folder / "model.safetensors", tensors, metadata)
        measured = papers_run.measuring(angle=papers_run.angles, skip=papers_run.losses_without_blocks)
        with mock.patch.object(papers_run, "PROGRAM", BINARY), \
                mock.patch.object(papers_run, "sweep", lambda *_: papers_run.Rows([{"folder": folder}])):
            for _ in range(2):  # measured, then remembered
                (row,) = measured(None, None, False).rows
                self.assertLess(row["angle"][0], 1e-5)
                self.assertGreater(row["angle"][1], 1e-2)
                self.assertEqual(row["skip"][0], 0)
                self.assertGreater(abs(row["skip"][1]), 1e-5)
                (folder / "model.safetensors").unlink(missing_ok=True)

    def test_a_gradient_by_kind_of_parameter(self):
        run = runs.Run(self.train("run").path)
        first, later = papers_run.mean_squares(run)
        rows_of_norms = [row for row in papers_run.read_csv(run.folder / "params.csv") if row["step"] == "1" and "norm" in row["param"]]
        self.assertAlmostEqual(first[-1], np.mean([float(row["grad_rms"])**2 for row in rows_of_norms]))  # they are of one size
        self.assertTrue(all(square > 0 for square in first + later))

    def test_a_final_norm_makes_the_gradient_orthogonal(self):
        for final_norm, low, high in ((True, 0, 1e-4), (False, 1e-3, 1)):
            run = runs.Run(self.train(f"final-{final_norm}", {"model": {"final_norm": final_norm, "norm_eps": 0}}).path)
            self.assertTrue(low <= abs(papers_run.radial(run)) <= high, papers_run.radial(run))


if __name__ == "__main__":
    unittest.main()
