#!/usr/bin/python3
"""normscope beside PyTorch on the same cores: training steps of the same shapes, timed in one run.

    scripts/bench_peers.py --python ~/torch/bin/python    # a python that has torch, where this one has not

For each shape, float32 and bf16, and each number of threads: `normscope bench`, PyTorch eager and PyTorch compiled take
turns, each in a process of its own, and medians are taken over the rounds. PyTorch's side is lib/torch_peer.py, in the form
of attention that a short trial finds faster. Tables, then a line a goal with ok or MISSED; exit 1 if one is missed.
A fourth takes its turn: PyTorch doing a step's matrix products and nothing else, which bounds what it can reach.
Memory is compared by whole processes; what PyTorch's libraries took before there was a model stands beside it, since it
depends on the build (those for a GPU load far more).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BINARY = os.environ.get("NORMSCOPE_BINARY", os.path.join(ROOT, "build", "normscope"))
PEER = os.path.join(ROOT, "scripts", "lib", "torch_peer.py")
VOCABULARY = 65  # of `normscope bench`, whose text is random
PRECISIONS = ("fp32", "bf16")
ATTENTIONS = ("fused", "written_out")
TRIAL_STEPS = 7
TWO_THREADS_GOAL = 1.85  # times one thread's speed
# What users set for one OpenMP or BLAS would change one side only.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_"))}


@dataclass(frozen=True)
class Goals:
    """The least that is asked of a shape; memory: the most, as a part of PyTorch's."""
    peak: float  # share of the arithmetic peak, float32, one thread
    bf16: float  # times our float32's speed
    torch_fp32: float  # times PyTorch's speed
    torch_bf16: float
    memory: float = math.inf


@dataclass(frozen=True)
class Shape:
    """L H C T B, and how many steps are measured."""
    blocks: int
    heads: int
    width: int
    context: int
    batch: int
    steps: int
    goals: Goals = None

    def __str__(self):
        return f"L {self.blocks}, H {self.heads}, C {self.width}, T {self.context}, B {self.batch}"

    def config(self, precision):
        return {"model": {"n_layer": self.blocks, "n_head": self.heads, "d_model": self.width, "d_ff": 4 * self.width,
                          "context": self.context, "norm": "layernorm", "norm_placement": "pre", "norm_bias": True,
                          "activation": "gelu", "position": "learned", "bias": False, "ffn_bias": False,
                          "tie_embeddings": True, "dropout": 0},
                "train": {"batch_size": self.batch, "optimizer": "adamw", "grad_clip": 0, "precision": precision}}


SHAPES = [Shape(4, 4, 128, 64, 12, 60, Goals(0.76, 1.3, 2.0, 1.4)),
          Shape(6, 6, 384, 256, 8, 20, Goals(0.83, 1.6, 1.3, 1.3, memory=0.5)),
          Shape(24, 4, 128, 128, 16, 20, Goals(0.76, 1.3, 2.0, 1.4)),
          Shape(12, 4, 64, 64, 8, 60, Goals(0.62, 1.3, 2.0, 1.4))]  # the quick start's
QUICK = [Shape(2, 2, 32, 16, 4, 20)]  # no goals: it shows that all of it runs


class Failure(Exception):
    """What a process said when it failed."""


def json_of(command):
    """What the process prints, parsed."""
    result = subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        said = result.stderr.strip().splitlines() or ["no word"]
        raise Failure(f"{os.path.basename(command[0])} failed with code {result.returncode}: {said[-1]}")
    return json.loads(result.stdout)


def bench(path, threads, steps):
    return json_of([BINARY, "bench", path, "--json", "--threads", str(threads), "--steps", str(steps)])


class Torch:
    """PyTorch as some python has it."""

    def __init__(self, python, say):
        self.python, self.say, self.compiles = python, say, True

    def peer(self, path, threads, steps, *options):
        return json_of([self.python, PEER, path, "--vocabulary", str(VOCABULARY), "--threads", str(threads),
                        "--steps", str(steps), *options])

    def run(self, path, threads, steps, attention, *options):
        return self.peer(path, threads, steps, "--attention", attention, *options)

    def products(self, path, threads, steps):
        """A step's matrix products alone."""
        return self.peer(path, threads, steps, "--products")

    def faster_attention(self, path, threads):
        def trial(attention):
            try:
                return self.run(path, threads, TRIAL_STEPS, attention)["step_ms"]
            except Failure:
                if attention == "fused":  # before PyTorch 2.0 there is none
                    return math.inf
                raise
        return min(ATTENTIONS, key=trial)

    def compiled(self, path, threads, steps, attention):
        """None where torch.compile does not work: it needs PyTorch 2 and a C++ compiler."""
        if not self.compiles:
            return None
        try:
            return self.run(path, threads, steps, attention, "--compile")
        except Failure as failure:
            self.say(f"torch.compile does not work here, so eager alone is measured: {failure}")
            self.compiles = False
            return None


