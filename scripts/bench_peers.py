#!/usr/bin/python3
"""normscope against PyTorch on the same cores: training steps of the same shapes, timed in one run.

    ~/torch/bin/python scripts/bench_peers.py    # with a Python that has PyTorch

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
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import ROOT, Parser, ScriptError, main, program
from lib.base.system_python import restart
from lib.base.tables import print_table

PEER = ROOT / "scripts" / "lib" / "model" / "torch_peer.py"
# PyTorch's forms: whether attention is fused, which needs PyTorch 2.0, and whether the model is compiled, which needs a
# C++ compiler too.
FORMS = {"fused": (True, False), "written out": (False, False),
         "fused, compiled": (True, True), "written out, compiled": (False, True)}
# The environment without the users' settings for an OpenMP or BLAS, each of which would change one side only.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_"))}
# Settings of both sides, the letters L, H, C, T and B, for each shape; and how many steps are measured.
KEYS = ("model.n_layer", "model.n_head", "model.d_model", "model.context", "train.batch_size")
SHAPES = [((2, 2, 32, 16, 4), 20),  # shows whether both sides run
          ((4, 4, 128, 64, 12), 60), ((6, 6, 384, 256, 8), 20), ((24, 4, 128, 128, 16), 20),
          ((12, 4, 64, 64, 8), 60)]  # the last is the quick start's


def json_of(*command):
    """The value that the process prints as JSON. ScriptError: it failed; the message is the last line of its stderr.
    The peak that `normscope bench` reports begins with this script's memory, which therefore must hold no PyTorch."""
    process = subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             check=False)
    if process.returncode:
        message = process.stderr.strip() or f"{command[0]} failed with code {process.returncode}"
        raise ScriptError(message.split("\n")[-1], 1)
    return json.loads(process.stdout)


def measure(shape, steps, precision, threads, rounds):
    """(ours, {form: PyTorch's}), each {"step_ms", "peak_mb"}, medians over the rounds. ScriptError: our side fails, or
    all of PyTorch's forms."""
    settings = {**dict(zip(KEYS, shape)), "train.precision": precision, "train.grad_clip": 0}
    options = [f"--threads={threads}", f"--steps={steps}", *(f"--set={key}={settings[key]}" for key in settings)]
    ours, peers = [], {form: [] for form in FORMS}
    for _ in range(rounds):
        ours.append(json_of(program(), "bench", "--json", *options))
        for form in list(peers):
            arguments = json.dumps([shape, steps, precision, threads, *FORMS[form]])
            try:
                peers[form].append(json_of(sys.executable, PEER, arguments))
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
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="(default: 1 2)")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--shape", type=int, nargs="+", choices=range(len(SHAPES)), default=range(1, len(SHAPES)),
                        metavar="N", help="0 is a tiny one, which shows whether both sides run (default: 1 2 3 4)")
    arguments = parser.parse_args()
    try:
        version = metadata.version("torch")
    except ImportError as error:
        restart(error, f"give the script to a Python that has PyTorch: /path/to/python {sys.argv[0]} ...")
    print(f"PyTorch {version} ({sys.executable}) against {program()}", flush=True)
    for shape, steps in [SHAPES[number] for number in arguments.shape]:
        print("L {}, H {}, C {}, T {}, B {}".format(*shape), flush=True)
        rows = [row(precision, threads, *measure(shape, steps, precision, threads, max(1, arguments.rounds)))
                for precision in ("fp32", "bf16") for threads in arguments.threads]
        print_table([HEADER, *rows], "  ")


if __name__ == "__main__":
    main(run, "bench_peers")
