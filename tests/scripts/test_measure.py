#!/usr/bin/python3
"""scripts/measure.py against PyTorch in float64, which rebuilds the model from its weights: lens, noise in the weights,
the whole Hessian by autograd; measures of streams against values computed by hand. Skipped (exit 77) where PyTorch is
not installed."""

import importlib.util
import json
import math
import os
import re
import sys
import unittest
from types import SimpleNamespace
from unittest import mock

import numpy as np

from cli import TEXT, CliTest, read_safetensors, write_safetensors

if importlib.util.find_spec("torch") is None:
    print("skipped: no PyTorch (apt-get install python3-torch)")
    sys.exit(77)
import torch
import torch_model
from check_with_torch import recompute

import torch_combinations
from lib.base.command import ScriptError
from lib.base.keys import NORMS
from lib.figures import plot_measure
from lib.logs.runs import Run
from lib.model import forward, measures

MODEL = {"n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 12, "context": 8, "tie_embeddings": False,
         "activation": "relu", "init": {"scheme": "xavier_normal", "embed_std": 1}}
MODELS = {
    "pre": {},
    "gelu": {"activation": "gelu"},
    "post_tied": {"norm_placement": "post", "norm": "rmsnorm", "tie_embeddings": True, "activation": "swiglu",
                  "final_norm": True, "norm_eps_outside": True},
    "batchnorm": {"norm": "batchnorm", "position": "rope", "activation": "gelu"},
    "peri": {"norm_placement": "peri", "norm": "groupnorm", "norm_groups": 2},
    "instancenorm": {"norm_placement": "res_post", "norm": "instancenorm", "position": "sinusoidal"},
    "derf": {"norm_placement": "keel", "norm": "derf", "bias": True, "final_norm": True},
    "dyt": {"norm_placement": "sandwich", "norm": "dyt", "activation": "gelu"},
}

torch.set_num_threads(1)  # the models are too small for more


class Twin:
    """A run's weights in PyTorch, in float64, on the batch of an exchange file."""

    def __init__(self, run, tensors):
        self.model, _ = torch_model.load(run.path, torch.float64)
        self.model.train()  # a probe's batch norm takes the batch's statistics
        self.tokens, self.targets = (torch.from_numpy(tensors[name]) for name in ("tokens", "targets"))

    @torch.no_grad()
    def streams(self):
        sites = {}
        self.model(self.tokens, sites)
        return [sites[layer, "stream"] for layer in range(self.model.config["n_layer"] + 1)]

    @torch.no_grad()
    def lens(self):
        decoder = torch_model.TorchDecoder(self.model)
        return [torch_model.cross_entropy(decoder.output(x), self.targets).item() for x in self.streams()]

    def amplification(self, size=1e-7):
        """With the noise that measure.py draws, so small that its square is nothing."""
        weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        arrays, x, values = {name: w.numpy() for name, w in weights.items()}, self.streams(), []
        for draw in range(measures.DRAWS):
            moved = measures.noisy(arrays, draw, size)
            for name, p in self.model.named_parameters():
                p.data = torch.from_numpy(moved[name])
            values.append([((b - a).norm() / a.norm() / size).item() ** 2 for a, b in zip(x, self.streams())])
        for name, p in self.model.named_parameters():
            p.data = weights[name]
        return np.mean(values, axis=0)

    def sharpness(self):
        """The largest eigenvalue of the Hessian, written out."""
        loss = torch_model.cross_entropy(self.model(self.tokens), self.targets)
        parameters = list(self.model.parameters())
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
        rows = torch.autograd.grad(gradient, parameters, torch.eye(len(gradient), dtype=gradient.dtype),
                                   is_grads_batched=True)
        hessian = torch.cat([row.flatten(1) for row in rows], dim=1).numpy()
        return np.linalg.eigvalsh(hessian)[-1]


