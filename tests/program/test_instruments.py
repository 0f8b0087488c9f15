#!/usr/bin/python3
"""layers.csv, heads.csv and params.csv, computed again with numpy from the tensors that `probe --dump` and a run's
weights hold."""

import math
import unittest
from types import SimpleNamespace

import numpy as np

from cli import TINY, CliTest, Run, merged, read_safetensors
from lib.model import measures
from lib.model.forward import Decoder

MODEL = {"n_layer": 2, "n_head": 3, "d_model": 24, "d_ff": 40, "context": 20, "init": {"std": 0.3}}
CASES = {
    "pre": {"activation": "relu", "bias": True},
    "post": {"norm_placement": "post", "activation": "relu"},
    "deepnorm": {"norm_placement": "deepnorm", "branch_scale": 0.5},
    "res_post": {"norm_placement": "res_post", "qk_norm": True, "position": "rope", "norm": "rmsnorm"},
    "learned": {"branch_scale": 0.5, "branch_scale_learned": "vector"},
    "sandwich": {"norm_placement": "sandwich", "activation": "swiglu", "position": "rope"},
    "hybrid": {"norm_placement": "hybrid"},
    "two": {"norm_placement": {"attn": "post", "ffn": "none"}, "tie_embeddings": False},
    "straight": {"residual": False},
    "short": {"context": 1, "activation": "relu"},
    "long": {"d_model": 21, "context": 150, "d_ff": 700},  # more numbers than a block of a sum
}


def rms(x):
    return math.sqrt(np.mean(np.square(x.astype(np.float64))))


class Dump(Decoder):
    """An exchange file in float64, and the decoder of its weights, whose sites test_measure.py compares with
    PyTorch's."""

    def __init__(self, path, config):
        tensors = {name: x.astype(np.float64) for name, x in read_safetensors(path)[0].items()}
        super().__init__(np, config, tensors)

    def site(self, layer, site, kind="act"):
        return self.weights[f"{kind}.{layer}.{site}"]

    def head_rows(self, layer):
        """(H, 3): the figures of heads.csv."""
        prefix, x = f"blocks.{layer - 1}.attn", self.site(layer, "attn_in")
        qkv = self.linear(f"{prefix}.qkv", x).reshape(*x.shape[:2], 3, self.model["n_head"], -1).swapaxes(1, 3)
        q, k = (self.head_norm(f"{prefix}.{name}_norm", qkv[:, :, i]) for i, name in enumerate("qk"))
        if self.model["position"] == "rope":
            q, k = self.rotated(q), self.rotated(k)
        logits = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
        logits = np.where(np.tri(q.shape[2], dtype=bool), logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), -1)
        return np.stack([logits.max((0, 2, 3)), entropy.mean((0, 2)), weights[..., 0].mean((0, 2))], -1)

    def branch_share(self, layer, sublayer, placement, alpha):
        """The branch is the sublayer's output or, where a norm stands behind it, what the sum holds beside the
        stream."""
        before = self.site(layer, "stream_mid") if sublayer == "ffn" else self.site(layer - 1, "stream")
        if placement in ("res_post", "sandwich"):
            branch = self.site(layer, "stream" if sublayer == "ffn" else "stream_mid") - before
        else:
            branch = self.site(layer, sublayer + "_out") * self.model["branch_scale"]
        return rms(branch) / (alpha * rms(before))


