#!/usr/bin/python3
"""`plot.py layers --theory`: what `normscope predict` expects beside what was measured, as drawn."""

import os
import unittest
from unittest import mock

import numpy as np
from cli import ROOT, CliTest
from made_runs import MadeRuns

from lib import figures
from lib import plot_layers
from lib.runs import Run, group_runs

MODEL = {"n_layer": 3, "n_head": 2, "d_model": 64, "d_ff": 64, "context": 1, "norm": "layernorm", "norm_eps": 0.0,
         "norm_placement": "pre", "residual": True, "activation": "relu", "position": "none", "tie_embeddings": False,
         "final_norm": True, "init": {"scheme": "xavier_normal", "embed_std": 1.0}}

SETTINGS = {f"model__{key}": value for key, value in MODEL.items()}  # of a made-up run


class Probes(CliTest):
    """Measured points lie on the lines that are drawn, and on no others."""

    def probe(self, name, **changes):
        config = {"model": {**MODEL, "d_model": 128, "d_ff": 256, "n_layer": 4, "context": 32, **changes},
                  "data": {"path": os.path.join(ROOT, "data", "austen.txt")}, "train": {"batch_size": 8}}
        self.normscope("probe", self.config(config), "--seeds", "8", "--out", name)
        return figures.styled(group_runs([Run(self.path(name, f"seed-{seed}")) for seed in range(1, 9)]))

    def off(self, groups):
        """The largest relative distance between a panel's points and its line: [gradient, activation]."""
        figure = plot_layers.plot(groups, theory=True)
        worst = []
        for axes in figure.axes:
            points, line = (line.get_ydata() for line in axes.lines)
            self.assertEqual(len(points), len(line))
            worst.append(np.abs(points / line - 1).max())
        return worst

    def test_points_lie_on_the_theory(self):
        groups = self.probe("pre", norm_placement=["pre", "post", "sandwich", "res_post"], activation="swiglu", position="rope")
        gradient, activation = self.off(groups)
        self.assertLess(gradient, 0.15)
        self.assertLess(activation, 0.05)
        wrong = {"rms": np.array([1.0, 2, 3, 4, 5]), "grad": np.full(5, 1e-3)}
        with mock.patch.object(plot_layers, "predicted", lambda folder: wrong):
            self.assertGreater(min(self.off(groups)), 0.2)


class Drawn(MadeRuns):
    """The picture of made-up runs, whose stream has an rms of 1 + l, and a gradient of 1.1e-3 everywhere."""

    def make_run(self, name, **changes):
        return self.make(name, **{**SETTINGS, **{f"model__{key}": value for key, value in changes.items()}})

    def test_note_and_legend(self):
        runs = [self.make_run("pre"), self.make_run("none", norm="none", norm_placement="none", context=8, n_layer=3,
                                                    init={**MODEL["init"], "embed_std": 100})]
        svg = self.plot("layers", *runs, "--theory")
        self.has(svg, "theory, before any training", "Gradient by depth, at step 1")
        self.assertRegex(svg, ">No prediction for [^<]*in block 1 scores of attention")
        self.assertFalse("theory" in self.plot("layers", *runs).lower())

    def test_lines(self):
        groups = figures.styled(group_runs([Run(self.make_run("a"))]))
        figure = plot_layers.plot(groups, theory=True)
        self.assertEqual(len(figure.axes), 2)  # no training below
        (points, line), (rms, root) = ([line.get_ydata() for line in axes.lines[:2]] for axes in figure.axes)
        np.testing.assert_allclose(points, 1.1e-3)
        law = np.sqrt(5.5 / np.array([1, 2.5, 4, 5.5]))  # of wide layers; these are 16 wide
        np.testing.assert_allclose(line / line[-1], law, rtol=0.005)
        np.testing.assert_allclose(rms, [1, 2, 3, 4])
        np.testing.assert_allclose(root, np.sqrt([1, 2.5, 4, 5.5]))

    def test_diverged_and_damaged(self):
        lost = self.make("lost", steps=(1,), diverged=True, **SETTINGS)
        self.has(self.plot("layers", lost, "--theory"), "pre · layernorm (diverged at step 1)")
        self.refused("plot.py", "layers", self.make_run("odd", d_ff="x"), "--theory", code=1, says="model.d_ff: .*odd/config.json")
        self.corpus.unlink()
        self.refused("plot.py", "layers", self.make_run("moved"), "--theory", code=1, says="moved: .*no such file")


if __name__ == "__main__":
    unittest.main()
