#!/usr/bin/python3
"""The theory of scripts/predict.py: closed laws, sampled means, probes; what the command prints, holds against it and
refuses."""

import csv
import io
import json
import math
import os
import unittest
from unittest import mock

from cli import ROOT, CliTest, read_safetensors, sites_of, write_safetensors
from made_runs import MadeRuns

import predict  # in scripts, which cli.py puts on the path
from lib.figures import curves, layout, plot_layers
from lib.theory import embedding_and_head, gaussian, mean_field, sublayers
from lib.theory.attention_kernels import Attention
from lib.compare.groups import group_by_config
from lib.theory.mean_field import NoPrediction
from lib.logs import np
from lib.logs.runs import Run

TEXT = {"path": os.path.join(ROOT, "data", "austen.txt")}
WIDE = 10**7  # the limit of wide layers: kernels are of tokens alone
MODEL = {"n_layer": 12, "n_head": 4, "d_model": WIDE, "d_ff": WIDE, "context": 1, "norm": "layernorm", "norm_eps": 0.0,
         "norm_groups": 4, "norm_eps_outside": False, "norm_affine": True, "norm_alpha": 0.5, "norm_placement": "pre",
         "embed_norm": False, "residual": True, "branch_scale": 1.0, "branch_scale_learned": "none", "bias": False,
         "ffn_bias": False, "dropout": 0.0, "norm_detach": False, "norm_bias": True,
         "activation": "relu", "qk_norm": False, "qkv_norm": False, "inner_norm": False, "position": "none",
         "tie_embeddings": False, "final_norm": False,
         "init": {"scheme": "xavier_normal", "embed_std": 1.0, "residual_scaling": False, "zero_branches": False}}
HYBRID = {"attn": "post", "ffn": "none"}
# a tenth of the characters come twice
ONE = embedding_and_head.Text(60, np.array([0.1, 1, 0.1]), *np.full((3, 3), 0.1), np.ones((1, 1, 1)))


def of(text=ONE, tokens=64, **changes):
    """The prediction for a made-up model of one character's context."""
    model = {**MODEL, **changes}
    model["init"] = {**MODEL["init"], **changes.get("init", {})}
    return mean_field.predict({"model": model}, text, tokens)


def stream(prediction):
    """(mean squares of the stream, of its gradient), layers 0 .. L."""
    return np.square([value for (_, site), value in prediction.sites.items() if site == "stream"]).T


