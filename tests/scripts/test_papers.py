"""configs/papers: the page shows what its kept results give, and its prose the same numbers; four experiments run end
to end in the quick form, in the long form all. Measures follow values computed by hand."""

import contextlib
import functools
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
import reproduce  # in scripts, which cli.py puts on the path
from lib.base.command import ScriptError
from lib.logs import safetensors_io
from lib.logs.runs import Run
from lib.model import forward, measures
from lib.theory import mean_field
from papers import (amplification, anchor, centred, deep, direction, gain, gap, identity, lr_sensitivity, radial,
                    sharpness_order, spikes)
from papers.lib import papers, papers_results, papers_run, papers_tables

NAMES = papers.names_of_experiments()
MODULES = {name: papers.experiment(name) for name in NAMES}
KEPT = {name: papers_results.load(name) for name in NAMES}
PNG = b"\x89PNG\r\n\x1a\n"
ONE_OF_A_KIND = {
    "growth": "probes", "rmsnorm": "trains", "anchor": "measures what it trained", "residual": "probes and trains"}
# What is no prose: results, predictions, numbers from elsewhere, code, addresses, and numbers of papers at arXiv.
NO_PROSE = r"(?s)<!-- (results:\w+|predict:\w+|elsewhere) -->.*?<!-- /\1 -->|```.*?```|`[^`]*`|\]\([^)]*\)|\d{4}\.\d{5}"


def runs_of(losses, **columns):
    """Runs with these losses and, by key, these values."""
    rows = [{"status": "done", "final_val_loss": loss} for loss in losses]
    for row, *values in zip(rows, *columns.values()):
        row.update(dict(zip(columns, values)))
    return papers_results.Runs(rows)


def page_of(name):
    """The text between an experiment's marks on the page."""
    text = papers.PAGE.read_text(encoding="utf-8")
    return re.search(rf"<!-- results:{name} -->\n(.*?)<!-- /results:{name} -->", text, re.DOTALL)[1]


def is_shown(number, values):
    """Whether a number of the prose is one of the values, but for its rounding."""
    rounding = 0.501 * 10.0 ** -len(number.partition(".")[2])
    return any(abs(value - float(number)) <= rounding for value in values)


@functools.cache
def amplification_of(placement, **model):
    """As scripts/predict.py has it, of the quick start's model."""
    settings = {"norm_placement": placement, **model}
    config = mean_field.resolved(os.path.join(ROOT, "configs", "quickstart.json"),
                                 [f"model.{key}={value}" for key, value in settings.items()])
    return mean_field.predict(config, narrow=True).amplification


def reproduced(*arguments):
    with mock.patch.object(measures, "PRODUCTS", 3), mock.patch.dict(os.environ, environment()):
        return run_script(os.path.join(ROOT, "scripts", "reproduce.py"), *arguments, cwd=ROOT)


