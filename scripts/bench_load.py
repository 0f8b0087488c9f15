#!/usr/bin/python3
"""normscope beside other busy programs: a training run with 1 thread, with 2, and as it chooses by itself.

    scripts/bench_load.py --python ~/torch/bin/python    # a python that has torch, where this one has not

For 0, 1 and 2 endless loops beside it: short runs of configs/deep_pre.json and nanogpt_cpu.json (on the bundled text)
take turns, and where there is PyTorch, its eager form of the same model (lib/torch_peer.py). A time is the mean over all
steps of a run, trials of thread counts included; of the turns the median stands in the table. Then a line a goal with
ok or MISSED; exit 1 if one is missed.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager

from bench_peers import BINARY, ENVIRONMENT, ROOT, VOCABULARY, Failure, Torch, distinct, positive

STEPS = {"deep_pre": 400, "nanogpt_cpu": 250}  # some 5 s a run beside others
PEER_STEPS = 100
THREADS = ("1", "2", "default")
OF_BEST_GOAL = {0: 1.03, 1: 1.10, 2: 1.10}  # the default's time over that of the best fixed count, at most
OF_ONE_GOAL = 1.05  # over that of one thread
ENDLESS = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # it ends with this program


@contextmanager
def busy_loops(count):
    loops = [subprocess.Popen([sys.executable, "-c", ENDLESS]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def settings(config, steps):
    """What makes a config a measurement: nothing but steps, on a text that is here."""
    changes = {"data.path": json.dumps([os.path.join(ROOT, "data", "austen.txt")]), "data.val_fraction": 0.01,
               "train.steps": steps, "train.threads": 0, "eval.every": 0, "eval.batches": 1, "log.every": 100_000,
               "log.layers_every": 0, "checkpoint.every": 0}
    words = [os.path.join(ROOT, "configs", f"{config}.json")]
    for key, value in changes.items():
        words += ["--set", f"{key}={value}"]
    return words


def normscope(*words):
    result = subprocess.run([BINARY, *words], env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        raise Failure(f"normscope {words[0]} failed with code {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def step_ms(config, steps, threads):
    """(mean milliseconds a step, threads at the end) of a run."""
    fixed = [] if threads == "default" else ["--threads", threads]
    with tempfile.TemporaryDirectory(prefix="normscope-load-") as folder:
        run = os.path.join(folder, "run")
        normscope("train", *settings(config, steps), "--out", run, "--quiet", *fixed)
        with open(os.path.join(run, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        with open(os.path.join(run, "config.json"), encoding="utf-8") as file:
            resolved = json.load(file)
    tokens = resolved["train"]["batch_size"] * resolved["model"]["context"]
    return 1e3 * tokens / summary["tokens_per_s"], summary["threads"]


class Peer:
    """PyTorch's eager steps of a config, if there is a PyTorch."""

    def __init__(self, python):
        self.torch, self.attention = Torch(python, say=None), {}

    def step_ms(self, config, steps, threads):
        count = len(os.sched_getaffinity(0)) if threads == "default" else int(threads)
        with tempfile.TemporaryDirectory(prefix="normscope-load-") as folder:
            path = os.path.join(folder, "config.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(normscope("config", *settings(config, steps)))
            if config not in self.attention:
                self.attention[config] = self.torch.faster_attention(path, count)
            return self.torch.run(path, count, steps, self.attention[config])["mean_ms"]


def measure(configs, loads, turns, ours=step_ms, peer=None, say=lambda line: None):
    """{(config, load): {threads: {"ms": median over the turns, "chosen": the counts at the end, "torch_ms"}}}"""
    found = {}
    for config, steps in configs.items():
        for load in loads:
            times = {threads: [] for threads in THREADS}
            with busy_loops(load):
                for turn in range(1, turns + 1):
                    say(f"{config}, {counted(load)}: turn {turn} of {turns}")
                    for threads, results in times.items():
                        results.append((*ours(config, steps, threads),
                                        peer(config, min(steps, PEER_STEPS), threads) if peer else None))
            found[config, load] = {
                threads: {"ms": statistics.median(ms for ms, _, _ in results),
                          "chosen": sorted({count for _, count, _ in results}),
                          "torch_ms": statistics.median(ms for _, _, ms in results) if peer else None}
                for threads, results in times.items()}
    return found


def counted(load):
    return "1 busy loop" if load == 1 else f"{load} busy loops"


def table(found):
    """Lines of text."""
    lines = [f"{'ms a step':13}{'busy loops':>10}" + "".join(f"{name:>12}" for name in THREADS) + "   threads chosen"
             + "".join(f"{'PyTorch ' + name:>17}" for name in THREADS)]
    for (config, load), row in found.items():
        cells = "".join(f"{row[threads]['ms']:12.2f}" for threads in THREADS)
        chosen = ",".join(str(count) for count in row["default"]["chosen"])
        torch = "".join(f"{row[threads]['torch_ms']:17.2f}" if row[threads]["torch_ms"] else f"{'-':>17}"
                        for threads in THREADS)
        lines.append(f"{config:13}{load:10}{cells}{chosen:>17}{torch}")
    return lines


def judged(found):
    """(is met, line) of every goal. A NaN meets none."""
    for (config, load), row in found.items():
        best = min((row[threads]["ms"], threads) for threads in THREADS if threads != "default")
        for name, time, goal in ((f"the best fixed count's time ({best[1]})", best[0], OF_BEST_GOAL.get(load, math.inf)),
                                 ("one thread's time", row["1"]["ms"], OF_ONE_GOAL)):
            ratio = row["default"]["ms"] / time
            yield ratio <= goal, f"{config}, {counted(load)}: default at {ratio:.2f} of {name} (at most {goal:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", metavar="PATH", default=sys.executable, help="a python that has PyTorch")
    parser.add_argument("--loads", type=distinct(0, "list of numbers of loops"), default=[0, 1, 2], metavar="N,N", help="busy loops (default: 0,1,2)")
    parser.add_argument("--turns", type=positive, default=5, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write all figures there")
    parser.add_argument("--quick", action="store_true", help="a few steps, no goals: does all of it run?")
    arguments = parser.parse_args()

    def say(line):
        print(line, file=sys.stderr, flush=True)

    peer = None
    if subprocess.run([arguments.python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        peer = Peer(arguments.python).step_ms
    else:
        say(f"[bench_load] {arguments.python} has no PyTorch: normscope is measured alone")
    if os.getloadavg()[0] > 0.5:
        say("[bench_load] other programs are busy on this machine: read the figures as rough")
    configs = {name: 10 for name in STEPS} if arguments.quick else STEPS
    found = measure(configs, arguments.loads, arguments.turns, peer=peer, say=say)
    print("\n".join(table(found)) + "\n", flush=True)
    checks = [] if arguments.quick else list(judged(found))
    for met, line in checks:
        print(f"{'ok' if met else 'MISSED':8}{line}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"results": [{"config": config, "busy_loops": load, "threads": row}
                                   for (config, load), row in found.items()],
                       "goals": [{"met": met, "goal": line} for met, line in checks]}, file, indent=2)
    return 0 if all(met for met, _ in checks) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, Failure) as error:
        sys.exit(f"[bench_load] {error}")