class Laws(unittest.TestCase):
    """Closed forms for one token, Xavier and F = C: attention adds g = 1 times the mean square that it reads, the FFN b
    = 1/2."""

    layers = np.arange(13)

    def test_stream(self):
        harmonic = np.cumsum([0, *(1 / np.arange(1, 13))])
        for placement, law in (("pre", 1 + 1.5 * self.layers), ("pre_scaled", 1 + 1.5 * harmonic),
                               ("sandwich", 1 + 2 * self.layers), ("peri", 1 + 2 * self.layers),
                               ("res_post", 1 + 2 * self.layers), ("post", 1 + 0 * self.layers), ("keel", 1 + 0 * self.layers),
                               ("deepnorm", 1 + 0 * self.layers), ("none", 3.0**self.layers),
                               ("rezero", 1 + 0 * self.layers), (HYBRID, np.where(self.layers, 1.5, 1)),
                               (["pre", *[HYBRID] * 11], np.array([1, 2.5, *[1.5] * 11]))):
            with self.subTest(placement):
                prediction = of(norm_placement=placement,
                                norm="none" if placement in ("none", "rezero") else "layernorm")
                np.testing.assert_allclose(stream(prediction)[0], law, rtol=1e-6)

    def test_gradient_is_conserved(self):  # E rms(x_l)^2 |dx_l|^2 is the same at every layer
        for placement in ("pre", "pre_scaled", "post", "deepnorm", "keel", "sandwich", "peri", "res_post"):
            with self.subTest(placement):
                values, gradients = stream(of(norm_placement=placement))
                np.testing.assert_allclose(values * gradients, values[-1] * gradients[-1], rtol=1e-5)

    def test_share_of_the_input(self):  # cos(x_0, x_l) is the product of alpha / sqrt(alpha^2 + g/m) over the sublayers
        alpha = math.sqrt(24)  # deepnorm's alpha^2
        beta = 1 / math.sqrt(96)  # its gain^4 on the mean square of a branch is 1/(8L)
        for placement, law in (("pre", (1 + 1.5 * self.layers)**-0.5), ("post", 3.0**(-self.layers / 2)),
                               ("deepnorm", ((1 + beta**2 / alpha) * (1 + beta**2 / alpha / 2))**(-self.layers / 2)),
                               ("keel", ((1 + 1 / 24**2) * (1 + 0.5 / 24**2))**(-self.layers / 2))):
            with self.subTest(placement):
                cosines = [layer["input_cosine"] for layer in of(norm_placement=placement).layers]
                np.testing.assert_allclose(cosines, law, rtol=1e-5)

    def test_activations_whose_slope_has_another_mean_square(self):
        # post: |dx_0|^2 / |dx_L|^2 = ((1 + b_b)/(1 + b_f))^L with (b_f, b_b) of F = C
        for activation, forward, backward in (("gelu", 0.4252, 0.4559), ("silu", 0.3557, 0.3791),
                                              ("swiglu", 0.3557, 0.7347)):
            gradients = stream(of(norm_placement="post", activation=activation))[1]
            self.assertAlmostEqual(gradients[0] / gradients[-1] / ((1 + backward) / (1 + forward))**12, 1, delta=5e-3)

    def test_pointwise_norms(self):
        """m' = m + g E f(x)^2 and |dx|^2 = |dy|^2 (1 + g E f'(x)^2) at each sublayer, for x of mean square m."""
        z = np.linspace(-9, 9, 3601)
        weights = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
        functions = {"dyt": lambda x: (np.tanh(x / 2), (1 - np.tanh(x / 2)**2) / 2),
                     "derf": lambda x: (np.vectorize(math.erf)(x / 2), np.exp(-x * x / 4) / math.sqrt(math.pi))}
        for norm, value_and_slope in functions.items():
            with self.subTest(norm):
                values, gradients = stream(of(norm=norm))
                m, gain = 1.0, 1.0
                for g in (1, 0.5) * 12:
                    value, slope = value_and_slope(math.sqrt(m) * z)
                    gain *= 1 + g * weights @ slope**2
                    m += g * weights @ value**2
                self.assertAlmostEqual(values[-1] / m, 1, delta=1e-3)
                self.assertAlmostEqual(gradients[0] / gradients[-1] / gain, 1, delta=1e-3)

    def test_limits(self):  # of gradients twice as wide if a tied head foresees the character just read
        untied = {**MODEL, "d_model": 128}
        tied, small = {**untied, "tie_embeddings": True}, {"init": {**MODEL["init"], "embed_std": 0.1}}
        limits, of_tied, of_small = (mean_field.allowed(model, 0.1, 9) for model in (untied, tied, {**tied, **small}))
        self.assertEqual([of_small, of_tied[0]], [limits, limits[0]])
        self.assertAlmostEqual(limits[0], math.log(1.1) + 0.1)
        self.assertAlmostEqual(of_tied[1] - limits[1], limits[0])
        ratio, distance = predict.compared(np.array([[[1.0, 1]], [[7, 0]]]), np.array([[1, 0]]), 0.1)
        np.testing.assert_allclose([*ratio[0], distance[0, 0]], [2, math.inf, 10 * math.log(2)])

    def test_amplification(self):  # the sum over sublayers of two matrices' share of the sum
        m, pre = 1.0, 0.0
        for g in (1, 0.5) * 12:
            m += g
            pre += 2 * g / m
        self.assertAlmostEqual(of(norm_placement="pre").amplification, pre, delta=1e-5)
        self.assertAlmostEqual(of(norm_placement="post").amplification, 12 * (2 / 2 + 2 / 3), delta=1e-5)

    def test_inner_layernorm(self):  # takes the mean of ReLU's features: the slope's share is pi/(pi - 1)
        values, gradients = stream(of(norm_placement="subln", n_layer=6))
        m, ratio = 1.0, 1.0
        gain = math.log(12)  # the output matrices' gain; a norm cancels that of the first matrix
        for back in (1, math.pi / (math.pi - 1)) * 6:
            ratio *= (1 + gain * back / m) / (1 + gain / m)
            m += gain
        self.assertAlmostEqual(values[-1] / m, 1, delta=1e-4)
        self.assertAlmostEqual(values[0] * gradients[0] / (values[-1] * gradients[-1]) / ratio, 1, delta=1e-3)


