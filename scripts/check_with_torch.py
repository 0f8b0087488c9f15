#!/usr/bin/env python3
"""Recomputes exchange files of `normscope probe --dump` in PyTorch (float64) and prints the largest differences.

a is the file's tensor, b PyTorch's. Activations, logits and loss: ||a - b|| / ||b||. Gradients: ||a - b|| / max(||b||,
0.03 * the largest ||b|| of gradients of their kind: of parameters, or of sites), since a gradient that is 0 in theory
has no relative error. The file's tensors are float32, so errors of 1e-4 are allowed. Exit code 1 if one is larger, or a
tensor is missing, superfluous or of another shape.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from torch_model import Transformer, measure  # first: it says where torch is to be had

from lib.base.command import Parser, ScriptError, main, printable
from lib.logs import np, run_weights, safetensors_io

import torch

MEASURED = ("grad.", "act.", "act_grad.")  # prefixes of computed tensors; other names are weights, or in PLAIN
WORST = 8  # tensors shown
PLAIN = ("tokens", "targets", "logits", "loss")


def recompute(tensors, metadata, dtype=torch.float64):
    """The file's other tensors as PyTorch computes them from its parameters, tokens and targets. ValueError: no
    exchange file."""
    missing = [name for name in PLAIN if name not in tensors] + [k for k in ("config", "vocab") if k not in metadata]
    if missing:
        raise ValueError(f"not an exchange file: no {', '.join(missing)}")
    config = safetensors_io.parsed("the file", metadata, "config")
    if config["train"].get("precision") == "bf16":
        raise ValueError("its products have operands rounded to bf16, which are not here; dump with --set "
                         "train.precision=fp32")
    model = Transformer(config, run_weights.weights_among(tensors), run_weights.branch_progress(config, metadata))
    return measure(model.to(dtype), torch.from_numpy(tensors["tokens"]), torch.from_numpy(tensors["targets"]))


def differences(given, expected):
    """{name: error}; the error is infinite if a tensor is missing, unexpected or of another shape."""
    norms = {name: np.linalg.norm(tensor) for name, tensor in expected.items()}
    errors = {name: np.inf for name in given if name.startswith(MEASURED) and name not in expected}
    for name in expected:
        if name not in given or given[name].shape != expected[name].shape:
            errors[name] = np.inf
            continue
        kind = name.split(".")[0]
        alike = [norm for other, norm in norms.items() if other.startswith(f"{kind}.")] if "grad" in kind else [0.0]
        scale = max(norms[name], 0.03 * max(alike))
        distance = np.linalg.norm(given[name].astype(np.float64) - expected[name])
        with np.errstate(divide="ignore"):  # infinite if the scale is 0
            errors[name] = 0.0 if distance == 0.0 else np.divide(distance, scale)
    return errors


def report(path, errors, tolerance):
    """Prints the worst tensors of a file, NaNs first. Returns whether all are within tolerance; a NaN is not."""
    order = sorted(errors, key=lambda name: np.inf if np.isnan(errors[name]) else errors[name], reverse=True)
    bad = [name for name in order if not errors[name] <= tolerance]
    print(f"{printable(path)}: {len(errors)} tensors, {len(bad)} above {tolerance:g}")
    for name in order[:WORST]:
        print(f"  {errors[name]:9.2e}  {printable(name)}{'   <-- FAILS' if name in bad else ''}")
    return not bad


def run():
    """Reads the command line and reports on each file. Returns the exit code."""
    parser = Parser("torch", __doc__)
    parser.add_argument("files", metavar="FILE", nargs="+", help="an exchange file")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="largest error allowed (default: %(default)g)")
    arguments = parser.parse_args()
    good = True
    for path in arguments.files:
        try:
            tensors, metadata = safetensors_io.read(path)
            errors = differences(tensors, recompute(tensors, metadata))
            good &= report(path, errors, arguments.tolerance)
        except (ScriptError, OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            print(printable(f"[torch] {path}: {' '.join(str(error).split())}"), file=sys.stderr)
            good = False
    return 0 if good else 1


if __name__ == "__main__":
    main(run, "torch")