class Instruments(CliTest):
    def probed(self, name, changes, precision="fp32"):
        config = merged(TINY, {"model": {**MODEL, **changes}, "train": {"precision": precision}})
        dump, out = self.path(name + ".safetensors"), self.path(name)
        self.normscope("probe", self.config(config), "--out", out, "--dump", dump)
        run = Run(self.path(name, "seed-1"))
        return run, Dump(dump, run.json("config.json"))

    def close(self, row, column, expected, tolerance, floor=0.0):
        got = float(row[column])
        self.assertFalse(not abs(got - expected) <= tolerance * max(abs(expected), floor), (column, row, expected))

    def check_sites(self, run, dump):
        for row in run.rows("layers.csv"):
            layer, site = int(row["layer"]), row["site"]
            x, dx = (dump.site(layer, site, kind) for kind in ("act", "act_grad"))
            self.close(row, "mean", x.mean(), 1e-6, rms(x))
            for column, expected in (("rms", rms(x)), ("abs_max", abs(x).max()), ("grad_rms", rms(dx)),
                                     ("grad_abs_max", abs(dx).max()), ("grad_norm", np.linalg.norm(dx))):
                self.close(row, column, expected, 1e-5)
            self.assertEqual((row["nonfinite"], row["grad_nonfinite"]), ("0", "0"))
            self.assertEqual(row["token_cosine"] != "", site == "stream" and dump.model["context"] > 1)
            if row["token_cosine"]:
                self.close(row, "token_cosine", measures.token_cosine(SimpleNamespace(streams=[x]))[0], 2e-5, 1)
            self.assertEqual(row["branch_share"] != "", site in ("attn_out", "ffn_out") and dump.model["residual"])
            if row["branch_share"]:
                placement, sublayer = dump.model["norm_placement"], site.split("_")[0]
                placement = placement if isinstance(placement, str) else placement[sublayer]
                alpha = (2 * dump.model["n_layer"]) ** 0.25 if placement == "deepnorm" else 1
                self.close(row, "branch_share", dump.branch_share(layer, sublayer, placement, alpha), 2e-5)

    def check_heads(self, run, dump, tolerance):
        rows = run.rows("heads.csv")
        places = [(row["step"], int(row["layer"]), int(row["head"])) for row in rows]
        self.assertEqual(places, [("0", layer, head) for layer in (1, 2) for head in (1, 2, 3)])
        for row, figures in zip(rows, np.concatenate([dump.head_rows(layer) for layer in (1, 2)])):
            for column, figure in zip(run.columns("heads.csv")[3:], figures):
                self.close(row, column, figure, tolerance, 0.5)

    def test_sites_and_heads(self):
        for name, changes in CASES.items():
            with self.subTest(name):
                run, dump = self.probed(name, changes)
                self.check_sites(run, dump)
                self.check_heads(run, dump, 2e-5)
                self.check_heads(*self.probed(name + "-bf16", changes, "bf16"), 2e-2)

    def test_token_cosine_of_batches_and_of_zeros(self):
        """It is a mean over batches too. A token of zeros has no direction: its cosines are 0."""
        cosines = []
        config = self.config(merged(TINY, {"model": {**MODEL, "position": "none"}, "train": {"batch_size": 64}}))
        for options in (["--batches=1"], ["--batches=3"], ["--set=model.init.embed_std=0"]):
            self.normscope("probe", config, "--out", self.path("p"), "--overwrite", *options)
            rows = Run(self.path("p", "seed-1")).rows("layers.csv")
            cosines.append(float(next(row for row in rows if row["site"] == "stream")["token_cosine"]))
        one, three, zeros = cosines
        self.assertAlmostEqual(three / one, 1, delta=0.3)
        self.assertEqual(zeros, 0)

    def test_a_frozen_loss_is_the_programs(self):
        """--freeze takes the windows that the program evaluates, with the branch factors of the weights' step."""
        changes = {"model": {**MODEL, "activation": "relu"}, "data": {"val_fraction": 0.5},
                   "train": {"steps": 8, "lr": 0.003, "branch_warmup_steps": 6}}
        length = math.ceil(measures.CHARACTERS / MODEL["context"])
        run = self.train("run", merged(changes, {"train": {"batch_size": 1}, "eval": {"batches": length}}))
        model = measures.Model(run.path)
        self.assertEqual(len(measures.validation_windows(model)[0]), length)
        self.assertAlmostEqual(measures.freeze(model)["loss"], run.summary["best_val_loss"], delta=1e-5)

    def test_parameters(self):
        """The weights of queries, keys and values are the thirds of attn.qkv.weight; a learned scale is one number."""
        scaled = {**MODEL, "branch_scale_learned": "scalar"}
        config = self.config(merged(TINY, {"model": scaled, "train": {"steps": 1, "lr": 1e-2}}))
        self.normscope("probe", config, "--out", self.path("p"), "--dump", self.path("dump"))
        self.normscope("train", config, "--out", self.path("r"))
        run, dump = Run(self.path("r")), read_safetensors(self.path("dump"))[0]

        def parts(tensors):
            by_name = {}
            for name, x in tensors.items():
                if name.endswith("attn.qkv.weight"):
                    by_name.update((name.replace("qkv", part), third) for part, third in zip("qkv", np.split(x, 3)))
                else:
                    by_name[name] = x
            return {name: x.astype(np.float64) for name, x in by_name.items()}

        before, after = parts(dump), parts(run.tensors())
        rows = run.rows("params.csv")
        self.assertEqual({row["param"] for row in rows}, set(after))
        self.assertEqual(run.summary["params"], sum(x.size for x in after.values()))
        for row in rows:
            name = row["param"]
            layer = 0 if name.startswith("embed") else int(name.split(".")[1]) + 1 if name.startswith("blocks") else 3
            self.assertEqual((int(row["layer"]), int(row["numel"])), (layer, before[name].size))
            self.close(row, "rms", rms(before[name]), 1e-5)
            self.close(row, "update_rms", rms(after[name] - before[name]), 1e-4)
            self.close(row, "grad_rms", rms(before["grad." + name]), 1e-5)
            self.close(row, "grad_norm", np.linalg.norm(before["grad." + name]), 1e-5)
            self.assertEqual(row["value"] != "", before[name].size == 1, name)
            if row["value"]:
                self.close(row, "value", after[name].item(), 1e-6)


if __name__ == "__main__":
    unittest.main()