class Means(unittest.TestCase):
    """Means over Gaussian variables, against samples and closed forms."""

    rng = np.random.default_rng(1)

    def test_softmax(self):
        for n, sigma in ((3, 0.5), (16, 1.0), (64, 3.0), (20, 10.0)):
            e = np.exp(sigma * self.rng.standard_normal((40000, n)))
            a = e / e.sum(1, keepdims=True)
            p = (a**2).sum(1)
            sampled = [p.mean(), (p - 2 * (a**3).sum(1) + p**2).mean(), -(a * np.log(a)).sum(1).mean()]
            np.testing.assert_allclose(gaussian.softmax_moments(np.array(n), np.array(sigma)), sampled, rtol=0.03)
        e = np.exp(self.rng.standard_normal((40000, 30)) + 2.5 * (np.arange(30) == 0))
        a = e / e.sum(1, keepdims=True)
        sampled = [np.log(e.sum(1)).mean(), a[:, 0].mean(), a[:, 1:].mean(), (a[:, 0]**2).mean(), (a[:, 1:]**2).mean()]
        np.testing.assert_allclose(gaussian.shifted_softmax(30, 1.0, 2.5), sampled, rtol=0.02)

    def test_functions(self):
        root = self.rng.standard_normal((4, 4))
        kernel = root @ root.T
        sine = gaussian.response(np.sin, kernel)
        decay = np.exp(-(np.diag(kernel)[:, None] + np.diag(kernel)) / 2)
        np.testing.assert_allclose(sine.value, decay * np.sinh(kernel), atol=1e-6)
        np.testing.assert_allclose(sine.slope, decay * np.cosh(kernel), rtol=2e-3, atol=2e-4)  # a difference quotient
        np.testing.assert_allclose(sine.gain, np.exp(-np.diag(kernel) / 2), rtol=2e-3)
        relu = gaussian.hidden_of("relu", kernel)
        np.testing.assert_allclose(np.diag(relu.value), np.diag(kernel) / 2)

    def test_attention(self):
        T, D, C, heads = 6, 64, 256, 400
        root = self.rng.standard_normal((T, T))
        kernel = np.eye(T) + 0.2 * root @ root.T / T
        arriving = np.eye(T) + 0.3
        x = np.linalg.cholesky(kernel) @ self.rng.standard_normal((T, C))
        kernel = x @ x.T / C  # the kernel of these very features
        model = {**MODEL, "d_model": C, "n_head": C // D}
        forward = backward = 0.0
        for _ in range(heads):
            q, k, v = x @ self.rng.standard_normal((3, C, D)) / math.sqrt(C) * math.sqrt(1.5)
            e = np.tril(np.exp(q @ k.T / math.sqrt(D)))
            a = e / e.sum(1, keepdims=True)
            da = np.linalg.cholesky(arriving) @ self.rng.standard_normal((T, D))
            ds = a * (da @ v.T - ((da @ v.T) * a).sum(1, keepdims=True)) / math.sqrt(D)
            forward += np.mean((a @ v)**2) / heads
            through = [np.mean(g**2) for g in (a.T @ da, ds @ k, ds.T @ q)]  # C Var = 1.5 back through each matrix
            backward += 1.5 * sum(through) / heads
        attention = Attention(kernel, model, 1.5, 1.5)
        self.assertAlmostEqual(gaussian.mean_square(attention.forward()) / forward, 1, delta=0.03)
        arrived = attention.backward(np.stack([arriving, 0 * arriving]))[0]
        self.assertAlmostEqual(gaussian.mean_square(arrived) / backward, 1, delta=0.05)

    def test_attention_of_repeated_tokens(self):
        """Without positions equal characters are equal tokens: the mean is over windows, not of attention's kernel."""
        T, D, C = 24, 64, 64
        letters = self.rng.choice(12, 4000, p=np.arange(12, 0, -1) / 78)
        text = embedding_and_head.text_of(letters, 12, T)
        model = {**MODEL, "d_model": C, "n_head": 1, "context": T, "init": {"scheme": "kaiming_normal"}}
        forward = []
        for start in self.rng.integers(0, len(letters) - T, 600):
            x = self.rng.standard_normal((12, C))
            x = (x / np.sqrt(np.mean(x**2, 1, keepdims=True)))[letters[start:start + T]]
            q, k, v = x @ self.rng.standard_normal((3, C, D)) * math.sqrt(2 / C)
            e = np.tril(np.exp(q @ k.T / math.sqrt(D)))
            forward.append(np.mean((e / e.sum(1, keepdims=True) @ v)**2))
        lag = np.arange(T)[:, None] - np.arange(T)
        collected = sublayers.Collected({}, {}, [{}, {}], text.windows)
        branch = sublayers.attention(model, text.same[lag + T], 2.0, False, 1, collected)
        self.assertAlmostEqual(gaussian.mean_square(branch.kernel) / np.mean(forward), 1, delta=0.06)

    def test_pointwise_norm_in_the_ffn(self):
        """The gradient of the hidden features passes E N'(f(u))^2 of Gaussian u, not E (N(f))'(u)^2 / E f'(u)^2."""
        u = 1.5 * self.rng.standard_normal(200000)
        for activation, features in (("relu", np.maximum(u, 0)), ("silu", u / (1 + np.exp(-u)))):
            model = {**MODEL, "d_model": 64, "d_ff": 64, "norm": "dyt", "activation": activation}
            collected = sublayers.Collected({}, {}, [], None)
            branch = sublayers.feed_forward(model, np.array([[2.25]]), 1.0, True, 1, collected)
            branch.backward(np.ones((1, 1)))
            passed = np.mean(((1 - np.tanh(features / 2)**2) / 2)**2)
            self.assertAlmostEqual(collected.gradient_squares[1, "ffn_hidden"] / passed, 1, delta=0.01)

    def test_text(self):
        c = np.frombuffer("aabaabbbab".encode() * 50, np.uint8)
        text = embedding_and_head.text_of(c, 2, 3)
        n = len(c) - 3
        at = [c[3 + d:len(c) - 4 + d] for d in range(-3, 5)]  # at[3 + d]: d characters on
        here, following = at[3], at[4]
        for d in range(-3, 4):
            other, next_other = at[3 + d], at[4 + d] if d < 4 else None
            same, repeated = here == other, here == following
            expected = [np.mean(same), np.mean(same & repeated), np.mean(repeated & (other == next_other)),
                        np.mean(same & repeated & (other == next_other))]
            np.testing.assert_allclose([values[3 + d] for values in text[1:5]], expected, atol=10 / n)


SMALL = {"n_layer": 3, "n_head": 2, "d_model": 64, "d_ff": 128, "context": 16, "activation": "relu",
         "tie_embeddings": False, "init": {"scheme": "xavier_normal", "embed_std": 1}}
LARGE_EMBEDDINGS = {"n_layer": 2, "context": 4, "activation": "swiglu", "position": "none", "tie_embeddings": True,
                    "d_ff": 256}


class Command(CliTest):
    @classmethod
    def setUpClass(cls):
        """Predicts once, so that the scripts' processes inherit the tables and the text's statistics."""
        first = cls("make")
        first.setUp()
        cls.addClassCleanup(first.doCleanups)
        mean_field.predict(mean_field.resolved(first.path(first.make())))

    def make(self, **model):
        init = model.pop("init", SMALL["init"])
        return self.config({"model": {**SMALL, **model, "init": init}, "data": TEXT, "train": {"batch_size": 8}})

    def predict(self, *arguments, code=0):
        return self.script("predict.py", *arguments, code=code)

    def sites(self, config):
        return mean_field.predict(mean_field.resolved(self.path(config))).sites

    def probe(self, config, seeds=8):
        self.normscope("probe", config, "--seeds", str(seeds), "--out", "probe", "--overwrite")

    def off(self, config):
        """The largest distances of probed from predicted rms, of [values, gradients], over the sites, less two standard
        errors."""
        self.probe(config)
        squares = np.square([Run(self.path("probe", f"seed-{seed}")).rows("layers.csv", ("rms", "grad_rms"))
                             for seed in range(1, 9)])  # (seeds, sites, 2)
        sites = self.sites(config)
        self.assertEqual([*sites], sites_of(max(layer for layer, _ in sites) - 1))
        mean, error = squares.mean(0), squares.std(0, ddof=1) / math.sqrt(8)
        return (np.abs([*sites.values()] / np.sqrt(mean) - 1) - error / mean).max(0)

    def test_near_probes(self):
        gpt2 = {"init": {"scheme": "gpt2"}}
        for model in ({"norm_placement": ["post", "sandwich", "deepnorm"], "norm": "rmsnorm", "position": "rope"},
                      {"norm_placement": {"attn": "res_post", "ffn": "keel"}, "activation": "gelu",
                       "branch_scale": "L^-0.5"},
                      {"norm_placement": "peri", "norm": "groupnorm", "activation": "silu", "position": "sinusoidal"},
                      {"norm": "dyt", "activation": "swiglu", "qk_norm": True, "d_model": 128},
                      {"norm_placement": "subln", "activation": "gelu_tanh"},
                      {"norm_placement": ["pre_scaled", "keel", "res_post"], "norm": "rmsnorm"},
                      {"norm": "derf", "norm_placement": "pre_scaled"},
                      {"norm_placement": "hybrid_star", "d_model": 128},
                      # P1: sums over tokens whose gradients nearly cancel
                      {**LARGE_EMBEDDINGS, "norm_placement": "sandwich",
                       "init": {"scheme": "gpt2", "embed_std": 1, "std": 0.001}},
                      {**LARGE_EMBEDDINGS, "activation": "gelu",
                       "init": {"scheme": "gpt2", "embed_std": 1, "std": 0.005}},
                      # P2: epsilon beside small queries, keys and values
                      {"norm_placement": "hybrid", "tie_embeddings": True, **gpt2},
                      # the final norm leaves a part of the branches in the gradient of a tied head
                      {"activation": "swiglu", "position": "rope", "tie_embeddings": True},
                      {"norm_placement": "post", "qk_norm": True, **gpt2}):
            with self.subTest(model):
                values, gradients = self.off(self.make(**model))
                self.assertLess(values, 0.03)
                self.assertLess(gradients, 0.08)

    def test_forms_agree(self):
        config = self.make()
        table = csv.DictReader(io.StringIO(self.predict(config, "--csv").stdout))
        result = json.loads(self.predict(config, "--json").stdout)
        self.assertEqual([(row["layer"], row["site"]) for row in result["sites"]], sites_of(3))
        self.assertEqual(*([[str(row[column]) for column in ("layer", "site", "rms", "grad_rms")] for row in rows]
                           for rows in (result["sites"], table)))
        self.assertIn(f"first loss     {result['loss']:.3f}", self.predict(config).stdout)
        post = self.sites(self.make(norm_placement="post"))
        for layer in (1, 2, 3):  # sites that are one tensor
            self.assertEqual(post[layer, "attn_in"], post[layer - 1, "stream"])
            self.assertEqual(post[layer, "ffn_in"], post[layer, "stream_mid"])

    def test_no_prediction(self):
        for model in ({"norm": "batchnorm"}, {"norm": "instancenorm"}, {"norm_placement": "none", "n_layer": 12},
                      {"norm": "dyt", "norm_placement": "deepnorm"},
                      {"norm": "derf", "inner_norm": True, "activation": "swiglu"},
                      {"norm": "derf", "tie_embeddings": True, "position": "none"},
                      {"final_norm": False, "tie_embeddings": True},
                      {"norm_placement": "none", "activation": "swiglu"},
                      {"context": 513}, {"norm_detach": True}, {"n_layer": 40, "norm_placement": "post"},
                      {"norm_placement": "res_post", "n_layer": 8,
                       "init": {"scheme": "xavier_normal", "embed_std": 0.1}},
                      # a variance of 0, or one that underflows to 0
                      {"init": {"embed_std": 0}}, {"init": {"embed_std": 0}, "norm": "dyt"},
                      {"init": {"scheme": "gpt2", "std": 0}},
                      {"init": {"scheme": "gpt2", "std": 0}, "norm_placement": "none"}):
            with self.subTest(model):
                result = self.predict(self.make(**model), code=2)
                self.assertRegex(result.stderr, r"^\[predict\] no prediction: .+\n$")
                self.assertEqual(result.stdout, "")
        with self.assertRaisesRegex(NoPrediction, "no theory of l1norm"):
            of(norm="l1norm")
        self.assertRegex(self.predict("none.json", code=2).stderr, r"^\[config\] .*none\.json")
        self.assertIn("--tolerance: got -1.0; expected a number from 0",
                      self.predict(self.make(), "--tolerance", "-1", code=2).stderr)
        with mock.patch.dict(os.environ, NORMSCOPE_BINARY="no/program"):
            self.assertRegex(self.predict(self.make(), code=1).stderr,
                             r"^\[predict\] no/program: No such file .*: build it by scripts/build.sh, or name it .*\n$")
        self.assertEqual(self.normscope("predict", "x", code=2).stderr,
                         "[normscope] predict is a script; run scripts/predict.py, which has --help\n")

    def against(self, config, measured, code, *options):
        return self.predict(config, "--against", measured, *options, code=code).stdout

    def test_against_a_probe(self):
        for model in ({}, {"norm_placement": ["pre", "post", "sandwich"]}):
            config = self.make(**model)
            self.probe(config)
            self.assertRegex(self.against(config, "probe", 0), "\n48 values are as predicted; the farthest: the "
                             r"\w+ at \w+ of layer \d, \S+ of the prediction; expected within \d+% \(seeds: 8\)\n")
        self.assertRegex(self.against(self.make(), "probe", 1), "first to leave: the activation at .* of layer ")
        self.assertIn("not compared: model.d_model is 64; the config has 128\n",
                      self.against(self.make(d_model=128), "probe", 1))
        self.assertIn("attn_in of layer 3 is no site of the config\n", self.against(self.make(n_layer=2), "probe", 1))
        self.normscope("train", self.make(n_layer=2), "--out", "run", "--set", "train.steps=1")
        self.assertIn("\n34 values are as predicted", self.against(self.make(n_layer=2), "run", 0))
        self.normscope("train", self.make(dropout=0.1), "--out", "wet", "--set", "train.steps=1")
        self.assertRegex(self.predict(self.make(), "--against", "wet", code=2).stderr,
                         r"^\[predict\] wet: its steps have dropout")
        self.assertRegex(self.predict(config, "--against", "nowhere", code=1).stderr,
                         r"^\[predict\] nowhere: No such file")

    def test_against_a_file(self):
        config = self.make()
        self.normscope("probe", config, "--dump", "sound.safetensors")
        self.assertIn("\n48 values are as predicted", self.against(config, "sound.safetensors", 0))
        tensors, _ = read_safetensors(self.path("sound.safetensors"))
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith("act")}

        x = tensors["act.2.stream"]
        others = {name: None for name in tensors if not name.endswith("stream")}  # a kind of site may be left out
        for code, says, changes, *options in (
                (1, "first to leave: the activation at stream of layer 2, 0.", {"act.2.stream": x / 2}),
                (0, "\n48 values are as predicted", {"act.2.stream": x / 2}, "--tolerance", "1"),
                (1, "act.2.stream is (8, 16, 128); expected (8, 16, 64)", {"act.2.stream": np.tile(x, 2)}),
                (1, "act.2.stream is (7, 16, 64); expected (8, 16, 64)", {"act.2.stream": x[:7]}),
                (1, "act_grad.3.attn_in is missing", {"act_grad.3.attn_in": None}),
                (1, "act.2.steam is no site of the config", {"act.2.steam": x}),
                (1, "act.4.stream is no site of the config", {"act.4.stream": x}), (0, "\n8 values", others)):
            kept = {name: tensor for name, tensor in {**tensors, **changes}.items() if tensor is not None}
            write_safetensors(self.path("mine.safetensors"), kept)
            self.assertIn(says, self.against(config, "mine.safetensors", code, *options))
        self.write("bad.safetensors", b"bad")
        self.assertRegex(self.predict(config, "--against", "bad.safetensors", code=1).stderr,
                         r"^\[safetensors\] .*not even a header")


