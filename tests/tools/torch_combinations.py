"""Every legal placement x norm x activation against PyTorch, for test_with_torch.py: a tiny model of each, with every
gain, bias and scale moved off its start, through `normscope probe`; its dump is recomputed in float64 by
check_with_torch.py.
"""

import json
import os
import subprocess
import tempfile
import zlib

import numpy as np
import torch
from cli import BINARY, ROOT

from check_with_torch import MEASURED, PLAIN, differences, recompute
from lib.logs import safetensors_io
from lib.base.keys import NORMS, PLACED, PLACEMENTS, fields

ACTIVATIONS = fields()["model.activation"]["enum"]
# With the other placements `norm` resolves to none.
WITHOUT_NORMS = [name for name, row in PLACEMENTS.items()
                 if not any(row[norm] for norm in ("norm_in", "norm_branch", "norm_out"))]

# Wide and long enough that no norm's variance is by chance near 0: there float32 says nothing of the formula.
BASE = {"n_layer": 3, "n_head": 2, "d_model": 16, "d_ff": 24, "context": 8, "norm_groups": 2,
        "init": {"scheme": "xavier_normal", "embed_std": 1.0}}
SEQUENCES = 4
LIMIT = 1e-4  # of the largest error
# Without norms a stream of unit size grows from block to block until attention is one-hot, and a rounding error of
# float32 decides where; a smaller one keeps the model smooth.
SMALL_STREAM = {"init": {"scheme": "xavier_normal", "embed_std": 0.3}}


def combinations():
    """{name: model section} of the product."""
    rows = {}
    for placement in PLACED:
        for norm in ("none",) if placement in WITHOUT_NORMS else NORMS:
            for activation in ACTIVATIONS:
                model = {"norm_placement": placement, "norm": norm, "activation": activation}
                rows[f"{placement} {norm} {activation}"] = {**BASE, **model, **(SMALL_STREAM if norm == "none" else {})}
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
    command = [BINARY, "probe", "config.json", "--out", "probe", "--overwrite", *options]
    result = subprocess.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"},
                            capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"normscope {' '.join(command[1:])}: {result.stderr.strip()}")


def badness(error):
    """The key by which errors are sorted: a NaN is the worst."""
    return np.inf if np.isnan(error) else error


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


def worst_of(folder, name, model, spoil=None):
    """(error, limit, tensor) of one combination: the largest error, LIMIT or what PyTorch's own float32 explains (a
    stream that no norm tames grows until rounding shows), and where the error is. spoil(tensors, config) may change
    what the engine is said to have computed, so that a test can see it caught."""
    tensors, metadata = dump(folder, {"model": model, "train": {"steps": 1, "batch_size": SEQUENCES}}, name)
    if spoil:
        config = json.loads(metadata["config"])
        spoil(tensors, config)
        metadata["config"] = json.dumps(config)
    exact = recompute(tensors, metadata)
    errors = differences(tensors, exact)
    tensor = max(errors, key=lambda key: badness(errors[key]))
    limit = LIMIT
    if not errors[tensor] <= LIMIT:
        limit = max(LIMIT, 3 * max(differences(recompute(tensors, metadata, torch.float32), exact).values()))
    return errors[tensor], limit, tensor


def check(rows, spoil=None):
    """{name: (error, limit, tensor)} of {name: model section}."""
    with tempfile.TemporaryDirectory(prefix="normscope-torch-") as folder:
        return {name: worst_of(folder, name, model, spoil) for name, model in rows.items()}
