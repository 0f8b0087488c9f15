#!/usr/bin/python3
"""normscope against PyTorch on the same cores: training steps of the same shapes, timed in one run.

    scripts/bench_peers.py --python ~/torch/bin/python    # a python that has torch, if this one has not

For each shape, float32 and bf16, and each number of threads: `normscope bench`, PyTorch eager and PyTorch compiled take
turns, each in a process of its own; medians over the rounds. PyTorch's side is lib/model/torch_peer.py, in the form of
attention that a short trial finds faster. Memory is the peak of whole processes, PyTorch's libraries included.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import ROOT, Parser, program

BINARY = program()
PEER = ROOT / "scripts" / "lib" / "model" / "torch_peer.py"
PRECISIONS = ("fp32", "bf16")
ATTENTIONS = ("fused", "written_out")
TRIAL_STEPS = 7
# The environment without the users' settings for an OpenMP or BLAS, each of which would change one side only.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_"))}


@dataclass(frozen=True)
class Shape:
    """The letters L, H, C, T and B, and how many steps are measured."""
    blocks: int
    heads: int
    width: int
    context: int
    batch: int
    steps: int

    def __str__(self):
        return f"L {self.blocks}, H {self.heads}, C {self.width}, T {self.context}, B {self.batch}"

    def config(self, precision):
        return {"model": {"n_layer": self.blocks, "n_head": self.heads, "d_model": self.width, "d_ff": 4 * self.width,
                          "context": self.context, "norm": "layernorm", "norm_placement": "pre", "norm_bias": True,
                          "activation": "gelu", "position": "learned", "bias": False, "ffn_bias": False,
                          "tie_embeddings": True, "dropout": 0},
                "train": {"batch_size": self.batch, "optimizer": "adamw", "grad_clip": 0, "precision": precision}}


SHAPES = [Shape(4, 4, 128, 64, 12, 60), Shape(6, 6, 384, 256, 8, 20), Shape(24, 4, 128, 128, 16, 20),
          Shape(12, 4, 64, 64, 8, 60)]  # the last is the quick start's
QUICK = [Shape(2, 2, 32, 16, 4, 20)]  # shows that both sides run


class Failure(Exception):
    """A process failed; the message holds the last line of its stderr."""


def json_of(*command):
    """The value that the process prints as JSON."""
    result = subprocess.run(list(map(str, command)), env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        last = (result.stderr.strip() or "no message").split("\n")[-1]
        raise Failure(f"{os.path.basename(command[0])} failed with code {result.returncode}: {last}")
    return json.loads(result.stdout)


def measure(shape, precision, threads, rounds, python):
    """{"normscope", "eager", "compiled": {"step_ms", "peak_mb", ...}}, medians over the rounds; without "compiled"
    if torch.compile does not work: it needs PyTorch 2 and a C++ compiler."""
    with tempfile.TemporaryDirectory(prefix="normscope-peers-") as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(shape.config(precision), file)

        def peer(attention, *options, steps=shape.steps):
            return json_of(python, PEER, path, "--threads", threads, "--steps", steps, "--attention", attention,
                           *options)

        def trial(attention):
            """ms a step; infinite if PyTorch has no such attention."""
            try:
                return peer(attention, steps=TRIAL_STEPS)["step_ms"]
            except Failure:
                if attention == "fused":  # before PyTorch 2.0 there is none
                    return math.inf
                raise

        attention = min(ATTENTIONS, key=trial)
        ours = (BINARY, "bench", path, "--json", "--threads", threads, "--steps", shape.steps)
        sides = {"normscope": lambda: json_of(*ours), "eager": lambda: peer(attention),
                 "compiled": lambda: peer(attention, "--compile")}
        results = {side: [] for side in sides}
        for _ in range(rounds):
            for side in list(results):
                try:
                    results[side].append(sides[side]())
                except Failure as failure:
                    if side != "compiled":
                        raise
                    print(f"[bench_peers] eager alone is measured: {failure}", file=sys.stderr)
                    del results[side]
    return {side: medians(rounds_of_side) for side, rounds_of_side in results.items()}


def medians(results):
    """The median of each number over the rounds, given as a list of dicts."""
    return {key: statistics.median(result[key] for result in results)
            for key, value in results[0].items() if isinstance(value, (int, float))}


HEADER = "             threads  normscope ms     eager  compiled  times PyTorch  MiB, PyTorch's"


def line(precision, threads, sides):
    """A row of the table: ms a step of each side, speed over the faster form of PyTorch, memory and that of its smaller
    process."""
    peers = [sides[side] for side in ("eager", "compiled") if side in sides]
    compiled = f"{sides['compiled']['step_ms']:.2f}" if "compiled" in sides else "-"
    ours, fastest = sides["normscope"], min(peer["step_ms"] for peer in peers)
    memory = f"{ours['peak_mb']:,.0f}, {min(peer['peak_mb'] for peer in peers):,.0f}"
    return (f"  {precision:11}{threads:7}{ours['step_ms']:14.2f}{sides['eager']['step_ms']:10.2f}{compiled:>10}"
            f"{fastest / ours['step_ms']:15.2f}{memory:>16}")


def main():
    parser = Parser("bench_peers", __doc__)
    parser.add_argument("--python", metavar="PATH", default=sys.executable, help="a python that has PyTorch")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="(default: 1 2)")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--shape", type=int, choices=range(1, len(SHAPES) + 1), action="append",
                        help="only this shape; may be given often (default: all)")
    parser.add_argument("--quick", action="store_true", help="a tiny shape, to see whether both sides run")
    arguments = parser.parse_args()
    probe = [arguments.python, "-c", "import torch; print(torch.__version__)"]
    try:
        version = subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        parser.exit(2, f"[bench_peers] {arguments.python} has no PyTorch; install it (`pip install torch` in a virtual "
                       "environment) and name that environment's python with --python\n")
    print(f"PyTorch {version} ({arguments.python}) against {BINARY}\n{HEADER}", flush=True)
    numbers = arguments.shape or range(1, len(SHAPES) + 1)
    for shape in QUICK if arguments.quick else [SHAPES[number - 1] for number in numbers]:
        print(shape, flush=True)
        for precision in PRECISIONS:
            for threads in arguments.threads:
                sides = measure(shape, precision, threads, max(1, arguments.rounds), arguments.python)
                print(line(precision, threads, sides), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (OSError, Failure) as error:
        sys.exit(f"[bench_peers] {error}")
