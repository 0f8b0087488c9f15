#!/usr/bin/python3
"""configs/papers: every experiment is run, judged and drawn on made-up runs of its real grid; four run end to end in
the quick form, in the long form all. Claims follow the losses that the page states, and can be missed."""

import contextlib
import dataclasses
import io
import json
import math
import os
import re
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from cli import LONG, ROOT, CliTest, environment, run_script
from made_papers import law as made_law
from made_papers import made_program

import measure
import reproduce
from lib import forward, papers, papers_run, papers_tables, safetensors_io
from lib.command import ScriptError
from lib.runs import Run
from papers import (amplification, anchor, centred, clustering, deep, depth_curvature, depth_rate, gap, growth,
                    identity, lr_sensitivity, muon_norms, radial, sharpness_order, theory)

NAMES = papers.names_of_experiments()
MODULES = {name: papers.experiment(name) for name in NAMES}
PNG = b"\x89PNG\r\n\x1a\n"
SEEDS = {1: [0], 2: [-0.5**0.5, 0.5**0.5], 3: [-1, 0, 1]}  # by number of seeds: of mean 0 and standard deviation 1
WITH_LOSS_TABLE = [
    name for name, module in MODULES.items() if hasattr(module, "loss_table") and name != "amplification"]  # made-up A
ONE_OF_A_KIND = {
    "growth": "probes", "rmsnorm": "trains", "anchor": "measures what it trained", "residual": "probes and trains"}


def runs_of(losses, **columns):
    """Runs with these losses and, by key, these values."""
    rows = [{"name": "run", "status": "done", "final_val_loss": str(loss)} for loss in losses]
    for row, *values in zip(rows, *columns.values()):
        row.update(dict(zip(columns, values)))
    return papers_run.Runs(rows)


def page_of(name):
    """The lines between an experiment's marks on the page."""
    text = papers.PAGE.read_text(encoding="utf-8").replace("−", "-")
    return re.search(rf"<!-- results:{name} -->\n(.*?)<!-- /results:{name} -->", text, re.DOTALL)[1].splitlines()


def claims_of(name):
    """[(text, measured value, expected range, verdict)] of the claims on the page."""
    lines = page_of(name)
    start = lines.index("| claim | measured | expected |  |") + 2
    cells = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in lines[start:]]
    return [(text.replace("\\|", "|"), float(value), expected, verdict) for text, value, expected, verdict in cells]


def loss_cells(text, names):
    """{(line, column): cell} of the table of validation losses in lines of Markdown, as far as these names of lines
    have one."""
    start = next(number for number, line in enumerate(text) if line.startswith("| validation loss |"))
    columns, *lines = [re.split(r" \| ", line[2:-2]) for line in [*text, ""][start:[*text, ""].index("", start)]]
    return {(name, column): cell for name, *cells in lines for column, cell in zip(columns[1:], cells)
            if name in names and cell.strip()}


def reproduced(*arguments):
    with mock.patch.object(measure, "PRODUCTS", 3), mock.patch.dict(os.environ, environment()):
        return run_script(os.path.join(ROOT, "scripts", "reproduce.py"), *arguments, cwd=ROOT, timeout=1500)


