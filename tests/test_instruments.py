#!/usr/bin/python3
"""The columns of heads.csv, the later ones of layers.csv and params.csv, and the gradient noise scale, each computed again with
numpy from the tensors that `probe --dump` and a run's weights hold."""

import math
import os
import unittest

import numpy as np

from cli import TINY, CliTest, Run, merged, read_safetensors, with_metadata, write_safetensors

MODEL = {"n_layer": 2, "n_head": 3, "d_model": 24, "d_ff": 40, "context": 20, "init": {"std": 0.3}}
CASES = {
    "pre": {"activation": "relu", "bias": True},
    "post": {"norm_placement": "post", "activation": "relu"},
    "deepnorm": {"norm_placement": "deepnorm", "branch_scale": 0.5},
    "res_post": {"norm_placement": "res_post", "qk_norm": True, "position": "rope", "norm": "rmsnorm"},
    "sandwich": {"norm_placement": "sandwich", "activation": "swiglu", "position": "rope"},
    "hybrid": {"norm_placement": "hybrid"},
    "two": {"norm_placement": {"attn": "post", "ffn": "none"}, "tie_embeddings": False},
    "straight": {"residual": False},
    "short": {"context": 1, "activation": "relu"},  # of 4 tokens, which leave units dead
    "long": {"d_model": 21, "context": 150, "d_ff": 700},  # more rows than a block, more columns than a strip
}


def rms(x):
    return math.sqrt(np.mean(np.square(x.astype(np.float64))))


def cosines(a, b):
    return np.sum(a * b, -1) / np.sqrt(np.sum(a * a, -1) * np.sum(b * b, -1))


