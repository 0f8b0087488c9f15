#!/usr/bin/env python3
"""normscope's model in PyTorch: its parameter names and measured sites, by the equations of lib/model/forward.py.

    import torch_model
    model, vocab = torch_model.load("runs/quickstart/pre")  # a run folder or a safetensors file

As a script it loads a model and prints its size and kind. B batch, T context, V vocabulary. Dropout is
left out, because nothing here trains. Of a file's checksum only the header's half is verified; `normscope eval`
verifies the data too.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.system_python import restart

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as import_error:
    advice = f"install python3-torch, or give the script to a Python that has it: /path/to/python {sys.argv[0]} ..."
    restart(import_error, advice, topic="torch")

from lib.base.command import Parser, main, printable
from lib.base.keys import require_every_key
from lib.logs import run_weights, safetensors_io
from lib.model.forward import Decoder


class Transformer(nn.Module):
    """The decoder of a resolved config (or of its `model` section) with copies of the weights {name: array or tensor},
    which say what parameters there are; those called running_ are buffers. `branch_progress`: s/T at step s of a run
    with train.branch_warmup_steps = T."""

    def __init__(self, config, weights, branch_progress=math.inf):
        super().__init__()
        self.config = config.get("model", config)
        self.branch_progress = branch_progress
        for name, tensor in weights.items():
            *path, last = name.split(".")
            module = self
            for part in path:  # blocks.0.attn: modules within modules, which give the parameter its name
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = getattr(module, part)
            if last.startswith("running_"):
                module.register_buffer(last, torch.as_tensor(tensor).clone())
            else:
                module.register_parameter(last, nn.Parameter(torch.as_tensor(tensor).clone()))

    def forward(self, tokens, sites=None):
        """Logits (B, T, V) of tokens (B, T). A dict given as `sites` receives {(layer, site): tensor}, blocks
        numbered from 1, each tensor keeping its gradient."""

        def tap(layer, site, tensor):
            if sites is not None:
                sites[layer, site] = tensor
                if tensor.requires_grad:
                    tensor.retain_grad()

        return TorchDecoder(self).logits(tokens, tap)


class TorchDecoder(Decoder):
    """The Decoder of a Transformer. Batch norm keeps running moments while it trains, and uses them in evaluation."""

    def __init__(self, module):
        weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        super().__init__(torch, module.config, weights, module.branch_progress)
        self.training = module.training

    def feature_moments(self, name, x):
        running = [self.weights[f"{name}.{part}"] for part in ("running_mean", "running_var")]
        if not self.training:
            return running
        mean, square = super().feature_moments(name, x)
        count = x.shape[0] * x.shape[1]
        for kept, moment in zip(running, (mean, square * count / (count - 1))):  # the unbiased variance
            kept.lerp_(moment.detach().flatten(), 0.1)
        return mean, square


def cross_entropy(logits, targets):
    """The cross-entropy of logits (B, T, V) and targets (B, T) in nats, its mean over characters."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure(model, tokens, targets):
    """The tensors of an exchange file, all but the parameters, from one forward and backward pass over tokens (B,
    T)."""
    sites = {}
    model.zero_grad()
    logits = model(tokens, sites)
    loss = cross_entropy(logits, targets)
    loss.backward()
    tensors = {"tokens": tokens, "targets": targets, "logits": logits, "loss": loss.reshape(1)}
    tensors.update({f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()})
    tensors.update({f"act.{layer}.{site}": tensor for (layer, site), tensor in sites.items()})
    tensors.update({f"act_grad.{layer}.{site}": tensor.grad for (layer, site), tensor in sites.items()})
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def load(path, dtype=torch.float32):
    """The model of a safetensors file, or of the newest weights in a run folder (lib/logs/run_weights.py), ready for
    evaluation, and its vocabulary, a list of code points. model.source says which file and step."""
    file, tensors, metadata = run_weights.newest_weights(path)
    config = require_every_key(safetensors_io.parsed(file, metadata, "config"), file)
    vocab = safetensors_io.parsed(file, metadata, "vocab", list)
    model = Transformer(config, run_weights.weights_among(tensors), run_weights.branch_progress(config, metadata))
    model.source = f"{file}, step {metadata.get('step', 'unknown')}"
    return model.to(dtype).eval(), vocab


def run():
    """Reads the command line, loads the model and prints its size and kind."""
    parser = Parser("torch", "Load a normscope model into PyTorch and print its size and kind.")
    parser.add_argument("model", metavar="RUN_OR_FILE", help="a run folder or a safetensors file of weights")
    arguments = parser.parse_args()
    model, vocab = load(arguments.model)
    count = sum(parameter.numel() for parameter in model.parameters())
    placement = model.config["norm_placement"]
    placement = placement if isinstance(placement, str) else json.dumps(placement)
    norm, blocks = model.config["norm"], model.config["n_layer"]
    print(f"{count} parameters, {blocks} blocks, {placement}, {norm}, {len(vocab)} characters")
    print(f"weights of {printable(model.source)}")


if __name__ == "__main__":
    main(run, "torch")
