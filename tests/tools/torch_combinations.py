"""Every legal placement x norm x activation, and exchange files by `normscope probe` of models whose gains, biases and
scales are all moved off their start, for comparisons with PyTorch.
"""

import json
import os
import subprocess
import tempfile
import zlib

import numpy as np
from cli import BINARY, ROOT

from check_with_torch import MEASURED, PLAIN
from lib.logs import safetensors_io
from lib.base.keys import NORMS, PLACED, PLACEMENTS, fields

ACTIVATIONS = fields()["model.activation"]["enum"]
# With the other placements `norm` resolves to none.
WITHOUT_NORMS = [name for name, row in PLACEMENTS.items()
                 if not any(row[norm] for norm in ("norm_in", "norm_branch", "norm_out"))]

# Wide and long enough that no norm's variance is by chance near 0: there float32 says nothing of the formula.
BASE = {"n_layer": 3, "n_head": 2, "d_model": 16, "d_ff": 24, "context": 8, "norm_groups": 2,
        "init": {"scheme": "xavier_normal", "embed_std": 1.0}}


def combinations():
    """{name: keys of the model section} of the product."""
    rows = {}
    for placement in PLACED:
        for norm in ("none",) if placement in WITHOUT_NORMS else NORMS:
            for activation in ACTIVATIONS:
                rows[f"{placement} {norm} {activation}"] = {"norm_placement": placement, "norm": norm,
                                                            "activation": activation}
    return rows


def parameters(tensors):
    """The model's parameters in an exchange file."""
    return {name: t for name, t in tensors.items() if not name.startswith(MEASURED) and name not in PLAIN}


def move_vectors(tensors, name):
    """The parameters of an exchange file, every 1-D one moved by N(0, 0.3): a backward that is right only at a gain
    of 1 or a bias of 0 shows. Running statistics are no parameters and stay."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    moved = parameters(tensors)
    for tensor_name, tensor in moved.items():
        if tensor.ndim == 1 and "running" not in tensor_name:
            moved[tensor_name] = tensor + (0.3 * random.standard_normal(tensor.shape)).astype(np.float32)
    return moved


def probe(folder, *options):
    """RuntimeError: the config is refused. A pass that is not finite has its exchange file too."""
    command = [BINARY, "probe", "config.json", "--out", "probe", "--overwrite", *options]
    result = subprocess.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"},
                            capture_output=True, text=True, check=False)
    if result.returncode not in (0, 3):
        raise RuntimeError(f"normscope {' '.join(command[1:])}: {result.stderr.strip()}")


def dump_from(folder, weights):
    """The exchange file of the folder's config at these weights: tensors and metadata."""
    start, out = (os.path.join(folder, f"{file}.safetensors") for file in ("start", "out"))
    safetensors_io.write(start, weights, {"format": "pt"})
    probe(folder, "--from", start, "--dump", out)
    return safetensors_io.read(out)


def dump(folder, config, name):
    """The same of a config's own weights, its vectors moved, at the beginning of the text: to read all of it takes
    longer."""
    with open(os.path.join(ROOT, "data", "austen.txt"), encoding="utf-8") as text:
        beginning = text.read(6000)
    config = {**config, "data": {"path": "text.txt"}}
    for file_name, content in (("text.txt", beginning), ("config.json", json.dumps(config))):
        with open(os.path.join(folder, file_name), "w", encoding="utf-8") as file:
            file.write(content)
    first = os.path.join(folder, "first.safetensors")
    probe(folder, "--dump", first)
    return dump_from(folder, move_vectors(safetensors_io.read(first)[0], name))
