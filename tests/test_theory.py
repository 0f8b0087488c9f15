#!/usr/bin/python3
"""The laws that `plot_layers.py --theory` draws: against numbers worked out by hand, against probes, and as drawn."""

import copy
import math
import os
import unittest
from unittest import mock

import numpy as np
from cli import ROOT, CliTest
from made_runs import MadeRuns

import figures
import laws
import plot_layers
from runs import Run, group_runs
from sites import Site

# A model for which the laws hold, as a resolved config has it.
MODEL = {"n_layer": 4, "n_head": 4, "d_model": 256, "d_ff": 256, "context": 1, "norm": "layernorm", "norm_eps": 0.0,
         "norm_eps_outside": False, "norm_placement": "pre", "mix_post_fraction": 0.25, "residual": True,
         "activation": "relu", "bias": False, "qk_norm": False, "position": "none", "tie_embeddings": False,
         "dropout": 0.0, "init": {"scheme": "xavier_normal", "std": 0.02, "embed_std": 1.0, "residual_scaling": False}}
LIST = ["peri", "res_post", "deepnorm", "pre_scaled", "post", "pre", "rezero", "none"]


def model(**changes):
    """MODEL with changes; `init_` stands for init's keys."""
    changed = copy.deepcopy(MODEL)
    for key, value in changes.items():
        (changed["init"] if key.startswith("init_") else changed)[key.removeprefix("init_")] = value
    return changed


class Numbers(unittest.TestCase):
    def law(self, expected, **changes):
        np.testing.assert_allclose(laws.mean_square(model(**changes)), expected, rtol=1e-12, err_msg=str(changes))

    def test_placements(self):
        self.law([1, 2.5, 4, 5.5, 7])
        self.law([1, 2.5, 3.25, 3.75, 4.125], norm_placement="pre_scaled")
        for placement in ("sandwich", "peri", "res_post"):
            self.law([1, 3, 5, 7, 9], norm_placement=placement)
        for placement in ("post", "deepnorm", "rezero"):
            self.law([1, 1, 1, 1, 1], norm_placement=placement)
        self.law([1, 3, 9, 27, 81], norm_placement="none", norm="none")
        self.law([1, 1, 2.5, 4, 5.5], norm_placement="mix")
        self.law([1, 3, 5, 1, 1.375, 1, 2.5, 2.5, 7.5], norm_placement=LIST, n_layer=8)

    def test_width_of_the_ffn(self):
        for ratio, added in ((2, 4 / 9), (4, 8 / 25)):
            self.law([1, 2 + added], d_ff=256 * ratio, n_layer=1)

    def test_embeddings(self):
        self.law([0.25, 1.75], init_embed_std=0.5, n_layer=1)
        self.law([0.5, 2.0], init_embed_std=0.5, n_layer=1, position="learned")
        self.law([0.75, 2.25], init_embed_std=0.5, n_layer=1, position="sinusoidal")
        self.law([4, 1, 1], init_embed_std=2, n_layer=2, norm_placement="post")
        self.law([4, 4], init_embed_std=2, n_layer=1, norm_placement="rezero", norm="none")
        self.law([1, 3], init_embed_std=2, n_layer=1, norm_placement="peri")
        self.law([4, 12], init_embed_std=2, n_layer=1, norm_placement="peri", norm="none")

    def test_other_initialisations(self):
        self.law([1, 2.5], init_scheme="xavier_uniform", n_layer=1)
        self.law([1, 7], init_scheme="kaiming_normal", n_layer=1)  # 2 · 2 for attention, 2 · 1/2 · 2 for the FFN
        one = (256 * 0.02 ** 2) ** 2  # two matrices
        self.law([1, 1 + 1.5 * one], init_scheme="gpt2", n_layer=1)
        self.law([1, 1 + 1.5 * one / 4, 1 + 1.5 * one / 2], init_scheme="gpt2", init_residual_scaling=True, n_layer=2)

    def test_without_norm_or_residual(self):
        self.law([1, 3], norm="none", n_layer=1)
        self.law([1, 3, 3 * 1.5 * 1.25], norm="none", n_layer=2, norm_placement="pre_scaled")
        alpha2, beta4 = math.sqrt(2), 1 / 8
        self.law([1, (alpha2 + beta4) * (alpha2 + beta4 / 2)], norm="none", n_layer=1, norm_placement="deepnorm")
        self.law([1, 0.5, 0.5], residual=False, n_layer=2)
        self.law([1, 1, 1], residual=False, n_layer=2, norm_placement="post")

    def test_epsilon(self):
        self.law([1, 1], norm_placement="rezero", n_layer=1, norm_eps=0.5)
        self.law([1, 1.2 / 1.7], norm_placement="post", n_layer=1, norm_eps=0.5)  # 2 / 2.5 = 0.8 after attention
        outside = 1 / 1.5 ** 2  # (√1 / (√1 + ε))²
        self.law([1, 1 + outside + 0.5 * (1 + outside) / (math.sqrt(1 + outside) + 0.5) ** 2], n_layer=1, norm_eps=0.5,
                 norm_eps_outside=True)

    def test_gradient(self):
        np.testing.assert_allclose(laws.gradient(model(n_layer=2)), [2, math.sqrt(4 / 2.5), 1])
        np.testing.assert_allclose(laws.gradient(model(n_layer=2, norm_placement="post")), [1, 1, 1])
        np.testing.assert_allclose(laws.gradient(model(n_layer=1, norm_placement="sandwich")), [math.sqrt(3), 1])
        zero = laws.gradient(model(init_embed_std=0.0, norm_placement="rezero"))
        self.assertTrue(np.isnan(zero).all())
        endless = model(n_layer=1000, norm_placement="none", norm="none")
        self.assertEqual(laws.mean_square(endless)[-1], math.inf)
        self.assertTrue(math.isnan(laws.gradient(endless)[-1]))

    def test_assumptions(self):
        self.assertEqual(laws.broken(model()), [])
        for harmless in ({"bias": True}, {"qk_norm": True}, {"position": "rope"}, {"position": "learned"},
                         {"norm": "rmsnorm"}, {"d_ff": 1000}, {"init_scheme": "gpt2"}, {"residual": False}):
            self.assertEqual(laws.broken(model(**harmless), step=1), [])
        for changes, pair in (({"context": 64}, ("T = 1", "T = 64")), ({"activation": "gelu"}, ("ReLU", "gelu")),
                              ({"norm": "dyt"}, ("layernorm or rmsnorm", "dyt")),
                              ({"position": "sinusoidal"}, ("no sinusoids", "sinusoidal")),
                              ({"tie_embeddings": True}, ("untied head", "tied")),
                              ({"dropout": 0.1}, ("no dropout", "dropout 0.1")),
                              ({"n_layer": 33}, ("C ≥ 8 L", "C = 256 and L = 33"))):
            self.assertEqual(laws.broken(model(**changes)), [pair])
        self.assertEqual(laws.broken(model(dropout=0.1), dropout=False), [])
        self.assertEqual(laws.broken(model(), step=2), [("untrained weights", "step 2")])
        self.assertEqual(laws.broken(model(), trained=True), [("untrained weights", "trained")])

    def test_words(self):
        context, tied = ("T = 1", "T = 64"), ("untied head", "tied")
        self.assertEqual(laws.in_words([[], []]), "The law's assumptions hold here.")
        self.assertEqual(laws.in_words([[context]]), "Law assumes T = 1: here T = 64.")
        self.assertEqual(laws.in_words([[tied, context], [("T = 1", "T = 8")]]),
                         "Law assumes T = 1, untied head: here T = 64 or T = 8; in some runs tied.")
        self.assertEqual(laws.in_words([[("T = 1", f"T = {n}")] for n in (2, 3, 4, 5)] + [[]]),
                         "Law assumes T = 1: in some runs T = 2 or … or T = 5.")