class Page(unittest.TestCase):
    def test_tables_claims_and_pictures_are_those_of_the_kept_results(self):
        for name, results in KEPT.items():
            with self.subTest(name):
                self.assertEqual(reproduce.block(name, MODULES[name], results), page_of(name))
                for claim in MODULES[name].claims(results):
                    self.assertTrue(claim.verdict == "ok" or not claim.must_hold, claim.text)
                if hasattr(MODULES[name], "picture"):
                    self.assertGreater(len(MODULES[name].picture(results).axes), 0)

    def test_the_readme_counts_the_experiments(self):
        readme = Path(ROOT, "README.md").read_text(encoding="utf-8")
        self.assertRegex(readme, rf"claims of papers in {len(NAMES)}\s+experiments")

    def test_the_kept_results_are_small_and_of_experiments(self):
        files = list(papers_results.FOLDER.iterdir())
        self.assertEqual({file.stem for file in files}, set(NAMES))
        self.assertLess(sum(file.stat().st_size for file in files), 1e6)
        for name in KEPT:
            text = papers_results.file_of(name).read_text(encoding="utf-8")
            self.assertEqual(papers_results.text_of(json.loads(text)), text)

    def test_results_are_kept_with_nine_digits(self):
        results = {"runs": runs_of([2.1234567891, 2.5], seed=["1", "2"], curve=[[1, 2.0], [1, 3.0]]),
                   "probe": {"pre, L 14": papers_results.Probed(np.array([[1.0, 1 / 3]]), np.array([0.5]))}}
        again = papers_results.of_data(json.loads(papers_results.text_of(results)))
        self.assertEqual(again["runs"].losses(), [2.12345679, 2.5])
        self.assertEqual(again["runs"].rows[1], results["runs"].rows[1])
        probed = again["probe"]["pre, L 14"]
        self.assertEqual((probed.measured.tolist(), probed.law.tolist()), ([[1, 0.333333333]], [0.5]))

    def test_the_numbers_of_the_prose_are_shown_in_the_results(self):
        """Each decimal of a section that does not come from elsewhere is in its tables and claims; in a section without
        results, in those of the parts that it links, or of all."""
        sections = re.split(r"(?m)^## ", papers.PAGE.read_text(encoding="utf-8").replace("−", "-"))[1:]
        self.assertLessEqual(len(sections[0].splitlines()), 40)
        parts = {}  # {the address of a section's title: the names of its results}
        for section in sections:
            address = re.sub(r"[^\w -]", "", section.partition("\n")[0].lower()).replace(" ", "-")
            parts[address] = re.findall(r"(?m)^<!-- results:(\w+)", section)
        count = 0
        for section, own in zip(sections, parts.values(), strict=True):
            linked = [name for address in re.findall(r"\]\(#([\w-]+)\)", section) for name in parts[address]]
            blocks = "".join(map(page_of, own or linked or NAMES))
            shown = [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", blocks)]
            for number in re.findall(r"(?<![\w.])\d+\.\d+", re.sub(NO_PROSE, "", section)):
                self.assertTrue(is_shown(number, shown), (section[:20], number))
                count += 1
        self.assertGreater(count, 100)

    def test_the_numbers_that_predict_gives(self):
        """Lists between marks, of placements with a measured and the predicted number, or that one alone."""
        number_of = {"amplification": lambda placement: f"{amplification_of(placement):#.3g}",
                     "wide": lambda placement: f"{amplification_of(placement, d_model=128, d_ff=512, n_layer=6):#.3g}",
                     "bf16": lambda placement: f"{166e-3 * math.sqrt(2 * amplification_of(placement)):.2f}"}  # percent
        page = papers.PAGE.read_text(encoding="utf-8")
        lists = re.findall(r"(?s)<!-- predict:(\w+) -->(.*?)<!-- /predict:\1 -->", page)
        self.assertEqual({kind for kind, _ in lists}, {*number_of})
        for kind, text in lists:
            stated = re.findall(r"(\w+)\s+(?:[\d.]+(?: ± [\d.]+)?, )?([\d.]+)(?:;|$)", text)
            self.assertEqual(len(stated), text.count(";") + 1)
            for placement, number in stated if LONG else stated[:2]:
                self.assertEqual(number, number_of[kind](placement), (kind, placement))


class Command(unittest.TestCase):
    def run_quick(self, *names):
        with tempfile.TemporaryDirectory() as folder:
            done = reproduced(*names, "--quick", "--out", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            page = Path(folder, "README.md").read_text(encoding="utf-8")
            pictures = {path.stem: path.read_bytes()[:8] for path in Path(folder, "pictures").iterdir()}
            self.assertEqual({path.stem for path in Path(folder, "results").iterdir()}, set(names))
        self.assertEqual(pictures, {name: PNG for name in names if hasattr(MODULES[name], "picture")})
        self.assertRegex(done.stdout, r"(?m)^\d+:\d\d in all")
        for name in names:
            part = page.partition(f"<!-- results:{name} -->\n")[2].partition("<!-- /results")[0].replace("−", "-")
            for claim in MODULES[name].claims(KEPT[name]):
                self.assertIn(claim.text, done.stdout)
                self.assertIn(claim.text.replace("|", "\\|").replace("−", "-"), part)
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
                self.assertEqual(probed.folder, params.parent)
                return params.stat().st_mtime_ns

            first = written()
            self.assertEqual(written(), first)
            second = written(**{"model.n_layer": 2})
            self.assertGreater(second, first)
            os.utime(folder / "probed.json", (1, 1))  # older than the program
            self.assertGreater(written(**{"model.n_layer": 2}), second)

    def test_a_page_is_drawn_again_without_a_run(self):
        name = next(name for name in KEPT if hasattr(MODULES[name], "picture"))
        with tempfile.TemporaryDirectory() as folder:
            done = reproduced(name, "--redraw", "--out", folder)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            page = Path(folder, "README.md")
            self.assertEqual(reproduce.blocks_of(page), {**dict.fromkeys(NAMES, "not run\n"), name: page_of(name)})
            self.assertEqual({*re.findall(r"\(pictures/(\w+).png", page.read_text(encoding="utf-8"))}, {name})
            self.assertEqual(Path(folder, "pictures", f"{name}.png").read_bytes()[:8], PNG)
            self.assertFalse(Path(folder, name).exists())

    def test_usage(self):
        for arguments, says in ((["nonsense"], "no experiment 'nonsense'"),
                                (["--quick", "--write-page"], "mean nothing"),
                                (["--quick", "--redraw"], "mean nothing")):
            done = reproduced(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(says, done.stderr)

    def test_an_experiment_without_marks_is_an_error_before_anything_runs(self):
        page = papers.PAGE.read_text(encoding="utf-8")
        for changed, count in ((page.replace("<!-- results:bias -->", ""), 0),
                               (page.replace("<!-- /results:bias -->", "<!-- /results:rmsnorm -->"), 0),
                               (page + "<!-- results:bias -->\n<!-- /results:bias -->\n", 2)):
            with mock.patch.object(papers, "PAGE", mock.Mock(**{"read_text.return_value": changed})), \
                    self.assertRaisesRegex(ScriptError,
                                           f"experiment bias: got {count} times in .*the lines <!-- results:bias"):
                papers.names_of_experiments()

    def test_a_missed_claim_is_a_failure(self):
        for value, holds, is_missed in ((2.5, True, False), (2.9, True, True), (math.nan, True, True),
                                        (2.9, False, True)):
            claim = papers.Claim("pre", value, 2.0, 2.8, holds)
            module = types.SimpleNamespace(run=lambda *_: {}, claims=lambda _, claim=claim: [claim])
            ends = self.assertRaisesRegex(SystemExit, "1 of the claims is missed") if is_missed and holds else \
                contextlib.nullcontext()
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output, \
                    mock.patch.object(reproduce, "experiment", lambda _, module=module: module), \
                    mock.patch("sys.argv", ["reproduce", "deep", "--out", folder]):
                with ends:
                    reproduce.main()
                block = reproduce.blocks_of(Path(folder, "README.md"))["deep"]
            self.assertEqual(["MISSED" in text for text in (output.getvalue(), block)], [is_missed] * 2)


class Measures(unittest.TestCase):
    """Against values computed by hand, of what the kept results do not show."""

    def test_a_diverged_run_has_learnt_nothing(self):
        runs = runs_of([2.5, 2.5], norm_placement=["pre", "post"])
        runs.rows[1]["status"] = "diverged"
        self.assertEqual(runs.losses(norm_placement="pre"), [2.5])
        self.assertEqual(runs.losses(norm_placement="post"), [math.inf])
        self.assertEqual(papers_tables.spread(runs.losses(norm_placement="post")), "diverged")
        placements = ["post", "pre", "deepnorm", "rezero", "res_post", "post", "pre", "deepnorm"]
        runs = runs_of([math.inf] * 8, n_layer=["24"] * 5 + ["48"] * 3, norm_placement=placements)
        self.assertEqual(list(deep.claims(runs))[2].verdict, "MISSED")

    def test_rates(self):
        runs = runs_of([2.5, 2.6, 3.1, 2.4, 2.4], norm_placement=["pre"] * 5, lr=lr_sensitivity.RATES)
        self.assertEqual(lr_sensitivity.largest_rate_that_learns(runs, norm_placement="pre"), 0.003)
        # mean of 0, 0.5 and, for a run above its first loss, 1.5
        runs = runs_of([2.5, 3.0, math.inf], lr=["0.001", "0.01", "0.1"], first=[4.0] * 3)
        self.assertAlmostEqual(lr_sensitivity.sensitivity(runs), 2 / 3)

    def test_amplification(self):
        runs = runs_of([2.5, 2.6, 3.1, 2.7] * 3, n_layer=["6", "12", "24", "48"] * 3, branch_scale=["1"] * 12,
                       lr=[rate for rate in amplification.RATES for _ in range(4)], A=[7.0, 16.0, 33.0, 70.0] * 3)
        self.assertEqual(amplification.limit(runs, "0.001"), math.sqrt(70 * 33))
        self.assertEqual(amplification.count_out_of_order(runs), 3)
        for row in runs.rows[3::4]:
            row["final_val_loss"] = 3.08
        self.assertEqual(amplification.limit(runs, "0.001"), math.sqrt(16 * 33))
        self.assertEqual(amplification.count_out_of_order(runs), 0)

    def test_a_spike_is_measured_beside_the_calm_before_it(self):
        rows = [[step, 2 + (step == 180), gradient, gradient + 2] for step in range(1, 201)
                for gradient in [{10: 0.1, 180: 5}.get(step, 0.5 - step / 1000)]]
        run = types.SimpleNamespace(rows=lambda log, columns: np.array(rows, float))
        np.testing.assert_allclose(spikes.spike(run), [5 / 0.321, 1, 5, 7])

    def test_a_mean_is_measured_beside_that_of_a_random_direction(self):
        x = np.random.default_rng(1).standard_normal((20, 50, 64))
        model = types.SimpleNamespace(streams=[x, x + 3 * np.ones(64), x - x.mean(-1, keepdims=True)])
        for result, expected in zip(centred.mean_over_law(model), (1, 64 * 9 / 10, 0)):
            self.assertAlmostEqual(result, expected, delta=0.1 + 0.02 * expected)

    def test_a_gap_is_taken_at_an_equal_training_loss(self):
        rows = np.array([[4, 4], [3.5, np.nan], [3, 3.1], [2, 2.6], [2.1, 2.7], [1, 2.2]])
        result = gap.measure(types.SimpleNamespace(rows=lambda log, columns: rows))
        expected = {2.5: 2.85, 2.2: 2.7, 2.0: 2.6, 1.8: 2.6, 1.5: 2.45}
        self.assertEqual(result["lowest"], 1)
        for level, value in zip(gap.LEVELS, result["gaps"], strict=True):
            self.assertAlmostEqual(value, expected[level] - level, delta=0.11 if level == 2.0 else 1e-9)

    def test_the_quick_form_of_a_sweep_is_tiny_and_asks_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            file, settings = papers_run.tiny_sweep(papers.config_of("deep"), Path(folder))
            spec = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual((spec["grid"]["model.n_layer"], spec["grid"]["train.steps"]), ([24], [4]))
        self.assertEqual(len(spec["grid"]["model.norm_placement"]), 6)
        self.assertEqual([case["set"]["train.steps"] for case in spec["cases"]], [4] * 3)
        self.assertEqual((settings["model.d_model"], settings.get("train.steps")), (16, None))


class Averaging(forward.Decoder):
    """A decoder whose norms `chosen` divide each row by the average of what they divided the rows of its first pass
    by."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.chosen, self.averages = (), {}

    def deviation(self, name, y, axis):
        own = super().deviation(name, y, axis)
        self.averages.setdefault(name, own.mean((0, 1), keepdims=True))
        return self.averages[name] if name in self.chosen else own


class Measured(CliTest):
    """Measures of runs that the program has trained."""

    def run_with(self, values, changes):
        """A trained run; in the first block of its weights, tensors whose names end so after their part have these
        values."""
        run = Run(self.train("run", changes).path)
        tensors, metadata = safetensors_io.read(run.folder / "model.safetensors")
        del metadata["checksum"]
        for end, value in values.items():
            for part in ("attn", "ffn"):
                tensors[f"blocks.0.{part}{end}"][:] = value
        safetensors_io.write(run.folder / "model.safetensors", tensors, metadata)
        return run

    def test_a_block_that_adds_nothing_turns_nothing_and_can_be_left_out(self):
        run = self.run_with({".out.weight": 0}, {})
        angles, rises = identity.angles(run), identity.rises_without_block(run)
        self.assertLess(angles[0], 1e-5)
        self.assertGreater(angles[1], 1e-2)
        self.assertEqual(rises[0], 0)
        self.assertGreater(abs(rises[1]), 1e-5)

    def test_a_block_whose_norms_have_no_gain_and_bias_loses_nothing_without_them(self):
        first, second = gain.rises(self.run_with({"_norm.weight": 1, "_norm.bias": 0}, {"train": {"lr": 0.1}}))
        self.assertEqual(first, 0)
        self.assertGreater(abs(second), 1e-4)

    def test_v_and_the_curvature_along_adams_step(self):
        """v is the optimizer's, and u'Hu is a second difference of losses."""
        changes = {"model": {"activation": "gelu"}, "train": {"grad_clip": 0, "fixed_batch": True, "lr": 0.01},
                   "log": {"every": 1}}
        run = Run(self.train("run", changes).path)
        model, (moments, _) = measures.Model(run.folder), safetensors_io.read(run.folder / "checkpoint.safetensors")
        v = {name: moments[f"optim.v.{name}"].astype(float) for name in model.weights}
        with mock.patch.multiple(spikes, FIRST=0, LAST=run.value("train.steps")):
            (*_, root), train = spikes.curves(run)[1], run.config["train"]
        self.assertAlmostEqual(root / math.sqrt(sum(part.sum() for part in v.values())), 1, delta=1e-4)
        g = {name: model.tensors[f"grad.{name}"] for name in v}
        u = {name: g[name] / (np.sqrt(v[name] / (1 - train["beta2"] ** train["steps"])) + 1e-8) for name in v}
        h = 0.02 / max(abs(part).max() for part in u.values())
        up, here, down = (float(model.dump({name: model.weights[name] + move * u[name] for name in u})["loss"][0])
                          for move in (h, 0, -h))
        bent = (up + down - 2 * here) / h ** 2 / sum((u[name] * g[name]).sum() for name in u)
        bears = 2 / train["lr"] * (1 + train["beta1"]) / (1 - train["beta1"])
        self.assertAlmostEqual(spikes.curvature(run) * bears / bent, 1, delta=0.1)

    def test_a_measure_is_repeated_if_the_run_or_the_program_or_a_script_is_newer(self):
        folder, calls = Path(self.train("run").path), []
        source, program = Path(self.write("scripts/lib/model/below.py", "")), Path(self.write("program", ""))

        def measure(run):
            calls.append(run)
            return {"steps": run.summary["steps"]}

        def measured():
            with mock.patch.multiple(papers_run, ROOT=source.parents[3], program=lambda: program):
                self.assertEqual(papers_run.measured_once(folder, measure), {"steps": 25})
            return len(calls)

        self.assertEqual([measured(), measured()], [1, 1])
        for number, newer in enumerate((folder / "summary.json", program, source), start=2):
            kept = folder / f"measured_{measure.__module__}.json"
            for file in (folder / "summary.json", program, source, kept):
                os.utime(file, (100, 100 if file == newer else 99 if file == kept else 98))
            self.assertEqual([measured(), measured()], [number, number], newer)

    def test_a_gradient_by_kind_of_parameter(self):
        run = Run(self.train("run").path)
        first, later = sharpness_order.measure(run).values()
        rows = [row for row in run.records("params.csv") if row["step"] == 1 and "norm" in row["param"]]
        self.assertAlmostEqual(first[-1], np.mean([row["grad_rms"]**2 for row in rows]))  # they are of one size
        self.assertTrue(all(square > 0 for square in first + later))

    def test_frozen_norms(self):
        for name, model in (("pre", {}),
                            ("post", {"norm_placement": "post", "norm": "rmsnorm", "activation": "swiglu"}),
                            ("peri", {"norm_placement": "peri", "norm": "groupnorm", "norm_groups": 2})):
            model = measures.Model(self.train(name, {"model": model, "train": {"lr": 0.03}}).path)
            decoder, (tokens, targets) = measures.decoder_of(model, Averaging), measures.validation_windows(model)
            loss, result = forward.cross_entropy(decoder.logits(tokens), targets), measures.freeze(model)
            self.assertEqual(result["norms"].keys(), decoder.averages.keys())
            for chosen, rise in ((result["norms"], result["all"]),
                                 *(([norm], row["rise"]) for norm, row in result["norms"].items())):
                decoder.chosen = chosen
                frozen = forward.cross_entropy(decoder.logits(tokens), targets)
                self.assertAlmostEqual(frozen - loss, rise, delta=1e-9, msg=chosen)
            self.assertGreater(max(abs(row["rise"]) for row in result["norms"].values()), 1e-4)

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

    def test_centring_leaves_a_direction_to_decay(self):
        train = {"optimizer": "sgd", "lr": 0.3, "weight_decay": 0.1, "schedule": "constant"}
        for norm, is_free in (("layernorm", False), ("rmsnorm", True)):
            run = Run(self.train(norm, {"model": {"norm": norm, "norm_affine": False}, "train": train}).path)
            for left, law, _, gradient in np.array(direction.measure(run)["direction"]).reshape(-1, 4):
                self.assertEqual([gradient > 1e-3, abs(left / law - 1) > 1e-3], [is_free, is_free], norm)

    def test_a_norm_s_bias_gives_that_direction_a_gradient_of_rank_one(self):
        model = measures.Model(self.train("run", {"model": {"bias": True}, "train": {"lr": 0.1}}).path)
        for norm, reader in (("attn_norm", "attn.qkv"), ("ffn_norm", "ffn.in")):
            gain, bias = (model.weights[f"blocks.0.{norm}.{part}"].astype(float) for part in ("weight", "bias"))
            gradient, of_bias = (model.tensors[f"grad.blocks.0.{reader}.{part}"].astype(float)
                                 for part in ("weight", "bias"))
            self.assertGreater(abs((bias / gain).sum() * of_bias).max(), 1e-5)
            np.testing.assert_allclose(gradient @ (1 / gain), (bias / gain).sum() * of_bias, atol=1e-6)

    def test_a_final_norm_makes_the_gradient_orthogonal(self):
        for final_norm, low, high in ((True, 0, 1e-4), (False, 1e-3, 1)):
            run = Run(self.train(f"final-{final_norm}", {"model": {"final_norm": final_norm, "norm_eps": 0}}).path)
            radial_part = abs(anchor.measure(run)["radial"])
            self.assertTrue(low <= radial_part <= high, radial_part)


if __name__ == "__main__":
    unittest.main()