def rms_normed(x, gain, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * gain


def rotated(x):
    """Of (B, T, H, D), halves rotated."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return np.concatenate([x[..., :half] * cos - x[..., half:] * sin, x[..., half:] * cos + x[..., :half] * sin], -1)


class Dump:
    """An exchange file in float64, and the model's config."""

    def __init__(self, path, config):
        self.tensors = {name: x.astype(np.float64) for name, x in read_safetensors(path)[0].items()}
        self.model = config["model"]

    def site(self, layer, site):
        return self.tensors[f"act.{layer}.{site}"]

    def heads(self, layer):
        """(q, k, v) of a block as its dot products take them, (B, T, H, D) each."""
        of, x = f"blocks.{layer - 1}.attn.", self.site(layer, "attn_in")
        y = x @ self.tensors[of + "qkv.weight"].T + self.tensors.get(of + "qkv.bias", 0)
        parts = [part.reshape(*x.shape[:2], self.model["n_head"], -1) for part in np.split(y, 3, -1)]
        for i, name in enumerate(("q_norm", "k_norm", "v_norm")):
            if of + name + ".weight" in self.tensors:
                parts[i] = rms_normed(parts[i], self.tensors[of + name + ".weight"], self.model["norm_eps"])
        if self.model["position"] == "rope":
            parts[:2] = map(rotated, parts[:2])
        return parts

    def head_rows(self, layer):
        """(H, 6): the figures of heads.csv."""
        q, k, v = self.heads(layer)
        logits = np.einsum("bthd,bshd->hbts", q, k) / math.sqrt(q.shape[-1])
        logits = np.where(np.tri(q.shape[1], dtype=bool), logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), -1)
        sizes = [np.sqrt(np.mean(x * x, (0, 1, 3))) for x in (q, k, v)]
        return np.stack([logits.max((1, 2, 3)), entropy.mean((1, 2)), weights[..., 0].mean((1, 2)), *sizes], -1)

    def branch_share(self, layer, sublayer, placement, alpha):
        """The branch is the sublayer's output or, where a norm stands behind it, what the sum holds beside the stream."""
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

    def close(self, row, column, want, tolerance, floor=0.0):
        got = float(row[column])
        self.assertFalse(not abs(got - want) <= tolerance * max(abs(want), floor), (column, row, want))

    def test_sites(self):
        seen_dead = 0
        for name, changes in CASES.items():
            run, dump = self.probed(name, changes)
            for row in run.rows("layers.csv"):
                layer, site = int(row["layer"]), row["site"]
                x = dump.site(layer, site)
                squares = np.mean(x * x, (0, 1))
                with self.subTest(name, layer=layer, site=site):
                    self.close(row, "kurtosis", np.mean(squares**2) / np.mean(squares) ** 2, 2e-5)
                    self.assertEqual(row["dead"] != "", site == "ffn_hidden")
                    self.assertEqual(row["cos_in"] != "", site == "stream" and layer > 0)
                    self.assertEqual(row["branch_share"] != "",
                                     site in ("attn_out", "ffn_out") and dump.model["residual"])
                    if row["dead"]:
                        self.close(row, "dead", np.mean(np.all(x == 0, (0, 1))), 1e-12)
                        seen_dead += float(row["dead"]) > 0
                    if row["cos_in"]:
                        self.close(row, "cos_in", np.mean(cosines(dump.site(layer - 1, "stream"), x)), 1e-5, 1)
                    if row["branch_share"]:
                        placement, sublayer = dump.model["norm_placement"], site.split("_")[0]
                        placement = placement if isinstance(placement, str) else placement[sublayer]
                        alpha = (2 * dump.model["n_layer"]) ** 0.25 if placement == "deepnorm" else 1
                        self.close(row, "branch_share", dump.branch_share(layer, sublayer, placement, alpha), 2e-5)
        self.assertGreater(seen_dead, 0, "no case has a dead unit: the column was not tested")

    def test_heads(self):
        for precision, tolerance in (("fp32", 2e-5), ("bf16", 2e-2)):
            for name, changes in CASES.items():
                run, dump = self.probed(precision + name, changes, precision)
                rows = run.rows("heads.csv")
                places = [(row["step"], int(row["layer"]), int(row["head"])) for row in rows]
                self.assertEqual(places, [("0", layer, head) for layer in (1, 2) for head in (1, 2, 3)])
                want = np.concatenate([dump.head_rows(layer) for layer in (1, 2)])
                for row, figures in zip(rows, want):
                    for column, figure in zip(run.columns("heads.csv")[3:], figures):
                        with self.subTest(name, precision=precision, column=column):
                            self.close(row, column, figure, tolerance, 0.5)

    def test_several_batches_count_as_one(self):
        config = merged(TINY, {"model": MODEL})
        for name, batch, accum in (("whole", 8, 1), ("parts", 2, 4)):
            self.normscope("train", self.config(config), "--out", self.path(name), "--set", "train.steps=1", "--set",
                    f"train.batch_size={batch}", "--set", f"train.grad_accum={accum}")
        whole, parts = (Run(self.path(name)) for name in ("whole", "parts"))
        for file, first in (("layers.csv", 3), ("heads.csv", 3)):
            for a, b in zip(whole.rows(file), parts.rows(file)):
                for column in whole.columns(file)[first:]:
                    if a[column]:
                        self.assertAlmostEqual(float(a[column]), float(b[column]), delta=1e-5 * max(1, abs(float(a[column]))))
                    self.assertEqual(a[column] == "", b[column] == "")

    def test_update_ratio(self):
        config = self.config(merged(TINY, {"model": MODEL, "train": {"steps": 1, "lr": 1e-2}}))
        self.normscope("probe", config, "--out", self.path("p"), "--dump", self.path("before"))
        self.normscope("train", config, "--out", self.path("r"))
        run, before = Run(self.path("r")), read_safetensors(self.path("before"))[0]
        after = run.tensors()
        for row in run.rows("params.csv"):
            old, new = (of[row["param"]].astype(np.float64) for of in (before, after))
            if not old.any():
                self.assertEqual(row["update_ratio"], "", "nothing can be told relative to weights of 0")
                continue
            self.close(row, "update_ratio", rms(new - old) / rms(old), 1e-4)
        self.assertEqual({row["update_ratio"] for row in Run(self.path("p", "seed-1")).rows("params.csv")}, {""})

    def test_noise_scale(self):
        # Probes of ever larger batches have ever more of the step's micro-batches: from their mean gradients follow those of each.
        small, n = 2, 4
        config = merged(TINY, {"model": MODEL, "train": {"steps": 2, "batch_size": small, "grad_accum": n}, "log": {"every": 1}})
        total, norms = 0, []
        for count in range(1, n + 1):
            file = self.path(f"{count}.safetensors")
            one = merged(config, {"train": {"batch_size": small * count, "grad_accum": 1}})
            self.normscope("probe", self.config(one), "--out", self.path(str(count)), "--dump", file)
            gradient = np.concatenate([x.astype(np.float64).ravel() for name, x in read_safetensors(file)[0].items()
                                       if name.startswith("grad.")])
            norms.append(np.sum((count * gradient - total) ** 2))
            total = count * gradient
        of_small, of_big, big = np.mean(norms), np.sum(gradient**2), small * n
        squared_gradient = (big * of_big - small * of_small) / (big - small)
        noise = (of_small - of_big) / (1 / small - 1 / big)
        self.normscope("train", self.config(config), "--out", self.path("r"))
        rows = Run(self.path("r")).rows("metrics.csv")
        self.close(rows[0], "noise_scale", noise / squared_gradient, 1e-4)
        self.assertNotEqual(rows[0]["noise_scale"], rows[1]["noise_scale"])
        # What README says of averaging: the two estimates follow from the row.
        self.assertAlmostEqual(float(rows[0]["grad_norm"]) ** 2 / (1 + float(rows[0]["noise_scale"]) / big) / squared_gradient,
                               1, delta=1e-4)
        self.normscope("train", self.config(config), "--out", self.path("s"), "--set", "train.grad_accum=1")
        self.assertEqual({row["noise_scale"] for row in Run(self.path("s")).rows("metrics.csv")}, {""})

    def test_an_older_versions_run_goes_on(self):
        config = self.config(merged(TINY, {"train": {"steps": 30}, "log": {"every": 1, "layers_every": 5}}))
        self.normscope("train", config, "--out", self.path("whole"))
        self.normscope("train", config, "--out", self.path("old"), "--set", "train.steps=20")
        whole, old = Run(self.path("whole")), Run(self.path("old"))
        later = {"metrics.csv": 1, "layers.csv": 4, "params.csv": 1}
        for name, count in later.items():
            lines = old.bytes(name).decode().splitlines()
            with open(old.file(name), "w", encoding="utf-8") as file:
                file.writelines(line.rsplit(",", count)[0] + "\n" for line in lines)
        os.remove(old.file("heads.csv"))
        tensors, metadata = read_safetensors(old.file("checkpoint.safetensors"))
        tensors["recent"] = tensors["recent"][:100]  # numbers of the last steps: fewer, as of fewer columns
        write_safetensors(old.file("checkpoint.safetensors"), tensors, metadata)
        self.write("old/checkpoint.safetensors", with_metadata(old.bytes("checkpoint.safetensors"), metadata))
        self.normscope("train", config, "--out", self.path("old"), "--resume")
        for name, count in later.items():
            self.assertEqual(old.columns(name), whole.columns(name))
            for a, b in zip(old.rows(name), whole.rows(name), strict=True):
                earlier = int(a["step"]) <= 20
                for i, column in enumerate(old.columns(name)):
                    if column not in ("step_ms", "tokens_per_s", "lr"):
                        is_new = i >= len(old.columns(name)) - count
                        if is_new and earlier:
                            self.assertEqual(a[column], "")
        self.assertEqual({row["step"] for row in old.rows("heads.csv")}, {"25", "30"})


if __name__ == "__main__":
    unittest.main()