class MadeUp(unittest.TestCase):
    """All experiments, on made-up runs of the real grids with the real seeds."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.made = cls.enterClassContext(made_program())
        cls.results = {name: papers_run.run(module, papers.config_of(name), cls.folder / name, False)
                       for name, module in MODULES.items()}

    def trained(self, name):
        """The Runs of an experiment that trains, else None."""
        results = self.results[name]
        results = results.get("runs") if isinstance(results, dict) else results
        return results if isinstance(results, papers_run.Runs) else None

    @contextlib.contextmanager
    def losses(self, runs, losses):
        """Gives the runs these final losses for a while, in their rows and in their folders."""
        before = [row["final_val_loss"] for row in runs.rows]

        def give(values):
            for row, loss in zip(runs.rows, values):
                row["final_val_loss"] = str(loss)
                summary = row["folder"] / "summary.json"
                content = json.loads(summary.read_text(encoding="utf-8"))
                summary.write_text(json.dumps({**content, "final_val_loss": float(loss)}), encoding="utf-8")

        give(losses)
        try:
            yield
        finally:
            give(before)

    def tables_by_lines(self, name):
        """(lines, columns) of the experiment's tables of losses."""
        tables = []

        def noted(runs, lines, columns=None, against=None):
            tables.append((lines, columns or {"": {}}))
            return papers_tables.loss_table(runs, lines, columns, against)

        with mock.patch.object(MODULES[name], "loss_table", noted):
            MODULES[name].table(self.results[name])
        return tables

    def test_claims_tables_and_pictures_are_those_of_the_page(self):
        for name, module in MODULES.items():
            with self.subTest(name):
                claims = list(module.claims(self.results[name]))
                stated = claims_of(name)
                self.assertEqual([(claim.text, f"{claim.low:g} to {claim.high:g}") for claim in claims],
                                 [(text, expected) for text, _, expected, _ in stated])
                for claim, (text, _, _, verdict) in zip(claims, stated):
                    self.assertTrue(math.isfinite(claim.value), text)
                    self.assertEqual(verdict == "ok", verdict != "MISSED")
                    self.assertTrue(verdict == "ok" or not claim.must_hold, text)
                lines = reproduce.block(name, module, self.results[name], claims).replace("−", "-").splitlines()
                titles = [[line.split(" | ")[0] for line in block] for block in (lines, page_of(name))]
                if name != "amplification":  # whose lines are called by A, which is made up
                    self.assertEqual(*titles)
                self.assertNotRegex("\n".join(lines), r"\b(nan|inf|diverged)\b")
                if hasattr(module, "picture"):  # the quick forms write it to a file
                    self.assertGreater(len(module.picture(self.results[name]).axes), 0)

    def check_losses_of_page(self, name):
        """Runs with the losses of the page must give its table, and its claims as far as these are about losses.
        Returns how many."""
        module, runs = MODULES[name], self.trained(name)
        ((lines, columns),) = self.tables_by_lines(name)
        stated, losses = loss_cells(page_of(name), lines), {}
        for (line, column), cell in stated.items():
            mean, *deviation = map(float, cell.split(" ± "))
            rows = runs.where(**lines[line], **columns[column])
            for row, place in zip(rows, SEEDS[len(rows)], strict=True):
                self.assertNotIn(row["name"], losses, f"{name}: two cells have the same run")
                losses[row["name"]] = mean + place * sum(deviation)
        judged = 0
        with self.losses(runs, [losses[row["name"]] for row in runs.rows]):
            table = module.table(self.results[name]).replace("−", "-").splitlines()
            self.assertEqual(loss_cells(table, lines), stated)
            for claim, (text, value, _, verdict) in zip(module.claims(self.results[name]), claims_of(name)):
                is_about_losses = not hasattr(module, "run") and not hasattr(module, "MEASURES")
                if is_about_losses or re.search(": (learns|the unigram level)$", text):
                    rounding = 0.0011 + 0.01 * abs(value)
                    self.assertAlmostEqual(claim.value, value, delta=rounding, msg=text)
                    if min(abs(value - claim.low), abs(value - claim.high)) > rounding:
                        self.assertEqual(claim.verdict, verdict, text)
                    judged += 1
        return judged

    def test_the_numbers_of_the_first_section_are_those_of_claims(self):
        text = papers.PAGE.read_text(encoding="utf-8")
        section = text.partition("## Is Norm")[2].partition("\n## ")[0]
        self.assertLessEqual(len(section.splitlines()), 40)
        claims = [claim for name in NAMES for claim in claims_of(name)]
        words, values = " ".join(claim[0] for claim in claims), [abs(claim[1]) for claim in claims]
        numbers = re.findall(r"\d+\.\d+", section)
        self.assertGreater(len(numbers), 12)
        for number in numbers:
            rounding = 0.501 * 10.0 ** -len(number.partition(".")[2])
            is_a_claim = any(abs(value - float(number)) <= rounding for value in values)
            self.assertTrue(is_a_claim or f"lr {number}" in words, number)

    def test_the_losses_of_the_page_give_its_tables_and_claims(self):
        judged = 0
        for name in WITH_LOSS_TABLE:
            with self.subTest(name):
                judged += self.check_losses_of_page(name)
        self.assertGreater(judged, 70)

    def test_planted_faults_are_caught(self):
        def columns_swapped(runs, cell, lines, columns):
            return cells_of(runs, cell, lines, dict(zip(columns, reversed(columns.values()))))

        def deviation_of_all(values, form="{:.3f}"):
            return f"{form.format(np.mean(values))} ± {form.format(np.std(values))}"

        def turned(claim):
            return "ok" if claim.high <= claim.value <= claim.low else "MISSED"

        cells_of, paired = papers_tables.cells_of, papers_run.Runs.paired
        post_as_pre = {**MODULES["warmup"].LINES, "post": {"norm_placement": "pre", "warmup_steps": 0}}
        one_scale = dict.fromkeys(MODULES["depth_rate"].SCALES, {"branch_scale": "1"})
        for name, where, attribute, fault in (
                ("warmup", papers_tables, "cells_of", columns_swapped),
                ("warmup", papers_tables, "spread", deviation_of_all),
                ("hybrid", papers_run.Runs, "paired", lambda runs, values, base: paired(runs, base, values)),
                ("deep", papers.Claim, "verdict", property(turned)),
                ("warmup", MODULES["warmup"], "LINES", post_as_pre),
                ("depth_rate", MODULES["depth_rate"], "SCALES", one_scale),
                ("muon_norms", MODULES["muon_norms"], "RATES", ("0.001",))):
            with self.subTest(name, fault=attribute):
                self.check_losses_of_page(name)
                with mock.patch.object(where, attribute, fault), self.assertRaises((AssertionError, KeyError)):
                    self.check_losses_of_page(name)

    def test_claims_about_learning_follow_the_losses(self):
        judged = 0
        for name, module in MODULES.items():
            runs = self.trained(name) or papers_run.Runs([])
            for loss, right, wrong in ((2.5, ": learns", ": the unigram level"),
                                       (papers.UNIGRAM, ": the unigram level", ": learns")):
                losses = [loss + number / 1e5 for number in range(len(runs.rows))]
                with self.subTest(name, loss=loss), self.losses(runs, losses):
                    for claim in module.claims(self.results[name]):
                        if claim.text.endswith((right, wrong)):
                            expected = "ok" if claim.text.endswith(right) else "MISSED"
                            self.assertEqual(claim.verdict, expected, claim.text)
                            judged += 1
        self.assertGreater(judged, 90)

    def test_probes_that_are_off_their_law_miss_it(self):
        laws = [(self.results[name], MODULES[name]) for name in ("growth", "dyt_growth")]
        for probes, module in laws:
            off = {variant: (1.2 * measured, law) for variant, (measured, law) in probes.items()}
            for results, verdict in ((probes, "ok"), (off, "MISSED")):
                claims = [claim for claim in module.claims(results) if "from its law" in claim.text]
                self.assertGreater(len(claims), 1)
                self.assertEqual({claim.verdict for claim in claims}, {verdict})
        probes = self.results["theory"]
        off = {site: {name: (1.2 * measured, law) for name, (measured, law) in pairs.items()}
               for site, pairs in probes.items()}
        self.assertEqual({claim.verdict for claim in theory.claims(probes)}, {"ok"})
        self.assertEqual({claim.verdict for claim in theory.claims(off)}, {"MISSED"})

    def test_claims_of_probes_and_measures_are_those_of_the_made_up_numbers(self):
        """Worked out by hand from made_papers.py."""
        def growth(probes, *variant):
            _, law = probes[variant]
            return float(law)

        def tokens(depth, scale):
            configs = [config for config in self.made.configs["collapse"]
                       if (config["model"]["n_layer"], config["model"]["branch_scale"]) == (depth, scale)]
            return made_law(*configs)["tokens"][-1]

        depths, rises = np.array([6, 8, 10, 12, 14, 24, 48]), 0.1 / np.arange(1, 25)
        slope = np.polyfit(np.log(depths), np.log(depths**-0.4 * (1 + 0.1 / depths)), 1)[0]
        dyt, residual = self.results["dyt_growth"], self.results["residual"]["gradient"]
        gradient = {name: law[0] for name, (_, law) in self.results["laws"]["gradient"].items()}
        in_training = (1 + 300 * 0.01) / (1 + 0.01)
        expected = {
            "xiong": [slope, slope, 1.1 / (1 + 0.1 / 14)],
            "dyt_growth": [None, None, math.log(growth(dyt, "dyt", 96)) / math.log(growth(dyt, "dyt", 24)),
                           math.log(growth(dyt, "layernorm", 96)) / math.log(growth(dyt, "layernorm", 24))],
            "laws": [1, None, gradient["swiglu"], gradient["relu"]],
            "identity": [None] * 6 + [rises[16], rises[16:].mean() / rises[:8].mean()],
            "residual": [math.log10(growth(residual, "none", "false", 48)),
                         math.log10(growth(residual, "none", "true", 48)), 1],
            "collapse": [None, tokens(6, 1), tokens(12, 1), tokens(48, 1), tokens(6, "L^-0.5"), tokens(48, "L^-0.5")],
            "anchor": [None, None, 0.5, 0.5],
            "outgrow": [in_training] * 3,
            "frozen": [None] * 4 + [0.13, 0.105, 0.01 - 0.105, 1, 0.01, 0.065, 0.065],
            "depth_curvature": [1, 1, 1]}
        for name, values in expected.items():
            for claim, value in zip(MODULES[name].claims(self.results[name]), values):
                with self.subTest(name, claim=claim.text):
                    if value is not None:
                        self.assertAlmostEqual(claim.value / value, 1, delta=0.01)

    def test_a_claim_whose_bounds_are_turned_is_missed(self):
        count = 0
        for name, module in MODULES.items():
            for claim in module.claims(self.results[name]):
                right = dataclasses.replace(claim, low=claim.value - 1, high=claim.value + 1)
                turned = dataclasses.replace(right, low=right.high, high=right.low)
                self.assertEqual((right.verdict, turned.verdict), ("ok", "MISSED"), claim.text)
                count += claim.low < claim.high
        self.assertGreater(count, 140)


