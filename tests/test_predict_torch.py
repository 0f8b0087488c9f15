#!/usr/bin/python3
"""`normscope predict --against` a PyTorch model with weights of its own: a sound one is as predicted, and of one with a
planted fault it names the place. Skipped (exit 77) where PyTorch is not installed."""

import importlib.util
import json
import math
import os
import re
import sys
import textwrap
import types
import unittest
from unittest import mock

from cli import ROOT, CliTest

if importlib.util.find_spec("torch") is None:
    print("skipped: no PyTorch (apt-get install python3-torch)")
    sys.exit(77)
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from lib import safetensors_io
import torch
import torch_model
from lib.keys import completed

CORPUS = os.path.join(ROOT, "data", "austen.txt")
MODEL = {"n_layer": 6, "n_head": 4, "d_model": 64, "d_ff": 256, "context": 32, "activation": "relu", "tie_embeddings": False,
         "init": {"scheme": "xavier_normal", "embed_std": 1}}
GPT2 = {"init": {"scheme": "gpt2", "std": 0.02, "embed_std": 0.02, "residual_scaling": True}, "norm_eps": 1e-2}
BATCH = 16


class Against(CliTest):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        torch.manual_seed(1)
        with open(CORPUS, encoding="utf-8") as file:
            text = file.read()
        vocab = sorted(set(text))
        self.vocab_size, ids = len(vocab), {c: i for i, c in enumerate(vocab)}
        starts = torch.randint(0, len(text) // 2, (BATCH,)).tolist()
        windows = torch.tensor([[ids[c] for c in text[i:i + MODEL["context"] + 1]] for i in starts])
        self.tokens, self.targets = windows[:, :-1], windows[:, 1:]

    def model(self, **changes):
        """The PyTorch twin of a config, which is written as tiny.json, with fresh weights of PyTorch's."""
        self.config({"model": {**MODEL, **changes}, "data": {"path": CORPUS}})
        config = completed(json.loads(self.normscope("config", "tiny.json").stdout)["model"])
        model, init = torch_model.Transformer(config, self.vocab_size), config["init"]
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            fan_out, fan_in = parameter.shape
            std = init["std"] if init["scheme"] == "gpt2" else math.sqrt(2 / (fan_in + fan_out // (3 if "qkv" in name else 1)))
            if init["residual_scaling"] and name.endswith(".out.weight"):
                std /= math.sqrt(2 * config["n_layer"])
            torch.nn.init.normal_(parameter, std=init["embed_std"] if name.startswith("embed.") else std)
        return model

    def against(self, model, code):
        """What `predict --against` says of it: (the line of the first to leave, all)."""
        tensors = torch_model.measure(model, self.tokens, self.targets)
        safetensors_io.write(self.path("mine.safetensors"), {k: v for k, v in tensors.items() if k.startswith("act")})
        said = self.normscope("predict", "tiny.json", "--against", "mine.safetensors", code=code).stdout
        return said.splitlines()[-1], said

    def test_sound_models(self):
        for changes in ({}, {"norm_placement": "post", "norm": "rmsnorm"}, {"norm_placement": "peri", "activation": "gelu"}, GPT2):
            with self.subTest(changes):
                self.assertEqual(self.against(self.model(**changes), 0)[0], "all sites are as predicted")

    def test_wrong_residual_scale(self):
        model = self.model()
        block = model.blocks[3]
        sublayer = block.sublayer

        def scaled(name, F, x, block_input):  # x * sqrt(1/2) + F(N(x)) in the attention of block 4
            return sublayer(name, F, x, block_input) - (1 - math.sqrt(0.5)) * x if name == "attn" else sublayer(name, F, x, block_input)

        block.sublayer = scaled
        line, said = self.against(model, 1)
        self.assertRegex(line, r"^first to leave: the activation at block 4's stream_mid, 0\.7\d* of the prediction;")
        self.assertRegex(said, r"(?m)^3 .*1\.0\d")
        self.assertNotRegex(said.split("gradients")[0], r"(?m)^[0-3] .*!")
        self.normscope("predict", "tiny.json", "--against", "mine.safetensors", "--tolerance", "1")

    def test_missing_final_norm(self):
        model = self.model()
        model.final_norm = torch.nn.Identity()
        self.assertIn("the activation at the head's final, ", self.against(model, 1)[0])

    def test_epsilon_outside_the_root(self):
        model = self.model(**GPT2)
        for module in model.modules():
            if isinstance(module, torch_model.Norm):
                module.eps_outside = True
        self.assertIn("the activation at block 1's attn_in, ", self.against(model, 1)[0])

    def test_wrong_gradient(self):
        model = self.model()
        model.blocks[2].register_full_backward_hook(lambda module, inputs, outputs: (2 * inputs[0], *inputs[1:]))
        line, said = self.against(model, 1)
        self.assertIn("first to leave: the gradient at block 2's stream, ", line)
        self.assertNotIn("!", said.split("gradients")[0])

    def test_lines_of_the_help(self):
        """The lines of PyTorch that --help shows write a file that --against reads"""
        lines = re.search(r"(?s)From PyTorch:\n\n(.*?)\n\n", self.normscope("predict", "--help").stdout)[1]
        twin = self.model()
        for block in twin.blocks:
            block.ffn.register_forward_hook = block.ffn["out"].register_forward_hook
        written = types.SimpleNamespace(save_file=lambda tensors, path: safetensors_io.write(
            self.path(path), {name: tensor.detach().numpy() for name, tensor in tensors.items()}))
        fake = types.SimpleNamespace(torch=written)
        with mock.patch.dict(sys.modules, {"safetensors": fake, "safetensors.torch": written}):
            exec(textwrap.dedent(lines), {"model": twin, "tokens": self.tokens, "targets": self.targets,
                                          "loss": torch_model.cross_entropy, "safetensors": fake})
        said = self.normscope("predict", "tiny.json", "--against", "mine.safetensors").stdout
        self.assertRegex(said, r"(?m)^6 +1\.0")
        self.assertEqual(len(said.split("gradients")[0].split("\n")[2].split()), 4)  # layer and three sites

    def test_probe_and_run(self):
        self.model(norm_placement="post")
        self.normscope("probe", "tiny.json", "--seeds", "3", "--out", "probe")
        self.assertIn("as predicted", self.normscope("predict", "tiny.json", "--against", "probe").stdout)
        self.assertIn("as predicted", self.normscope("predict", "tiny.json", "--against", "probe/seed-2").stdout)
        wrong = self.normscope("predict", "tiny.json", "--set", "model.norm_placement=pre", "--against", "probe", code=1).stdout
        self.assertIn("first to leave: the activation at block 1's attn_in, 1.41 of", wrong)
        self.normscope("train", "tiny.json", "--set", "train.steps=2", "--set", "log.layers_every=1", "--out", "run")
        self.assertIn("as predicted", self.normscope("predict", "tiny.json", "--against", "run").stdout)
        self.normscope("train", "tiny.json", "--set", "train.steps=2", "--set", "model.dropout=0.1", "--out", "drop")
        self.refused("predict", "tiny.json", "--against", "drop", says=("dropout",))
        self.refused("predict", "tiny.json", "--set", "model.context=16", "--against", "probe", says=("context",))
        self.refused("predict", "tiny.json", "--against", "missing.safetensors", says=("missing.safetensors",))
        safetensors_io.write(self.path("other.safetensors"), {"act.1.other": torch.zeros(2, 32, 4).numpy()})
        self.refused("predict", "tiny.json", "--against", "other.safetensors", says=("act.1.stream",))
        safetensors_io.write(self.path("flat.safetensors"), {"act.1.stream": torch.zeros(64, 4).numpy()})
        self.refused("predict", "tiny.json", "--against", "flat.safetensors", says=("(64, 4)", "T = 32"))


if __name__ == "__main__":
    unittest.main()
