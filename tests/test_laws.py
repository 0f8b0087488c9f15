#!/usr/bin/python3
"""The laws of signal propagation at initialisation, measured from the files that `normscope probe` writes.

Set-up: context 1 (attention is then its value and output matrices), no positions, untied head, ReLU, no biases, Xavier
normal weights, unit embeddings, C = 192, one batch of 64, the mean of 8 seeds. With d_ff = r C an FFN returns
2r/(1+r)^2 of the mean square that it reads and attention all of it; from that follow the laws of each placement.
Printed line by line: law, L, measured, expected.
"""

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cli import BINARY, ROOT, Run, environment, merged

SEEDS = 8
DEPTHS = (4, 12, 24)
LATER = 12  # depth of the placements of 2022 to 2026 and of the norms without statistics
WIDTH = 192
BASE = {
    "model": {"n_head": 4, "d_model": WIDTH, "d_ff": WIDTH, "context": 1, "position": "none", "tie_embeddings": False,
              "activation": "relu", "bias": False, "norm": "layernorm",
              "init": {"scheme": "xavier_normal", "embed_std": 1}},
    "data": {"path": os.path.join(ROOT, "data", "austen.txt")},
    "train": {"steps": 1, "batch_size": 64},
}


class Probe:
    """What a probe found: arrays over the seeds."""

    def __init__(self, folder, layers):
        runs = [Run(os.path.join(folder, f"seed-{seed}")) for seed in range(1, SEEDS + 1)]
        sites = [{(int(r["layer"]), r["site"]): r for r in run.rows("layers.csv")} for run in runs]
        params = [{r["param"]: r for r in run.rows("params.csv")} for run in runs]
        self.layers = layers

        def of(tables, key, column):
            return np.array([float(table[key][column]) for table in tables])

        depth = range(layers + 1)
        self.stream = np.array([of(sites, (l, "stream"), "rms") for l in depth])  # (L+1, seeds)
        self.gradient = np.array([of(sites, (l, "stream"), "grad_norm") for l in depth])
        self.branch = np.array([of(sites, (l, "ffn_out"), "rms") for l in depth[1:]])
        # Of one batch the norm of the mean gradient and the mean of the norms are the same thing.
        self.weight_gradient = {
            block: of(params, f"blocks.{block}.ffn.out.weight", "grad_norm") for block in (0, layers - 1)}
        batch = of(params, f"blocks.{layers - 1}.ffn.out.weight", "grad_norm_batch")
        assert np.allclose(batch, self.weight_gradient[layers - 1], rtol=1e-5), "the two gradient norms differ"

    def mean_square(self):
        return (self.stream**2).mean(axis=1)