class Probes(CliTest):
    """Where the assumptions hold, measured points lie on the lines that are drawn."""

    SEEDS = 8
    GRADIENT, ACTIVATION = 0.08, 0.05  # how far points may be off, relatively

    def probe(self, out="probe", **changes):
        """The seeds of a probe of MODEL with changes, as the one group that a plot takes."""
        config = {"model": model(norm_eps=1e-5, **changes), "data": {"path": os.path.join(ROOT, "data", "austen.txt")},
                  "train": {"batch_size": 64}}
        self.normscope("probe", self.config(config), "--seeds", str(self.SEEDS), "--out", out)
        return group_runs([Run(self.path(out, f"seed-{seed}")) for seed in range(1, self.SEEDS + 1)])

    def off(self, groups):
        """The largest relative distance between a panel's points and its law: (gradient, activation)."""
        figures.styled(groups)
        figure = plot_layers.plot(groups, theory=True)
        self.assertIn("The law's assumptions hold here.", figure.texts[1].get_text())
        worst = []
        for axes in figure.axes:
            points, law = (line.get_ydata() for line in axes.lines)
            self.assertEqual(len(points), len(law))
            worst.append(np.abs(points / law - 1).max())
        return worst

    def test_points_lie_on_the_law(self):
        for i, changes in enumerate((
                {}, {"norm": "rmsnorm", "norm_placement": "post"}, {"norm_placement": "pre_scaled"},
                {"norm_placement": "sandwich", "init_scheme": "kaiming_normal", "d_ff": 512},
                {"norm_placement": "none", "norm": "none"}, {"norm_placement": "rezero", "norm": "none"},
                {"norm_placement": LIST, "n_layer": 8, "bias": True, "position": "rope", "qk_norm": True},
                {"init_scheme": "gpt2", "init_residual_scaling": True, "init_embed_std": 0.02},
                {"residual": False, "n_layer": 2}, {"norm_placement": "deepnorm", "norm": "none"})):
            with self.subTest(changes):
                gradient, activation = self.off(self.probe(f"probe-{i}", **changes))
                self.assertLess(gradient, self.GRADIENT)
                self.assertLess(activation, self.ACTIVATION)

    def test_another_law_is_off(self):
        groups = self.probe()
        for wrong in ({"pre": laws.PLACEMENTS["sandwich"]}, {"pre": laws.PLACEMENTS["post"]}):
            with mock.patch.dict(laws.PLACEMENTS, wrong):
                gradient, activation = self.off(groups)
            self.assertGreater(gradient, self.GRADIENT)
            self.assertGreater(activation, 2 * self.ACTIVATION)
        with mock.patch.object(laws, "HALF", 1.0):  # a ReLU that halves nothing
            self.assertGreater(self.off(groups)[1], 2 * self.ACTIVATION)

    def test_trained_weights_are_told_from_first_ones(self):
        changes = {"model": {"activation": "relu", "context": 1}, "train": {"steps": 3}}
        weights = self.train("run", changes).file("model.safetensors")
        for source, trained in ((["--from", weights], True), ([], False)):
            self.normscope("probe", self.config(changes), "--out", f"p{trained}", *source)
            found = plot_layers.law_of(Site(Run(self.path(f"p{trained}", "seed-1"))), None)["broken"]
            self.assertEqual(("untrained weights", "trained") in found, trained)