def medians(results):
    """Of each number over the rounds; None if a round has none."""
    if None in results:
        return None
    return {key: statistics.median(result[key] for result in results)
            for key, value in results[0].items() if isinstance(value, (int, float))}


def measure(shape, threads, rounds, torch, ours=bench, say=lambda line: None):
    """A shape's rows: what was run, and for `ours`, `eager`, `compiled` and `products` the medians of what they
    printed."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="normscope-peers-") as folder:
        paths, attention = {}, {}
        for precision in PRECISIONS:
            paths[precision] = os.path.join(folder, f"{precision}.json")
            with open(paths[precision], "w", encoding="utf-8") as file:
                json.dump(shape.config(precision), file)
            attention[precision] = torch.faster_attention(paths[precision], max(threads))
        for number in range(1, rounds + 1):
            for precision, path in paths.items():
                for count in threads:
                    say(f"{shape}: round {number} of {rounds}, {precision}, {counted(count)}")
                    row = found.setdefault((precision, count),
                                           {"ours": [], "eager": [], "compiled": [], "products": []})
                    row["ours"].append(ours(path, count, shape.steps))
                    row["eager"].append(torch.run(path, count, shape.steps, attention[precision]))
                    row["compiled"].append(torch.compiled(path, count, shape.steps, attention[precision]))
                    row["products"].append(torch.products(path, count, shape.steps))
    return [{"precision": precision, "threads": count, "attention": attention[precision],
             **{name: medians(results) for name, results in row.items()}}
            for (precision, count), row in found.items()]


def counted(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def add_ratios(rows):
    """Speed over PyTorch's faster form, ours and that of its products alone; ours over our float32 and one thread;
    memory over PyTorch's smaller process. None where the other side was not measured."""
    ours = {(row["precision"], row["threads"]): row["ours"]["step_ms"] for row in rows}
    for row in rows:
        mine, precision, threads = row["ours"], row["precision"], row["threads"]
        peers = [row[name] for name in ("eager", "compiled") if row[name]]
        float32 = ours.get(("fp32", threads)) if precision != "fp32" else None
        single = ours.get((precision, 1)) if threads != 1 else None
        fastest = min(peer["step_ms"] for peer in peers)
        row["times_torch"] = fastest / mine["step_ms"]
        row["products_times_torch"] = fastest / row["products"]["step_ms"]
        row["times_fp32"] = float32 and float32 / mine["step_ms"]
        row["times_one_thread"] = single and single / mine["step_ms"]
        row["memory_of_torch"] = mine["peak_mb"] / min(peer["peak_mb"] for peer in peers)


def table(shape, rows):
    """Lines of text."""
    def cell(value, width, form):
        return ("-" if value is None else format(value, form)).rjust(width)

    lines = [str(shape),
             "                 normscope                                        PyTorch eager               compiled           "
             "                          speed over",
             "       threads   step ms  tokens/s  of SGEMM  of peak   MiB    step ms  tokens/s   MiB    step ms  tokens/s   MiB"
             "  products ms  imports  PyTorch  our fp32  1 thread"]
    for row in rows:
        line = f"{row['precision']}{row['threads']:10}"
        for name in ("ours", "eager", "compiled"):
            side = row[name] or {"step_ms": None, "peak_mb": None}
            speed = side["step_ms"] and 1e3 * shape.batch * shape.context / side["step_ms"]
            line += cell(side["step_ms"], 10 if name == "ours" else 11, ".2f") + cell(speed, 10, ",.0f")
            line += cell(side["share"], 10, ".1%") + cell(side["peak_share"], 9, ".1%") if name == "ours" else ""
            line += cell(side["peak_mb"], 6, ".0f")
        line += cell(row["products"]["step_ms"], 13, ".2f") + cell(row["eager"]["import_mb"], 9, ".0f")
        line += cell(row["times_torch"], 9, ".2f")
        lines.append(line + cell(row["times_fp32"], 10, ".2f") + cell(row["times_one_thread"], 10, ".2f"))
    return lines + [f"PyTorch's attention, {precision}: {attention.replace('_', ' ')}" for precision, attention in
                    dict((row["precision"], row["attention"]) for row in rows).items()]


