#!/usr/bin/python3
"""`normscope measure` against numpy and PyTorch, which rebuild the model from its weights: streams, lens, lesions, ranks,
cosines, noise in the weights, the whole Hessian. Planted faults must show. Skipped (exit 77) where PyTorch is not installed."""

import copy
import functools
import importlib.util
import json
import os
import sys
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import cli
import mutants
from cli import ROOT, CliTest, environment

if importlib.util.find_spec("torch") is None:
    print("skipped: no PyTorch (apt-get install python3-torch)")
    sys.exit(77)
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import torch
import torch_model

T, BATCH, DRAWS = 8, 3, 100
LETTERS = "abcdefgh \n"
MODEL = {"n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 12, "context": T, "tie_embeddings": False, "activation": "gelu",
         "init": {"scheme": "xavier_normal", "embed_std": 1}}
MODELS = {
    "pre": {},
    "post, tied": {"norm_placement": "post", "norm": "rmsnorm", "tie_embeddings": True, "activation": "swiglu"},
    "batchnorm": {"norm": "batchnorm", "position": "rope"},
    "peri": {"norm_placement": "peri", "norm": "groupnorm", "norm_groups": 2, "activation": "relu"},
    "instancenorm": {"norm_placement": "res_post", "norm": "instancenorm", "position": "sinusoidal"},
    "b2t": {"norm_placement": "b2t", "qk_norm": True},
    "hybrid": {"norm_placement": "hybrid", "n_layer": 3},
    "keel": {"norm_placement": "keel", "norm": "derf", "bias": True},
    "by block": {"norm_placement": ["pre_scaled", "rezero"], "norm": "dyt", "branch_scale": "L^-0.5"},
}
LAYERS = ("lens", "without", "rank", "token_cosine")
FAULTS = {  # measure: an edit of measure.cpp that spoils it, as mutants.build_all() takes it
    "lens": ("anew.eval_mode = «l == L»", "true"),
    "without": ("model.loss_from(pass, l, x[l - 1])", "model.loss_from(pass, l - 1, x[l])"),
    "rank": ("sum += value = «std::sqrt(std::max(value, 0.0))»", "std::max(value, 0.0)"),
    "token_cosine": ("sum_squares(C, sum.data()) / static_cast<double>(T) - «1»", "0"),
    "amplification": ("«p.role != Role::qkv»", "p.role != Role::embedding && p.role != Role::qkv"),
    "sharpness": ("add(-beta, before, 1, next)", "void()"),
}


