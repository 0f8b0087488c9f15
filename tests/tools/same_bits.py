#!/usr/bin/python3
"""Whether two binaries train to the same bits: tests/tools/same_bits.py OLD NEW. For changes that should not change any
number.

Ten short runs, each at 1 and 2 threads: trajectory hash and the tensors of the final model, binary against binary and
thread count against thread count. Exit code 1 if any differ.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from cli import ROOT, merged, read_safetensors

BASE = {
    "model": {"n_layer": 3, "n_head": 4, "d_model": 64, "context": 48, "tie_embeddings": False,
              "init": {"scheme": "xavier_normal", "embed_std": 1}},
    "train": {"steps": 12, "batch_size": 12, "lr": 0.002},
    "eval": {"every": 6, "batches": 2},
    "log": {"every": 1, "layers_every": 3},
}
# Large enough for several panels and split products; d_ff odd where nothing forbids it.
RUNS = {
    "pre layernorm": {},
    "post rmsnorm": {"model": {"norm_placement": "post", "norm": "rmsnorm", "activation": "relu", "d_ff": 201}},
    "sandwich groupnorm": {"model": {"norm_placement": "sandwich", "norm": "groupnorm", "bias": True}},
    "deepnorm": {"model": {"norm_placement": "deepnorm", "activation": "gelu_tanh", "position": "sinusoidal"}},
    "batchnorm": {"model": {"norm": "batchnorm", "norm_placement": "res_post"}},
    "dyt": {"model": {"norm": "dyt", "activation": "silu", "tie_embeddings": True, "init": {"embed_std": 0.1}}},
    "rope swiglu qk_norm": {"model": {"position": "rope", "activation": "swiglu", "qk_norm": True, "d_model": 192}},
    "dropout grad_accum": {"model": {"dropout": 0.2}, "train": {"grad_accum": 3, "batch_size": 4}},
    "bf16": {"model": {"d_model": 128}, "train": {"precision": "bf16", "optimizer": "sgd", "momentum": 0.9}},
    "bf16 swiglu rope": {"model": {"norm_placement": "peri", "activation": "swiglu", "position": "rope", "d_ff": 171},
                         "train": {"precision": "bf16", "grad_accum": 2}},
}


def result(binary, folder, threads):
    """Trajectory hash and a hash of the model's tensors."""
    # binaries of other versions may refuse each other's folders
    out = os.path.join(tempfile.mkdtemp(dir=folder), "run")
    command = [binary, "train", os.path.join(folder, "config.json"), "--out", out, "--overwrite", "--quiet",
               "--threads", str(threads)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        trajectory = json.load(file)["trajectory_hash"]
    tensors, _ = read_safetensors(os.path.join(out, "model.safetensors"))  # metadata names versions
    data = b"".join(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.tobytes()
                    for name, tensor in sorted(tensors.items()))
    return trajectory, hashlib.sha256(data).hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", metavar="BINARY", nargs="+", help="build/normscope and an earlier one")
    binaries = [os.path.abspath(binary) for binary in parser.parse_args().binaries]
    differing = 0
    for name, changes in RUNS.items():
        config = merged(merged(BASE, changes),
                        {"data": {"path": os.path.join(ROOT, "data", "austen.txt"), "val_fraction": 0.01}})
        with tempfile.TemporaryDirectory(prefix="normscope-bits-") as folder:
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
            results = {(binary, threads): result(binary, folder, threads) for binary in binaries for threads in (1, 2)}
        same = len(set(results.values())) == 1
        differing += not same
        print(f"{'same' if same else 'DIFFERS':8}{name:22}" + " ".join(results[binaries[0], 1]), flush=True)
        for (binary, threads), bits in results.items() if not same else ():
            print(f"        {binary}, threads {threads}: {' '.join(bits)}")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