class Drawn(MadeRuns):
    """`plot.py layers --theory` of made-up runs, whose stream has an rms of 1 + l, and a gradient of 1.1e-3
    everywhere."""

    def make_run(self, name, decay=1.0, **changes):
        model = {**MODEL, "n_layer": 3, "n_head": 2, "d_model": 64, "d_ff": 64, "final_norm": True, **changes}
        return self.make(name, decay=decay, **{f"model__{key}": value for key, value in model.items()})

    def test_notes(self):
        none = self.make_run("none", 0.5, norm="none", norm_placement="none", context=8,
                             init={**MODEL["init"], "embed_std": 100})
        svg = self.plot("layers", self.make_run("pre"), none, "--theory")
        self.has(svg, "theory, before any training", "Gradient by depth, at step 1")
        self.assertRegex(svg, ">No prediction for [^<]*: attention is saturated")

    def test_steps_with_dropout_have_no_prediction(self):
        svg = self.plot("layers", self.make_run("wet", dropout=0.1), "--theory")
        self.assertRegex(svg, ">No prediction for [^<]*: its steps have dropout")

    def test_lines(self):
        run = Run(self.make_run("a"))
        with mock.patch.object(curves, "draw_panel") as drawn:
            plot_layers.plot(layout.styled(group_by_config([run])), theory=True)
        gradient, activation = (panel for _, panel in (call.args for call in drawn.call_args_list))
        np.testing.assert_allclose([panel.curves[0].rows[0] for panel in (gradient, activation)],
                                   [[1.1e-3] * 4, [1, 2, 3, 4]])
        (line,), (root,) = gradient.extras, activation.extras
        squares = np.array([1, 2.5, 4, 5.5])
        np.testing.assert_allclose(line.values / line.values[-1], np.sqrt(5.5 / squares), rtol=0.005)
        np.testing.assert_allclose(root.values, np.sqrt(squares))
        # One seed, of branches with these shares of the mean square of their sums
        shares = np.array([1 / 2, 0.5 / 2.5, 1 / 3.5, 0.5 / 4, 1 / 5, 0.5 / 5.5])
        factor = 1.1 * math.exp(3 * math.sqrt((0.5 + 2 * (shares @ shares)) / 64))
        spread = mean_field.predict(mean_field.resolved(run.folder)).spread
        np.testing.assert_allclose(np.exp(mean_field.allowed(run.config["model"], spread, 1)),
                                   [factor, factor * math.exp(3 / 64)])


if __name__ == "__main__":
    unittest.main()