class Drawn(MadeRuns):
    """The picture of made-up runs, whose stream has an rms of 1 + l, and a gradient of 1.1e-3 everywhere."""

    def make_run(self, name, **changes):
        small = {"n_layer": 3, "d_model": 64, "d_ff": 64}
        settings = {f"model__{key}": value for key, value in model(**{**small, **changes}).items()}
        return self.make(name, **settings)

    def test_note_and_legend(self):
        runs = [self.make_run("pre", context=8), self.make_run("post", norm_placement="post", context=8,
                                                               activation="gelu")]
        svg = self.plot("plot_layers.py", *runs, "--theory", "--step", "1")
        self.has(svg, "Law assumes T = 1, ReLU: here T = 8; in some runs gelu.",
                 "law at initialisation (gradient: through the last block)", "Gradient by depth, at step 1")
        self.has(self.plot("plot_layers.py", runs[0], "--theory"),
                 "Law assumes T = 1, untrained weights: here T = 8, step 60.")
        self.assertFalse("law" in self.plot("plot_layers.py", *runs).lower())

    def test_lines(self):
        groups = figures.styled(group_runs([Run(self.make_run("a"))]))
        figure = plot_layers.plot(groups, step=1, theory=True)
        (points, law), (rms, root) = ([line.get_ydata() for line in axes.lines[:2]] for axes in figure.axes[:2])
        np.testing.assert_allclose(points, 1.1e-3)
        np.testing.assert_allclose(law, 1.1e-3 * np.sqrt(5.5 / np.array([1, 2.5, 4, 5.5])))
        np.testing.assert_allclose(rms, [1, 2, 3, 4])
        np.testing.assert_allclose(root, np.sqrt([1, 2.5, 4, 5.5]))
        self.assertEqual(len(figure.axes[2].lines), 2)  # below, training alone

    def test_a_law_beyond_all_measure_leaves_the_points_to_be_seen(self):
        run = self.make_run("wild", norm="none", norm_placement="none", init={**MODEL["init"], "embed_std": 100})
        figure = plot_layers.plot(figures.styled(group_runs([Run(run)])), theory=True)
        self.assertLess(figure.axes[1].get_ylim()[1], 100)

    def test_diverged_and_damaged(self):
        lost = self.make("lost", steps=(1,), diverged=True, **{f"model__{k}": v for k, v in model(n_layer=3).items()})
        self.has(self.plot("plot_layers.py", lost, "--theory"), "no finite values")
        self.refused("plot_layers.py", self.make("short"), "--theory", says="short: damaged config.json: its model "
                     "lacks or has no law for 'embed_std'")
        self.refused("plot_layers.py", self.make_run("odd", d_ff="x"), "--theory", code=1, says="model.d_ff: .*odd/config.json")
        self.refused("plot_layers.py", self.make_run("new", norm_placement="above"), "--theory",
                     code=1, says='norm_placement: got "above".*new/config.json')


if __name__ == "__main__":
    unittest.main()