class Command(unittest.TestCase):
    def run_quick(self, *names):
        with tempfile.TemporaryDirectory() as folder:
            done = reproduced(*names, "--quick", "--out", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            page = Path(folder, "README.md").read_text(encoding="utf-8")
            pictures = {path.stem: path.read_bytes()[:8] for path in Path(folder, "pictures").iterdir()}
        self.assertEqual(pictures, {name: PNG for name in names if hasattr(MODULES[name], "picture")})
        self.assertRegex(done.stdout, r"(?m)^\d+:\d\d in all")
        for name in names:
            part = page.partition(f"<!-- results:{name} -->\n")[2].partition("<!-- /results")[0].replace("−", "-")
            for text, *_ in claims_of(name):
                self.assertIn(text, done.stdout)
                self.assertIn(text.replace("|", "\\|"), part)
            self.assertNotRegex(part, r"\b(nan|inf|diverged|MISSED)\b", name)
            self.assertEqual(f"![{name}](pictures/{name}.png)" in part, hasattr(MODULES[name], "picture"))

    def test_one_of_a_kind_runs_in_its_quick_form(self):
        self.run_quick(*ONE_OF_A_KIND)

    @unittest.skipUnless(LONG, "the long form")
    def test_all_run_in_their_quick_form(self):
        self.run_quick(*NAMES)

    def test_a_probe_is_done_again_only_if_the_program_or_the_config_has_changed(self):
        config, settings = papers.config_of("growth"), {"model.norm_placement": "post"}
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, environment()):
            folder = Path(folder, "probe")
            params = folder / "seed-1" / "params.csv"

            def written(**changes):
                (probed,) = papers_run.probed(config, folder, 1, True, {**settings, **changes})
                self.assertEqual(probed, params.parent)
                return params.stat().st_mtime_ns

            first = written()
            self.assertEqual(written(), first)
            second = written(**{"model.n_layer": 2})
            self.assertGreater(second, first)
            os.utime(folder / "probed.json", (1, 1))  # older than the program
            self.assertGreater(written(**{"model.n_layer": 2}), second)

    def test_usage(self):
        for arguments, says in ((["nonsense"], "no experiment 'nonsense'"),
                                (["--quick", "--write-page"], "mean nothing")):
            done = reproduced(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr)

    def test_an_experiment_without_marks_is_an_error_before_anything_runs(self):
        page = papers.PAGE.read_text(encoding="utf-8")
        for changed, count in ((page.replace("<!-- results:bias -->", ""), 0),
                               (page.replace("<!-- /results:bias -->", "<!-- /results:rmsnorm -->"), 0),
                               (page + "<!-- results:bias -->\n<!-- /results:bias -->\n", 2)):
            with tempfile.TemporaryDirectory(dir=ROOT) as folder, \
                    mock.patch.object(papers, "PAGE", Path(folder, "README.md")):
                papers.PAGE.write_text(changed, encoding="utf-8")
                with self.assertRaisesRegex(ScriptError,
                                            f"experiment bias: got {count} times in .*the lines <!-- results:bias"):
                    papers.names_of_experiments()

    def test_a_missed_claim_is_a_failure(self):
        for missed, loss, holds in ((False, 2.5, True), (True, 2.9, True), (True, math.nan, True), (True, 2.9, False)):
            module = types.SimpleNamespace(
                run=lambda *_, loss=loss: runs_of([loss], norm_placement=["pre"]),
                table=lambda runs: papers_tables.loss_table(runs, papers_tables.placements("pre")),
                claims=lambda runs, holds=holds: [
                    papers.Claim("pre", runs.loss(norm_placement="pre"), 2.0, 2.8, holds)])
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output, \
                    mock.patch.object(reproduce, "experiment", lambda _, module=module: module), \
                    mock.patch("sys.argv", ["reproduce", "deep", "--out", folder]):
                if missed and holds:
                    with self.assertRaisesRegex(SystemExit, "1 of the claims is missed"):
                        reproduce.main()
                else:
                    reproduce.main()
                page = Path(folder, "README.md").read_text(encoding="utf-8")
            part = page.partition("<!-- results:deep -->")[2].partition("<!-- /results")[0]
            for text in (output.getvalue(), part):
                self.assertEqual("MISSED" in text, missed)