def probe(scratch, placement, layers, ratio=1, norm="layernorm"):
    name = f"{placement}-{layers}-{ratio}-{norm}"
    config = merged(BASE, {"model": {"norm_placement": placement, "n_layer": layers, "d_ff": ratio * WIDTH, "norm": norm}})
    path = os.path.join(scratch, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    out = os.path.join(scratch, name)
    subprocess.run([BINARY, "probe", path, "--seeds", str(SEEDS), "--out", out], env=environment(), check=True,
                   stdout=subprocess.DEVNULL)
    return Probe(out, layers)


def normal_mean(f):
    z = np.linspace(-9, 9, 3601)
    return float((f(z) * np.exp(-z * z / 2)).sum() * (z[1] - z[0]) / math.sqrt(2 * math.pi))


def squashed_dyt(m):
    """E N(x)^2 and E N'(x)^2 of N = tanh(x/2) and x of mean square m."""
    tanh = np.tanh
    return (normal_mean(lambda z: tanh(math.sqrt(m) * z / 2)**2),
            normal_mean(lambda z: (1 - tanh(math.sqrt(m) * z / 2)**2)**2 / 4))


def squashed_derf(m):
    """The same of erf(x/2), in closed form."""
    v = m / 4
    return 2 / math.pi * math.asin(2 * v / (1 + 2 * v)), 1 / math.pi / math.sqrt(1 + 4 * v)


def along(sublayer):
    """The stream's mean squares x_0 ... x_L and, at each, |dx|^2 over that of x_L, where attention (gain 1) and FFN (1/2)
    each turn m into m + added, and take |dx|^2 into |dx|^2 (1 + passed): (added, passed) = sublayer(m, is_ffn)."""
    m, factors = [1.0], []
    for _ in range(LATER):
        at, factor = m[-1], 1.0
        for is_ffn in (False, True):
            added, passed = sublayer(at, is_ffn)
            at, factor = at + added, factor * (1 + passed)
        m.append(at)
        factors.append(factor)
    return np.array(m), np.append(np.cumprod(factors[::-1])[::-1], 1.0)


def squashed(moments):
    return along(lambda m, is_ffn: tuple((0.5 if is_ffn else 1.0) * x for x in moments(m)))


def subln(m, is_ffn):
    """The inner LayerNorm takes the mean out of ReLU's output, and with it 1/pi of its mean square."""
    gain = math.log(2 * LATER)  # of each branch, which reads and returns what is normalised
    return gain, gain / m * (math.pi / (math.pi - 1) if is_ffn else 1)


def hybrid_gradient(stream):
    """|dx_l|^2 over |dx_L|^2. With heads of 64 the widths show: per block, what the norm of the values adds to its branch's
    share, 1/(D - 2), and the norm of x + Attn(x) to the whole, by how its length varies, less the mean that the branch has."""
    heads = WIDTH / BASE["model"]["n_head"]
    branch = 1 / 2.5
    length = (4 * 0.5 + 7 * 0.5**2 + 4 * 1.5 + 2) / 2.5**2  # FFN's part of x and its sum with x; attention's
    block = (1 + branch / (heads - 2)) * (1 + (length - branch) / WIDTH)
    return stream[-1] / stream * block ** np.arange(LATER, -1, -1)


def later_laws(laws, found):
    ones = np.ones(LATER + 1)
    hybrid = np.array([1.0, *[1.5] * LATER])
    star = np.array([1.0, 2.5, *hybrid[2:]])
    for placement, norm, law, (stream, gradient), tolerance in (
        ("keel", "layernorm", "1", (ones, ones), 0.05),
        ("hybrid", "layernorm", "1.5 after each block", (hybrid, hybrid_gradient(hybrid)), 0.08),
        ("hybrid_star", "layernorm", "2.5, then 1.5", (star, hybrid_gradient(star)), 0.08),
        ("subln", "layernorm", "1 + 2 l ln 2L", along(subln), 0.08),
        ("pre", "dyt", "of m' = m + g E tanh(x/2)^2", squashed(squashed_dyt), 0.05),
        ("pre", "derf", "of m' = m + g (2/pi) asin(2v/(1 + 2v)), v = m/4", squashed(squashed_derf), 0.05),
    ):
        one, name = found[placement, LATER, 1, norm], placement if norm == "layernorm" else f"{placement}, {norm}"
        laws.close(f"{name}: mean square of x_l = {law}", LATER, one.mean_square(), stream, tolerance)
        measured = np.sqrt((one.gradient**2).mean(axis=1))
        laws.close(f"{name}: |dx_l| over |dx_L|", LATER, measured / measured[-1], np.sqrt(gradient), tolerance)
    return 12


class Laws:
    """Compares and prints; counts what is off."""

    def __init__(self):
        self.tried, self.broken = 0, 0

    def close(self, law, layers, measured, expected, tolerance, relative=True):
        """The worst of some figures against what they should be."""
        measured, expected = np.atleast_1d(measured), np.atleast_1d(expected)
        error = np.abs(measured - expected) / (np.abs(expected) if relative else 1)
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        good = bool((error <= tolerance).all())
        self.tried += 1
        self.broken += not good
        off = (f"off by {error[worst]:.1%} of {tolerance:.0%}" if relative
               else f"off by {error[worst]:.2f} of {tolerance}")
        print(f"{'ok  ' if good else 'FAIL'}  {law:62} L {layers!s:>4}  {measured[worst]:9.4g}  "
              f"expected {expected[worst]:9.4g}  {off}{f' at layer {worst}' if error.size > 1 else ''}")


def main():
    laws = Laws()
    placements = ("pre", "pre_scaled", "sandwich", "peri", "res_post", "post", "deepnorm")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        wanted = [(p, l, 1) for p, l in itertools.product(placements, reversed(DEPTHS))]
        wanted += [("pre", 4, r) for r in (2, 4)]
        wanted += [(p, LATER, 1, "layernorm") for p in ("keel", "hybrid", "hybrid_star", "subln")]
        wanted += [("pre", LATER, 1, norm) for norm in ("dyt", "derf")]
        found = dict(zip(wanted, pool.map(lambda w: probe(scratch, *w), wanted)))

    for ratio in (1, 2, 4):
        branch = (found["pre", 4, ratio].branch**2).mean()
        laws.close(f"FFN branch of a normalised input, r = {ratio}: 2r/(1+r)^2", 4, branch,
                   2 * ratio / (1 + ratio)**2, 0.05)
    for layers in DEPTHS:
        l = np.arange(layers + 1)
        harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, layers + 1))])
        for placement, law, expected in (
            ("pre", "1 + 1.5 l", 1 + 1.5 * l),
            ("pre_scaled", "1 + 1.5 (1 + 1/2 + ... + 1/l)", 1 + 1.5 * harmonic),
            ("sandwich", "1 + 2 l", 1 + 2.0 * l),
            ("peri", "1 + 2 l", 1 + 2.0 * l),
            ("res_post", "1 + 2 l", 1 + 2.0 * l),
            ("post", "1", np.ones(layers + 1)),
            ("deepnorm", "1", np.ones(layers + 1)),
        ):
            laws.close(f"{placement}: mean square of x_l = {law}", layers,
                       found[placement, layers, 1].mean_square(), expected, 0.05)
        for placement, weight in (("pre", True), ("pre_scaled", True), ("sandwich", True), ("peri", True),
                                  ("res_post", True), ("post", False), ("deepnorm", False)):
            one = found[placement, layers, 1]
            kept = (one.gradient * (one.stream if weight else 1)).mean(axis=1)
            what = "rms(x_l) |dx_l|" if weight else "|dx_l|"
            laws.close(f"{placement}: {what} the same at every layer", layers, kept,
                       np.full(layers + 1, kept.mean()), 0.08)
        pre = found["pre", layers, 1].weight_gradient
        laws.close("pre: |dW2| of block 1 over block L = sqrt((1 + 1.5 L)/2.5)", layers,
                   pre[0].mean() / pre[layers - 1].mean(), math.sqrt((1 + 1.5 * layers) / 2.5), 0.2)
    for placement, slope in (("pre", -0.45), ("post", 0.1)):
        last = [found[placement, layers, 1].weight_gradient[layers - 1].mean() for layers in DEPTHS]
        fitted = np.polyfit(np.log(DEPTHS), np.log(last), 1)[0]
        laws.close(f"{placement}: slope of log |dW2| of block L against log L", f"{DEPTHS[0]}-{DEPTHS[-1]}", fitted,
                   slope, 0.1, relative=False)
    later = later_laws(laws, found)
    print(f"{laws.tried - laws.broken} of {laws.tried} laws hold")
    sys.exit(1 if laws.broken or laws.tried != 3 + 15 * len(DEPTHS) + 2 + later else 0)


if __name__ == "__main__":
    main()