def judged(shape, rows):
    """(is met, line) of every goal that these rows can be held to. A NaN meets none."""
    goals = shape.goals
    for row in rows if goals else []:
        where = f"{shape}, {row['precision']}, {counted(row['threads'])}"

        def at_least(value, goal, what, form, if_missed=""):
            met = value >= goal
            return met, f"{where}: {what} {value:{form}} (at least {goal:{form}})" + ("" if met else if_missed)

        if row["precision"] == "fp32" and row["threads"] == 1:
            yield at_least(row["ours"]["peak_share"], goals.peak, "share of the arithmetic peak", ".1%")
        elif row["times_fp32"] is not None:
            yield at_least(row["times_fp32"], goals.bf16, "times our float32's speed", ".2f")
        goal = goals.torch_fp32 if row["precision"] == "fp32" else goals.torch_bf16
        yield at_least(row["times_torch"], goal, "times PyTorch's speed", ".2f",
                       f"; its matrix products alone would be {row['products_times_torch']:.2f}")
        if row["threads"] == 2 and row["times_one_thread"] is not None:
            yield at_least(row["times_one_thread"], TWO_THREADS_GOAL, "times one thread's speed", ".2f")
        if goals.memory < math.inf:
            part = row["memory_of_torch"]
            yield part <= goals.memory, f"{where}: {part:.2f} of PyTorch's peak memory (at most {goals.memory:.2f})"


def distinct(least, called):
    """A type for argparse, which calls it so: whole numbers with commas, none below `least`, none twice."""

    def read(text):
        numbers = [int(part) for part in text.split(",")]
        if min(numbers) < least or len(set(numbers)) < len(numbers):
            raise ValueError
        return numbers

    read.__name__ = called
    return read


def chosen(numbers):
    """The shapes of these numbers, from 1 on; all of them where none is named."""
    return [shape for number, shape in enumerate(SHAPES, 1) if not numbers or number in numbers]


def positive(text):
    if int(text) < 1:
        raise ValueError
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", metavar="PATH", default=sys.executable, help="a python that has PyTorch")
    parser.add_argument("--threads", type=distinct(1, "list of thread counts"), default=[1, 2], metavar="N,N", help="(default: 1,2)")
    parser.add_argument("--rounds", type=positive, default=2, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--shape", type=int, choices=range(1, len(SHAPES) + 1), action="append",
                        help="only this shape; may be given often (default: all)")
    parser.add_argument("--json", metavar="FILE", help="also write all figures there")
    parser.add_argument("--quick", action="store_true", help="a tiny shape without goals: does all of it run?")
    arguments = parser.parse_args()
    try:
        command = [arguments.python, "-c", "import torch; print(torch.__version__)"]
        version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        parser.exit(2, f"[bench_peers] {arguments.python} has no PyTorch; install it (`pip install torch` in a virtual "
                       "environment) and name that environment's python with --python\n")
    print(f"PyTorch {version} ({arguments.python}) beside {BINARY}\n", flush=True)

    def say(line):
        print(line, file=sys.stderr, flush=True)

    if os.getloadavg()[0] > 0.5:
        say("[bench_peers] other programs are busy on this machine: read the figures as rough")
    torch, results, checks = Torch(arguments.python, say), [], []
    for shape in QUICK if arguments.quick else chosen(arguments.shape):
        rows = measure(shape, arguments.threads, arguments.rounds, torch, say=say)
        add_ratios(rows)
        checks += judged(shape, rows)
        results.append({"shape": str(shape), "rows": rows})
        print("\n".join(table(shape, rows)) + "\n", flush=True)
    for met, line in checks:
        print(f"{'ok' if met else 'MISSED':8}{line}")
    if arguments.json:
        goals = [{"met": met, "goal": line} for met, line in checks]
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"torch": version, "rounds": arguments.rounds, "results": results, "goals": goals}, file,
                      indent=2)
    return 0 if all(met for met, _ in checks) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, Failure) as error:
        sys.exit(f"[bench_peers] {error}")
