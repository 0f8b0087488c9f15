#!/usr/bin/python3
"""normscope against PyTorch on the same cores: training steps of the same shapes, timed in one run.

    scripts/bench_peers.py --python ~/torch/bin/python    # a python that has torch, if this one has not

For each shape, float32 and bf16, and each number of threads: `normscope bench` and PyTorch take turns, each in a
process of its own; medians over the rounds. PyTorch's side is lib/model/torch_peer.py, in four forms: attention fused
or written out, eager or compiled. A form that fails is left out. The last columns compare with the fastest form, and
with the smallest memory of all: the peak of whole processes, PyTorch's libraries included.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import ROOT, Parser, ScriptError, main, program
from lib.base.tables import print_table

PEER = ROOT / "scripts" / "lib" / "model" / "torch_peer.py"
PRECISIONS = ("fp32", "bf16")
# PyTorch's forms, with the options of torch_peer.py. Fused attention needs PyTorch 2.0, compiling a C++ compiler too.
FORMS = {"fused": ["--attention=fused"], "written out": ["--attention=written_out"],
         "fused, compiled": ["--attention=fused", "--compile"],
         "written out, compiled": ["--attention=written_out", "--compile"]}
# The environment without the users' settings for an OpenMP or BLAS, each of which would change one side only.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_"))}
# The letters L, H, C, T and B, and how many steps are measured.
Shape = namedtuple("Shape", "blocks heads width context batch steps")
SHAPES = [Shape(4, 4, 128, 64, 12, 60), Shape(6, 6, 384, 256, 8, 20), Shape(24, 4, 128, 128, 16, 20),
          Shape(12, 4, 64, 64, 8, 60)]  # the last is the quick start's
QUICK = [Shape(2, 2, 32, 16, 4, 20)]  # shows that both sides run


def config_of(shape, precision):
    """The config of both sides; keys that are left out have the defaults for which torch_peer.py is written."""
    return {"model": {"n_layer": shape.blocks, "n_head": shape.heads, "d_model": shape.width, "context": shape.context,
                      "tie_embeddings": True},
            "train": {"batch_size": shape.batch, "grad_clip": 0, "precision": precision}}


def json_of(*command):
    """The value that the process prints as JSON. ScriptError: it failed; the message holds the last line of its
    stderr."""
    result = subprocess.run(list(map(str, command)), env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, check=False)
    if result.returncode != 0:
        last = (result.stderr.strip() or "no message").split("\n")[-1]
        raise ScriptError(f"{os.path.basename(command[0])} failed with code {result.returncode}: {last}", 1)
    return json.loads(result.stdout)


def measure(shape, precision, threads, rounds, python):
    """(ours, {form: PyTorch's}), each {"step_ms", "peak_mb"}, medians over the rounds. ScriptError: our side fails, or
    all of PyTorch's forms."""
    with tempfile.TemporaryDirectory(prefix="normscope-peers-") as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config_of(shape, precision), file)
        options = (path, "--threads", threads, "--steps", shape.steps)
        ours, peers = [], {form: [] for form in FORMS}
        for _ in range(rounds):
            ours.append(json_of(program(), "bench", *options, "--json"))
            for form in list(peers):
                try:
                    peers[form].append(json_of(python, PEER, *options, *FORMS[form]))
                except ScriptError as error:
                    del peers[form]
                    print(f"[bench_peers] without PyTorch {form}: {error}", file=sys.stderr)
                    if not peers:
                        raise
    return medians(ours), {form: medians(results) for form, results in peers.items()}


def medians(results):
    """The median over the rounds of the milliseconds of a step and of the memory."""
    return {key: statistics.median(result[key] for result in results) for key in ("step_ms", "peak_mb")}


HEADER = ["precision", "threads", "normscope ms", *FORMS, "PyTorch's over ours", "MiB", "PyTorch's MiB"]


def row(precision, threads, ours, peers):
    """A row of the table: ms a step of each side, speed over PyTorch's fastest form, memory and that of its smallest
    process."""
    times = [f"{peers[form]['step_ms']:.2f}" if form in peers else "" for form in FORMS]
    fastest, smallest = (min(peer[key] for peer in peers.values()) for key in ("step_ms", "peak_mb"))
    return [precision, str(threads), f"{ours['step_ms']:.2f}", *times, f"{fastest / ours['step_ms']:.2f}",
            f"{ours['peak_mb']:,.0f}", f"{smallest:,.0f}"]


def run():
    """Reads the command line, measures and prints a table for each shape."""
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
        raise ScriptError(f"{arguments.python} has no PyTorch; install it (`pip install torch` in a virtual "
                          "environment) and name that environment's python with --python") from None
    print(f"PyTorch {version} ({arguments.python}) against {program()}", flush=True)
    numbers = arguments.shape or range(1, len(SHAPES) + 1)
    for shape in QUICK if arguments.quick else [SHAPES[number - 1] for number in numbers]:
        print("L {}, H {}, C {}, T {}, B {}".format(*shape), flush=True)
        rows = [row(precision, threads, *measure(shape, precision, threads, max(1, arguments.rounds), arguments.python))
                for precision in PRECISIONS for threads in arguments.threads]
        print_table([HEADER, *rows], "  ")


if __name__ == "__main__":
    main(run, "bench_peers")