class Measures(unittest.TestCase):
    """Against values computed by hand."""

    def test_a_diverged_run_has_learnt_nothing(self):
        runs = runs_of([2.5, 2.5], norm_placement=["pre", "post"])
        runs.rows[1]["status"] = "diverged"
        self.assertEqual(runs.losses(norm_placement="pre"), [2.5])
        self.assertEqual(runs.losses(norm_placement="post"), [math.inf])
        self.assertEqual(papers_tables.spread(runs.losses(norm_placement="post")), "diverged")
        placements = ["post", "pre", "deepnorm", "rezero", "res_post", "post", "pre", "deepnorm"]
        runs = runs_of([math.inf] * 8, n_layer=["24"] * 5 + ["48"] * 3, norm_placement=placements)
        self.assertEqual(list(deep.claims(runs))[2].verdict, "MISSED")

    def test_spread_is_the_standard_deviation_of_the_seeds(self):
        self.assertEqual(papers_tables.spread([2.0, 2.2, 2.7]), "2.300 ± 0.361")
        self.assertEqual(papers_tables.spread([0.25], "{:+.3f}"), "+0.250")

    def test_laws(self):
        self.assertAlmostEqual(papers.log_slope([4, 9, 30], 3 * np.array([4, 9, 30]) ** -0.5), -0.5)
        probes = {"pre": (np.array([[1.0, 2], [1, 3]]), np.array([1.0, 2]))}
        self.assertAlmostEqual(papers.distance_from_law(probes), 0.25)
        self.assertAlmostEqual(papers.distance_from_law(probes, relative=False), 0.5)

    def test_rates(self):
        runs = runs_of([2.5, 2.6, 3.1, 2.4, 2.4], norm_placement=["pre"] * 5, lr=lr_sensitivity.RATES)
        self.assertEqual(lr_sensitivity.largest_rate_that_learns(runs, norm_placement="pre"), 0.003)
        # mean of 0, 0.5 and, for a run above its first loss, 1.5
        runs = runs_of([2.5, 3.0, math.inf], lr=["0.001", "0.01", "0.1"], first=[4.0] * 3)
        self.assertAlmostEqual(lr_sensitivity.sensitivity(runs), 2 / 3)
        losses = [2.5, 2.4, 2.6, 2.7, 2.8, 2.3, 2.5, 2.8, 2.9, 3.0]
        runs = runs_of(losses * 2, branch_scale=["1"] * 10 + ["L^-1"] * 10, n_layer=(["6"] * 5 + ["48"] * 5) * 2,
                       lr=depth_rate.RATES * 4)
        self.assertAlmostEqual(next(depth_rate.claims(runs)).value, 0.2)

    def test_amplification(self):
        runs = runs_of([2.5, 2.6, 3.1, 2.7] * 3, n_layer=["6", "12", "24", "48"] * 3, branch_scale=["1"] * 12,
                       lr=[rate for rate in amplification.RATES for _ in range(4)], A=[7.0, 16.0, 33.0, 70.0] * 3)
        self.assertEqual(amplification.limit(runs, "0.001"), math.sqrt(70 * 33))
        self.assertEqual(amplification.count_out_of_order(runs), 3)
        for row in runs.rows[3::4]:
            row["final_val_loss"] = "3.08"
        self.assertEqual(amplification.limit(runs, "0.001"), math.sqrt(16 * 33))
        self.assertEqual(amplification.count_out_of_order(runs), 0)

    def test_best_rates_are_compared(self):
        losses = {"adamw, rmsnorm": (2.5, 2.3), "adamw, derf": (2.6, 2.5)}
        columns = {key: [values[key] for values in muon_norms.LINES.values() for _ in range(2)]
                   for key in ("optimizer", "norm", "norm_alpha")}
        runs = runs_of([loss for line in muon_norms.LINES for loss in losses.get(line, (2.5, 2.5))],
                       lr=muon_norms.RATES * 7, **columns)
        with contextlib.suppress(ZeroDivisionError):
            self.assertAlmostEqual(next(muon_norms.claims(runs)).value, 0.2)

    def test_speeds_of_clustering(self):
        layers = np.arange(97)
        squares = 1 + 1.5 * layers
        values = {name: np.array([squares ** -0.5] * 2) for name in clustering.PLACEMENTS}
        probes = {"apart": {name: (value, value[0]) for name, value in values.items()},
                  "square": {name: (np.array([squares] * 2), None) for name in values}}
        self.assertAlmostEqual(clustering.power(probes, "pre"), -0.5)
        self.assertAlmostEqual(clustering.rate(0.625 ** layers, (10, 20)), math.log(0.625))
        self.assertLess(clustering.exponential_over_power(0.9 ** layers), 1e-9)
        self.assertGreater(clustering.exponential_over_power(np.maximum(layers, 1) ** -0.7), 1e9)

    def test_a_mean_is_measured_beside_that_of_a_random_direction(self):
        x = np.random.default_rng(1).standard_normal((20, 50, 64))
        model = types.SimpleNamespace(streams=[x, x + 3 * np.ones(64), x - x.mean(-1, keepdims=True)])
        for result, expected in zip(centred.mean_over_law(model), (1, 64 * 9 / 10, 0)):
            self.assertAlmostEqual(result, expected, delta=0.1 + 0.02 * expected)

    def test_a_gap_is_taken_at_an_equal_training_loss(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = ("step,train_loss,val_loss", "1,4,4", "2,3.5,", "3,3,3.1", "4,2,2.6", "5,2.1,2.7", "6,1,2.2", "")
            Path(folder, "metrics.csv").write_text("\n".join(rows), encoding="utf-8")
            *result, lowest = gap.gaps(types.SimpleNamespace(folder=Path(folder)))
        expected = {2.5: 2.85, 2.2: 2.7, 2.0: 2.6, 1.8: 2.6, 1.5: 2.45}
        self.assertEqual(lowest, 1)
        for level, value in zip(gap.LEVELS, result, strict=True):
            self.assertAlmostEqual(value, expected[level] - level, delta=0.11 if level == 2.0 else 1e-9)

    def test_thirds_slopes_and_orders(self):
        self.assertEqual(identity.last_third_over_first(np.array([[4.0, 4, 9, 9, 1, 1], [4, 4, 9, 9, 3, 3]])), 0.5)
        runs = runs_of([0] * 6, branch_scale=["1"] * 3 + ["L^-1"] * 3, n_layer=["2", "4", "8"] * 2,
                       curvature=[[1, y] for y in (3.0, 6.0, 12.0)] * 2)
        self.assertAlmostEqual(list(depth_curvature.claims(runs))[1].value, 1)
        self.assertEqual(sharpness_order.out_of_order([1, 2, 2, 3, 0]), 2)

    def test_depths_of_the_quick_form_are_few_and_all_different(self):
        with tempfile.TemporaryDirectory() as folder:
            file, depths = papers_run.tiny_sweep(papers.config_of("deep"), Path(folder))
            spec = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual(depths, {"3": "12", "4": "24", "5": "48"})
        self.assertEqual(spec["grid"]["model.n_layer"], [4])
        self.assertEqual({case["set"]["model.n_layer"] for case in spec["cases"]}, {5})
        self.assertEqual(spec["grid"]["train.steps"], [4])


class Measured(CliTest):
    """Measures of runs that the program has trained."""

    def test_a_block_that_adds_nothing_turns_nothing_and_can_be_left_out(self):
        folder = Path(self.train("run").path)
        tensors, metadata = safetensors_io.read(folder / "model.safetensors")
        del metadata["checksum"]
        for part in ("attn", "ffn"):
            tensors[f"blocks.0.{part}.out.weight"] *= 0
        safetensors_io.write(folder / "model.safetensors", tensors, metadata)
        angles, rises = identity.angles(Run(folder)), identity.rises_without_block(Run(folder))
        self.assertLess(angles[0], 1e-5)
        self.assertGreater(angles[1], 1e-2)
        self.assertEqual(rises[0], 0)
        self.assertGreater(abs(rises[1]), 1e-5)

    def test_a_measure_is_repeated_if_the_run_or_the_program_or_its_file_is_newer(self):
        folder, calls = Path(self.train("run").path), []
        source, program = Path(self.write("measure.py", "")), Path(self.write("program", ""))

        def steps(run):
            calls.append(run)
            return run.summary["steps"]

        def measured():
            with mock.patch.object(papers_run.inspect, "getfile", lambda _: source), \
                    mock.patch.object(papers_run, "program", lambda: program):
                self.assertEqual(papers_run.measured_once(folder, "steps", steps), 25)
            return len(calls)

        self.assertEqual([measured(), measured()], [1, 1])
        for number, newer in enumerate((folder / "summary.json", program, source), start=2):
            for file in (folder / "summary.json", program, source, folder / "measured_steps.json"):
                os.utime(file, (100, 100 if file == newer else 99 if file.name == "measured_steps.json" else 98))
            self.assertEqual([measured(), measured()], [number, number], newer)

    def test_a_gradient_by_kind_of_parameter(self):
        run = Run(self.train("run").path)
        first, later = sharpness_order.mean_squares(run)
        rows = [row for row in papers_run.read_csv(run.folder / "params.csv")
                if row["step"] == "1" and "norm" in row["param"]]
        self.assertAlmostEqual(first[-1], np.mean([float(row["grad_rms"])**2 for row in rows]))  # they are of one size
        self.assertTrue(all(square > 0 for square in first + later))

    def test_frozen_norms(self):
        """The model's own deviations leave the loss; an average of the last norm's gives what numpy computes."""
        for norm in ("layernorm", "rmsnorm"):
            model = measure.Model(self.train(norm, {"model": {"norm": norm}, "train": {"lr": 0.03}}).path)
            own = measure.freeze(model, lambda rows: rows)
            rises = [own["all"], *(row["rise"] for row in own["norms"].values())]
            self.assertLess(max(map(abs, rises)), 1e-6)
            tokens, targets = measure.validation_windows(model)
            sites = {}
            decoder = measure.decoder_of(model, forward.Decoder)
            decoder.logits(tokens, lambda layer, site, x, sites=sites: sites.update({(layer, site): x}))
            weights, x = decoder.weights, sites[model.config["model"]["n_layer"], "stream"]
            x = x - x.mean(-1, keepdims=True) if norm == "layernorm" else x
            x = x / np.sqrt((x * x).mean(-1) + model.config["model"]["norm_eps"]).mean() * weights["final_norm.weight"]
            x = x + weights.get("final_norm.bias", 0)
            logits = x @ weights.get("head.weight", weights["embed.token.weight"]).T
            loss = forward.cross_entropy(logits, targets)
            result = measure.freeze(model)
            self.assertAlmostEqual(result["norms"]["final_norm"]["rise"], loss - result["loss"], delta=1e-9)
            self.assertGreater(abs(loss - result["loss"]), 1e-4)

    def test_the_loss_that_frozen_norms_raise_is_that_of_the_run_s_evaluations(self):
        run = self.train("run", {"model": {"init": {"scheme": "xavier_normal", "embed_std": 1}},
                                 "train": {"steps": 9, "lr": 0}, "eval": {"every": 5}})  # 2 batches of 4 windows of 16
        (loss,) = [float(row["val_loss"]) for row in run.rows("metrics.csv") if row["step"] == "5"]
        with mock.patch.object(measure, "CHARACTERS", 2 * 4 * 16):
            result = measure.freeze(measure.Model(run.path))
        self.assertAlmostEqual(result["loss"], loss, delta=1e-5)

    def test_lengths_of_weights_before_a_norm_follow_their_law(self):
        for decay in (0, 0.1):
            model = {"norm_placement": "res_post", "activation": "relu", "norm_eps": 0, "tie_embeddings": False}
            train = {"steps": 20, "optimizer": "sgd", "lr": 0.3, "weight_decay": decay, "grad_clip": 0,
                     "schedule": "constant"}
            changes = {"model": model, "train": train, "log": {"layers_every": 1}}
            run = Run(self.train(f"decay-{decay}", changes).path)
            *before_norms, control = radial.lengths(run)
            for length, law in before_norms:
                np.testing.assert_allclose(length, law, rtol=1e-5)
            self.assertGreater(np.abs(control[0] / control[1] - 1).max(), 1e-3)
            for cosine, law in radial.turned(run)[:-1]:
                self.assertAlmostEqual(cosine, law, delta=0.05)
                self.assertLess(cosine, 0.9999)

    def test_a_final_norm_makes_the_gradient_orthogonal(self):
        for final_norm, low, high in ((True, 0, 1e-4), (False, 1e-3, 1)):
            run = Run(self.train(f"final-{final_norm}", {"model": {"final_norm": final_norm, "norm_eps": 0}}).path)
            self.assertTrue(low <= abs(anchor.radial(run)) <= high, anchor.radial(run))


if __name__ == "__main__":
    unittest.main()
