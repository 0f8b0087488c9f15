#!/usr/bin/python3
"""Fresh networks obey the theory of signal propagation: the residual stream and its gradient of every kind of placement
and norm, as `normscope probe` writes them, are those of scripts/predict.py. Its closed laws, placement by placement,
are in test_predict.py.

The setting: context 1 (attention is then its value and output matrices), no positions, untied head, ReLU, no biases,
Xavier normal weights, unit embeddings, C = d_ff = 192, 12 blocks, one batch of 64, the mean of 8 seeds.
"""

import json
import math
import os
import unittest

import numpy as np

from cli import ROOT, CliTest, read_csv
from lib import embedding_and_head, mean_field  # in scripts, which cli.py puts on the path

SEEDS, WIDTH, HEADS = 8, 192, 4
BASE = {
    "model": {
        "n_layer": 12, "n_head": HEADS, "d_model": WIDTH, "d_ff": WIDTH, "context": 1, "position": "none",
        "tie_embeddings": False, "activation": "relu", "bias": False,
        "init": {"scheme": "xavier_normal", "embed_std": 1}},
    "data": {"path": os.path.join(ROOT, "data", "austen.txt")}, "train": {"steps": 1, "batch_size": 64}, }
PLACEMENTS = ("pre", "pre_scaled", "sandwich", "peri", "res_post", "post", "deepnorm", "keel", "hybrid", "hybrid_star",
              "subln")
ACTIVATIONS, GRADIENTS = 0.05, 0.08  # relative distances that are allowed


def width_factor(depth):
    """The factor on |dx_l|^2 of hybrid that the theory of wide layers leaves out, layers 0..L. Per block: the norm of
    the values, over heads of D = 48, adds 1/(D - 2) to its branch's share; the norm of x + Attn(x) adds how the length
    of the sum varies, less the mean that the branch has."""
    branch = 1 / 2.5
    length = (4 * 0.5 + 7 * 0.5**2 + 4 * 1.5 + 2) / 2.5**2  # the FFN's part of x and its sum with x; attention's
    block = (1 + branch / (WIDTH / HEADS - 2)) * (1 + (length - branch) / WIDTH)
    return block ** np.arange(depth, -1, -1)


class Laws(CliTest):
    def probe(self, **model):
        """Probes a fresh network: (its resolved config, the rows of layers.csv of each seed, those of params.csv)."""
        self.write("config.json", json.dumps({**BASE, "model": {**BASE["model"], **model}}))
        self.normscope("probe", "config.json", "--seeds", str(SEEDS), "--out", "probe", "--overwrite")
        layers, params = ([read_csv(self.path("probe", f"seed-{seed}", name))[1] for seed in range(1, SEEDS + 1)]
                          for name in ("layers.csv", "params.csv"))
        return mean_field.resolved(self.path("config.json")), layers, params

    def test_stream_and_gradient(self):
        text = None
        variants = [{"norm_placement": placement} for placement in PLACEMENTS] + [{"norm": "dyt"}, {"norm": "derf"}]
        for model in variants:
            with self.subTest(**model):
                config, layers, _ = self.probe(**model)
                text = text or embedding_and_head.text_of_config(config)
                expected = [
                    pair for (_, site), pair in mean_field.predict(config, text).sites.items() if site == "stream"]
                measured = np.array([[(float(row["rms"]), float(row["grad_rms"])) for row in rows
                                      if row["site"] == "stream"] for rows in layers])
                (values, gradients), (law, law_of_gradients) = np.sqrt(
                    (measured ** 2).mean(axis=0)).T, np.array(expected).T
                if "hybrid" in model.get("norm_placement", ""):
                    law_of_gradients = law_of_gradients * np.sqrt(width_factor(len(law) - 1))
                np.testing.assert_allclose(values**2, law**2, rtol=ACTIVATIONS)
                np.testing.assert_allclose(gradients / gradients[-1], law_of_gradients / law_of_gradients[-1],
                                           rtol=GRADIENTS)

    def test_gradient_of_the_second_ffn_matrix(self):
        """Xiong et al. 2020, theorem 1: in pre-norm it falls with depth, in post-norm it does not."""
        norms = {}
        for placement, depth in (("pre", 4), ("pre", 24), ("post", 4), ("post", 24)):
            _, _, params = self.probe(norm_placement=placement, n_layer=depth)
            for block in (1, depth):
                name = f"blocks.{block - 1}.ffn.out.weight"
                rows = [next(row for row in of_seed if row["param"] == name) for of_seed in params]
                mean_gradient, of_batches = ([float(row[key]) for row in rows]
                                             for key in ("grad_norm", "grad_norm_batch"))
                np.testing.assert_allclose(mean_gradient, of_batches, rtol=1e-5)  # there is one batch
                norms[placement, depth, block] = np.mean(mean_gradient)
        for depth in (4, 24):
            ratio = norms["pre", depth, 1] / norms["pre", depth, depth]
            self.assertAlmostEqual(ratio / math.sqrt((1 + 1.5 * depth) / 2.5), 1, delta=0.2)
        for placement, slope in (("pre", -0.45), ("post", 0.1)):
            measured = math.log(norms[placement, 24, 24] / norms[placement, 4, 4]) / math.log(24 / 4)
            self.assertAlmostEqual(measured, slope, delta=0.1)


if __name__ == "__main__":
    unittest.main()