class Twin:
    """What PyTorch in float64 makes of a run's weights and validation split, in batches of the windows that are asked for."""

    def __init__(self, run, batches):
        self.model, vocab = torch_model.load(run.path, torch.float64)
        config = run.json("config.json")["data"]
        index = {chr(point): i for i, point in enumerate(vocab)}
        text = Path(np.atleast_1d(config["path"])[0]).read_text(encoding="utf-8")
        tokens = torch.tensor([index[c] for c in text])[int(len(text) * 0.9):]
        whole = (len(tokens) - 1) // T
        chosen = min(whole, batches * BATCH)
        starts = [i * whole // chosen * T for i in range(chosen)]
        windows = torch.stack([tokens[s:s + T + 1] for s in starts])
        self.batches = [(w[:, :-1], w[:, 1:]) for w in windows.split(BATCH)]
        self.depth = len(self.model.blocks)

    def streams(self, tokens):
        sites = {}
        self.model(tokens, sites)
        return [sites[layer, "stream"].detach() for layer in range(self.depth + 1)]

    def loss(self, logits, targets):
        return torch_model.cross_entropy(logits, targets).item()

    def mean(self, f):
        """Over the batches, by their tokens."""
        sizes = [targets.numel() for _, targets in self.batches]
        return np.average([f(*batch) for batch in self.batches], axis=0, weights=sizes)

    @torch.no_grad()
    def lens(self):
        head = self.model.head or (lambda x: x @ self.model.embed["token"].weight.T)
        anew = copy.deepcopy(self.model.final_norm).train()  # batch norm: the batch's statistics

        def losses(tokens, targets):
            *below, last = self.streams(tokens)
            normed = [*map(anew, below), self.model.final_norm(last)]
            return [self.loss(head(x), targets) for x in normed]

        return self.mean(losses)

    @torch.no_grad()
    def without(self):
        found = [np.nan]
        for block in self.model.blocks:
            forward, block.forward = block.forward, lambda x, tap: x
            found.append(self.mean(lambda tokens, targets: self.loss(self.model(tokens), targets)))
            block.forward = forward
        return np.array(found)

    def rank(self):
        every = [torch.cat(layer).flatten(0, 1) for layer in zip(*(self.streams(tokens) for tokens, _ in self.batches))]
        found = []
        for x in every:
            p = np.linalg.svd(x.numpy(), compute_uv=False)
            p = p[p > 0] / p.sum()
            found.append(np.exp(-(p * np.log(p)).sum()))
        return np.array(found)

    def token_cosine(self):
        def cosines(tokens, _):
            found = []
            for x in self.streams(tokens):
                unit = (x / x.norm(dim=-1, keepdim=True)).numpy()
                pairs = unit @ unit.transpose(0, 2, 1)
                found.append(np.mean([[pairs[:, i, j] for j in range(T) if j != i] for i in range(T)]))
            return found

        return self.mean(cosines)

    @functools.cache
    def amplification(self, size=1e-6):
        """(mean, standard deviation) over DRAWS, by layer; of one batch."""
        tokens, _ = self.batches[0]
        generator = torch.Generator().manual_seed(1)
        x, found = self.streams(tokens), []
        matrices = [p for name, p in self.model.named_parameters() if name.startswith("blocks.") and p.dim() == 2]
        weights = [p.detach().clone() for p in matrices]
        for _ in range(DRAWS):
            for p, w in zip(matrices, weights):
                p.data = w * (1 + size * torch.randn(w.shape, generator=generator, dtype=w.dtype))
            found.append([((b - a).norm() / a.norm() / size).item() ** 2 for a, b in zip(x, self.streams(tokens))])
        for p, w in zip(matrices, weights):
            p.data = w
        return np.mean(found, axis=0), np.std(found, axis=0)

    @functools.cache
    def sharpness(self):
        """The largest eigenvalue of the Hessian, written out."""
        tokens, targets = self.batches[0]
        self.model.train()
        loss = torch_model.cross_entropy(self.model(tokens), targets)
        parameters = list(self.model.parameters())
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
        rows = torch.autograd.grad(gradient, parameters, torch.eye(len(gradient), dtype=gradient.dtype), is_grads_batched=True)
        hessian = torch.cat([row.flatten(1) for row in rows], dim=1).numpy()
        self.model.eval()
        np.testing.assert_allclose(hessian, hessian.T, atol=1e-10)
        return np.linalg.eigvalsh(hessian)[-1]


class Measure(CliTest):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        random = np.random.default_rng(1)
        chain = random.dirichlet(np.full(len(LETTERS), 0.3), len(LETTERS))
        letters = [0]
        while len(letters) < 1400:
            letters.append(random.choice(len(LETTERS), p=chain[letters[-1]]))
        self.write("text.txt", "".join(LETTERS[i] for i in letters))

    def trained(self, name="pre", **train):
        # A high rate moves gains and biases off their start.
        changes = {"model": {**MODEL, **MODELS[name]}, "eval": {"batches": 2},
                   "train": {"steps": 8, "batch_size": BATCH, "lr": 0.03, "warmup_steps": 0, **train}}
        if "n_layer" not in MODELS[name] and isinstance(MODELS[name].get("norm_placement"), list):
            changes["model"]["n_layer"] = len(MODELS[name]["norm_placement"])
        return self.train(name.replace(", ", "-").replace(" ", "-"), changes)

    def measured(self, run, *options, env=None):
        return json.loads(self.normscope("measure", getattr(run, "path", run), "--json", *options, env=env).stdout)

    def differs(self, found, twin, what):
        """By how much what was measured is off, over what it may be."""
        if what == "sharpness":
            value, exact = found["sharpness"]["value"], twin.sharpness()
            return abs(value - exact) / (found["sharpness"]["residual"] + 1e-4 * abs(exact))
        ours = np.array([np.nan if row[what] is None else row[what] for row in found["layers"]])
        if what == "amplification":
            mean, deviation = twin.amplification()
            self.assertEqual(mean[0], 0)
            return np.inf if ours[0] != 0 else (np.abs(ours - mean)[1:] / (4 * deviation[1:] * np.sqrt(1 / 8 + 1 / DRAWS))).max()
        exact = getattr(twin, what)()
        self.assertEqual(np.isnan(ours).tolist(), np.isnan(exact).tolist())
        return np.nanmax(np.abs(ours - exact) / (2e-5 * np.maximum(np.abs(exact), 1)))

    def test_layers(self):
        for name in MODELS:
            run = self.trained(name)
            found, twin = self.measured(run, "--only", ",".join(LAYERS)), Twin(run, 2)
            for what in LAYERS:
                with self.subTest(name, what=what):
                    self.assertLess(self.differs(found, twin, what), 1)
            with self.subTest(name):
                self.assertEqual(found["layers"][-1]["lens"], found["loss"])
                self.assertNotIn("sharpness", found)

    def test_noise_and_curvature(self):
        for name in ("pre", "post, tied", "batchnorm", "peri"):
            run = self.trained(name)
            found, twin = self.measured(run, "--only", "amplification,sharpness"), Twin(run, 1)
            for what in ("amplification", "sharpness"):
                with self.subTest(name, what=what):
                    self.assertLess(self.differs(found, twin, what), 1)
            error = twin.amplification()[1][-1] / np.sqrt(8)
            self.assertTrue(error / 3 < found["amplification_error"] < error * 3)
            self.assertLess(found["sharpness"]["residual"], 1.001e-3 * found["sharpness"]["value"])
            self.assertLess(found["sharpness"]["difference_error"], 1e-3)

    def test_planted_faults_show(self):
        run, unit = self.trained("batchnorm"), "measure/measure.cpp"
        mutant = mutants.build_all(Path(self.folder), [unit], [[(unit, *edit)] for edit in FAULTS.values()])
        with unittest.mock.patch.object(cli, "BINARY", str(mutant)):
            sound, twins = self.measured(run), {batches: Twin(run, batches) for batches in (1, 2)}
            for number, what in enumerate(FAULTS, start=1):
                with self.subTest(what):
                    found = self.measured(run, env=environment(PLANTED_FAULT=str(number)))
                    twin = twins[1 if what in ("amplification", "sharpness") else 2]
                    self.assertLess(self.differs(sound, twin, what), 1)
                    self.assertGreater(self.differs(found, twin, what), 1)

    def test_same_numbers_whatever_the_threads(self):
        run = self.trained("post, tied").path
        one = self.normscope("measure", run, "--threads", "1").stdout
        self.assertEqual(one, self.normscope("measure", run, "--threads", "3").stdout)

    def test_the_loss_is_that_of_evaluation(self):
        run = self.trained(precision="bf16")
        found = self.measured(run, "--batches", "0", "--only", "lens")
        text = Path(self.path("text.txt")).read_text(encoding="utf-8")[-140:]
        self.write("whole.txt", text[:137])  # whole windows
        said = self.normscope("eval", run.path, "--data", "whole.txt").stdout
        self.assertIn(f"\nmodel     {found['loss']:.6f} ", said)
        self.assertEqual(found["loss"], found["layers"][-1]["lens"])
        self.assertEqual(found["loss"], self.measured(run, "--batches", "0", "--only", "lens", "--data", "whole.txt")["loss"])

    def test_what_it_takes(self):
        """A folder, a file, a config's initialisation, another text; parts"""
        run = self.trained()
        found = self.measured(run, "--only", "lens,sharpness")
        self.assertEqual([list(row) for row in found["layers"]], [["layer", "lens"]] * 3)
        self.assertEqual(found, self.measured(run.file("model.safetensors"), "--only", "lens,sharpness"))
        start = self.measured("tiny.json", "--set", "train.seed=2")
        self.assertEqual(start["step"], 0)
        self.normscope("probe", "tiny.json", "--set", "train.seed=2", "--dump", "start.safetensors")
        self.assertEqual({**start, "model": 0}, {**self.measured("start.safetensors"), "model": 0})
        said = self.normscope("measure", run.path).stdout
        self.assertRegex(said, r"(?m)^2 +\d\.\d{4} +\d\.\d{4} +\d\.\d{4} +0\.\d{4} +\d\.\d{4}$")
        self.assertRegex(said, r"(?m)^sharpness \d+(\.\d+)? ± ")
        self.assertEqual(len(self.measured(run, "--data", self.write("two.txt", "ab"))["layers"]), 3)

    def test_refusals(self):
        run = self.trained().path
        self.refused("measure", run, "--only", "lens,rnk", says=("'rnk'", "token_cosine"))
        self.refused("measure", run, "--set", "train.seed=2", says=("--set",))
        self.refused("measure", run, "--data", self.write("x.txt", "abX"), says=("X",))
        self.refused("measure", run, "--data", self.write("x.txt", "a"), says=("1 characters", "2"))
        self.refused("measure", "missing", says=("missing",))
        self.refused("measure", "missing.json", says=("missing.json",))


if __name__ == "__main__":
    unittest.main()