class Measure(CliTest):
    def trained(self, name):
        # A high rate moves gains and biases off their start.
        return self.train(name, {"model": {**MODEL, **MODELS[name]},
                                 "train": {"steps": 8, "batch_size": 3, "lr": 0.03, "warmup_steps": 0}})

    def exchange(self, run, name):
        done = self.call("probe", run.file("config.json"), "--from", run.file("model.safetensors"), "--dump", name,
                         "--out", name + "-probe")
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.path(name)

    def assert_close(self, ours, exact, tolerance, what):
        self.assertEqual([value is None for value in ours], [value is None for value in exact], what)
        ours, exact = (np.array([value for value in values if value is not None]) for values in (ours, exact))
        self.assertLess(np.max(np.abs(ours - exact) / np.maximum(np.abs(exact), 1e-3)), tolerance, (what, ours, exact))

    def test_lens(self):
        os.chdir(self.folder)
        for name in MODELS:
            run = self.trained(name)
            file = self.exchange(run, f"{name}.safetensors")
            result = measures.measure(measures.Model(file), ["lens"])
            with self.subTest(name):
                self.assert_close([row["lens"] for row in result["layers"]],
                                  Twin(run, read_safetensors(file)[0]).lens(), 1e-3, "lens")
                self.assertAlmostEqual(result["layers"][-1]["lens"], result["loss"], places=4)

    def test_streams(self):
        """Of two sequences of two tokens of 8 features: orthogonal, so of other lengths, and equal; one of four units
        is dead in both."""
        first, second = np.eye(8)[:2]
        streams = [np.array([tokens, np.roll(tokens, 2, axis=1)])
                   for tokens in ((first, second), (3 * first, second), (first, first))]
        hidden = np.array([[[0, 1, 1, 1], [0, 0, 1, 1]], [[0, 1, 0, 1], [0, 1, 0, 1]]])
        model = SimpleNamespace(streams=streams, tensors={"act.1.ffn_hidden": hidden, "act.2.ffn_hidden": hidden})
        for measure, expected in ((measures.rank, [4, math.exp(math.log(8) - 0.75 * math.log(3)), 2]),
                                  (measures.token_cosine, [0, 0, 1]), (measures.kurtosis, [2, 3.28, 4]),
                                  (measures.dead, [None, 0.25, 0.25]), (measures.influence, [None, 0, 0.5])):
            self.assert_close(measure(model), expected, 1e-12, measure.__name__)

    def test_amplification_and_sharpness(self):
        os.chdir(self.folder)
        self.write("text.txt", re.sub("[^a-m ]", "", TEXT))  # few characters make a small Hessian
        for name in ("post_tied", "batchnorm"):
            run = self.trained(name)
            twin = Twin(run, read_safetensors(self.exchange(run, f"{name}.safetensors"))[0])
            result = measures.measure(measures.Model(run.path), ["amplification", "sharpness"])
            with self.subTest(name):
                self.assert_close([row["amplification"] for row in result["layers"]], twin.amplification(), 0.01,
                                  "amplification")
                self.assert_close([result["sharpness"]], [twin.sharpness()], 0.01, "sharpness")

    def test_numpy_and_pytorch_compute_the_same(self):
        for name, model in torch_combinations.combinations().items():
            if not re.fullmatch(r"post \(.*|\w+ (layernorm|none) swiglu|sandwich \w+ relu2", name):
                continue
            with self.subTest(name):
                config = {"model": torch_combinations.BASE | model, "train": {"steps": 1, "batch_size": 2}}
                tensors, metadata = torch_combinations.dump(self.folder, config, name)
                exact, sites = recompute(tensors, metadata), {}
                weights = {name: x.astype(float) for name, x in torch_combinations.parameters(tensors).items()}
                decoder = forward.Decoder(np, json.loads(metadata["config"]), weights)
                decoder.logits(tensors["tokens"], lambda layer, site, x: sites.update({f"act.{layer}.{site}": x}))
                self.assertEqual(sites.keys(), {name for name in exact if name.startswith("act.")})
                for site, x in sites.items():
                    self.assertLess(np.abs(x - exact[site]).max() / np.abs(exact[site]).max(), 1e-7, site)

    def test_a_name_without_an_equation_is_refused(self):
        """A new norm whose row says that it has statistics over features, as layernorm; and a new activation."""
        run = self.trained("gelu")
        for key, name in (("norm", "layernorm"), ("activation", "gelu")):
            model = measures.Model(run.path)
            model.config["model"][key] = "made_up"
            says = rf"\[model\] {key}: 'made_up' has no equation in scripts/lib/model/forward.py; expected one of .*{name}"
            with mock.patch.dict(NORMS, made_up=NORMS["layernorm"]), self.assertRaisesRegex(ScriptError, says):
                measures.freeze(model)
            with mock.patch.dict(NORMS, made_up=NORMS["layernorm"]), self.assertRaisesRegex(ScriptError, says):
                torch_model.Transformer(model.config, model.weights)(torch.zeros(1, 2, dtype=int))

    def test_what_it_takes_and_prints(self):
        run = self.trained("pre")
        models = (self.exchange(run, "pass.safetensors"), run.path, run.file("model.safetensors"),
                  run.file("checkpoint.safetensors"))
        only = ("--only", "lens", "--only", "dead", "--json")
        result, *others = (json.loads(self.script("measure.py", model, *only).stdout) for model in models)
        self.assertEqual([list(row) for row in result["layers"]], [["layer", "lens", "dead"]] * 3)
        self.assertEqual(others, [result] * 3)
        frozen = json.loads(self.script("measure.py", run.path, "--freeze", "--json").stdout)
        self.assertEqual(list(frozen["norms"]),
                         [f"blocks.{b}.{part}_norm" for b in (0, 1) for part in ("attn", "ffn")] + ["final_norm"])
        single = self.config({"model": {**MODEL, "context": 1}}, "single.json")
        self.normscope("probe", single, "--out", "p", "--dump", "one.safetensors")
        for model, arguments, printed in (
                (run.path, "--only influence --only sharpness",
                 r"\A.*: loss \d\.\d{4}\nlayer +influence\n0\n1 +0\.\d+\n2 +0\.\d+\nno sharpness: .*ReLU"),
                (run.path, "--freeze", r"\A.*: loss \d\.\d{4} on 592 .*\nfrozen norm .*\n"
                 r"blocks.0.attn_norm +\d[^\n]+\n(.*\n){3}final_norm .*\nall "),
                (self.trained("gelu").path, "--only sharpness", r"\nsharpness \d+\.\d+: .* above 0\.\d+\n\Z"),
                ("one.safetensors", "--only token_cosine --only rank",  # a single token has no cosine
                 r"\nlayer +rank +token_cosine\n0 +\d\S*\n")):
            self.assertRegex(self.script("measure.py", model, *arguments.split()).stdout, printed)

    def test_kept_weights(self):
        """A table, CSV and a picture of the weights of several steps; the newest weights are still those of the run."""
        run = self.trained("gelu")
        os.mkdir(run.file("weights"))
        for step in (8, 16, 2):
            tensors, metadata = read_safetensors(run.file("model.safetensors"))
            tensors["embed.token.weight"] *= step
            write_safetensors(run.file(f"weights/step_{step}.safetensors"), tensors,
                              {**{key: metadata[key] for key in ("config", "vocab", "corpus")}, "step": str(step)})
        self.assertIn("step_2.safetensors, step 2", torch_model.load(run.file("weights/step_2.safetensors"))[0].source)
        kept = plot_measure.Kept(Run(run.path), "rank")
        self.assertEqual([*kept.steps], [2, 8, 16])
        model = measures.Model(run.file("weights/step_8.safetensors"))
        rows = [row["rank"] for row in measures.measure(model, ["rank"])["layers"]]
        self.assertEqual(kept.value[1].tolist(), rows)
        for form, layers, split in (([], [2], str.split), (["--csv"], [0, 1, 2], lambda line: line.split(","))):
            lines = self.script("measure.py", run.path, "--steps", "--only", "rank", *form).stdout.splitlines()
            self.assertEqual([split(line) for line in lines[1:]],
                             [[str(step), str(layer), f"{kept.value[i, layer]:.5g}"]
                              for i, step in enumerate(kept.steps) for layer in layers])
        self.assertIn("step 16:", self.script("measure.py", run.path, "--step", "16", "--only", "dead").stdout)
        self.assertIn("model.safetensors, step 8:", self.script("measure.py", run.path, "--only", "dead").stdout)
        self.script("plot.py", "measure", run.path, "--metric", "dead", "-o", "dead.svg")
        self.assertRegex(self.script("measure.py", run.path, "--step", "4", code=2).stderr,
                         r"keeps no weights of step 4; it has those of steps 2, 8, 16\n\Z")

    def test_a_stream_of_zeros_gives_null_and_no_warning(self):
        config = self.config({"model": {**MODEL, "position": "none",
                                        "init": {"scheme": "xavier_normal", "embed_std": 0}}})
        self.normscope("probe", config, "--out", "probe", "--dump", "zeros.safetensors")
        output = self.script("measure.py", "zeros.safetensors", "--json").stdout
        rows = json.loads(output, parse_constant=lambda name: self.fail(f"{name} is no JSON"))["layers"]
        self.assertEqual([rows[0][name] for name in ("token_cosine", "kurtosis", "amplification")], [None] * 3)

    def test_refusals_are_one_line(self):
        run, dyt = self.trained("pre").path, self.trained("dyt").path
        tensors, metadata = read_safetensors(self.exchange(self.trained("gelu"), "pass.safetensors"))
        unchecked = {key: value for key, value in metadata.items() if key != "checksum"}
        short = self.train("short", {"model": {**MODEL, "context": 16}, "data": {"val_fraction": 0.002}}).path
        write_safetensors(self.path("bare.safetensors"), {"x": np.zeros(1)})
        nest = "[" * 200_000
        self.write("nested.safetensors", len(nest).to_bytes(8, "little") + nest.encode())
        write_safetensors(self.path("nest.safetensors"), {"x": np.zeros(1)}, {"config": nest})
        other = {**tensors, "final_norm.weight": 2 * tensors["final_norm.weight"]}
        write_safetensors(self.path("other.safetensors"), other, unchecked)
        write_safetensors(self.path("damaged.safetensors"), other, metadata)  # whose checksum is that of other data
        for arguments, code, says in (
                (["missing"], 1, "missing: No such file"), (["text.txt"], 1, "text.txt: "),
                (["bare.safetensors"], 1, "bare.safetensors: no config in its metadata; expected a run"),
                (["nested.safetensors"], 1, "nested.safetensors: damaged header: maximum recursion"),
                (["nest.safetensors"], 1, "nest.safetensors: no config in its metadata"),
                (["other.safetensors", "--only", "lens"], 1, "no lens of layernorm: got "),
                (["damaged.safetensors", "--only", "rank"], 1, "damaged.safetensors: the checksum of the data does not"),
                ([dyt, "--freeze"], 2, "dyt divides no token"),
                ([run, "--freeze", "--only", "lens"], 2, "leave --only, "),
                ([short, "--freeze"], 1, "its validation text has 12 characters; expected more than 16")):
            self.assertRegex(self.script("measure.py", *arguments, code=code).stderr,
                             rf"\A\[(measure|safetensors)\] .*{says}.*\n\Z")

    def test_a_text_that_has_changed_is_refused(self):
        """By every script that reads a run's text, with as many characters as before and with others."""
        run = self.train("run", {"model": {"d_model": 64}, "train": {"steps": 2}})
        known, readers = run.summary["corpus_hash"], (
            ("measure.py", run.path, "--only", "lens"), ("measure.py", run.path, "--freeze"),
            ("predict.py", run.file("config.json")), ("predict.py", run.path),
            ("predict.py", "tiny.json", "--against", run.path),
            ("plot.py", "layers", run.path, "--theory", "-o", "theory.svg"))
        for name, *arguments in readers:
            self.script(name, *arguments)
        parts = {"path": ["text.txt", "more.txt"], "val_path": "held.txt"}
        for name in ("more.txt", "held.txt"):
            self.write(name, "\ufeff" + TEXT[:900])
        parted = self.train("parted", {"data": parts, "train": {"steps": 2}})
        self.script("measure.py", parted.path, "--freeze")
        self.config({"model": {"d_model": 64}, "train": {"steps": 2}})
        for text in (TEXT.replace("e", "\N{LATIN SMALL LETTER E WITH ACUTE}"), TEXT + "ab\N{SNOWMAN}"):
            self.write("text.txt", text)
            for name, *arguments in readers:
                message = self.script(name, *arguments, code=1).stderr
                self.assertRegex(message, rf"\A\[\w+\] \S+: its text is another one than \S*text\.txt \(hash {known} -> "
                                 r"\w{16}\); restore it\n\Z")


if __name__ == "__main__":
    unittest.main()
