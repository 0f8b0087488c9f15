#!/usr/bin/python3
"""Trains for a given time and watches the process: resident memory grows by at most 1%, and no file stays open.

usage: soak.py [CONFIG] [--seconds N] [--set KEY=VALUE]... [--threads N]

The time begins when the run has written a few checkpoints, however long that takes. Exit 1 and a line where anything is
wrong.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from cli import BINARY, ROOT, environment

WARM_ROWS = 20  # rows of metrics.csv: with a row in 10 steps and a checkpoint in 50, three checkpoints
GLANCE = 0.25  # seconds between two looks at the process
LOOKS = 8  # at least: a busy machine may stand still for seconds
MEMORY_MAY_GROW = 0.01
# So long a run that only its time ends it; logs at a pace that keeps hours of them small.
SETS = ["train.steps=10000000", "train.schedule=constant", "log.every=10", "log.layers_every=50", "eval.every=100",
        "eval.batches=2", "checkpoint.every=50"]


def need(holds, what):
    if not holds:
        sys.exit(f"[soak] {what}")


def rows(log):
    if not os.path.exists(log):
        return 0
    with open(log, "rb") as file:
        return file.read().count(b"\n")


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def watch(process, seconds, log):
    """[(resident bytes, open files)] of the time after the warm-up."""
    looks, end = [], None
    while end is None or time.monotonic() < end or len(looks) < LOOKS:
        need(process.poll() is None, f"the run ended by itself: {process.poll()}")
        if end is not None:
            looks.append((resident_bytes(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))))
        elif rows(log) > WARM_ROWS:
            end = time.monotonic() + seconds
        time.sleep(GLANCE)
    return looks


def verdict(looks):
    """Compares memory and open files of the first and the second half of the looks. Returns a line with both."""
    first, last = looks[:len(looks) // 2], looks[len(looks) // 2:]
    before, after = (max(look[0] for look in part) for part in (first, last))
    need(after <= (1 + MEMORY_MAY_GROW) * before, f"resident memory grew from {before} to {after} bytes; "
                                                  f"expected at most {MEMORY_MAY_GROW:.0%} more")
    # The least number: while a file is written it and its folder are open.
    before, after = (min(look[1] for look in part) for part in (first, last))
    need(before == after, f"{before} files were open at first, {after} at the end; expected the same number")
    return f"resident memory {looks[-1][0] / 2**20:.1f} MiB, {after} open files"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("config", nargs="?", default=os.path.join(ROOT, "configs", "quickstart.json"))
    parser.add_argument("--seconds", type=float, default=3600, help="how long (default: an hour)")
    parser.add_argument("--threads", type=int, default=1, help="of the run (default: 1)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for normscope train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="normscope-soak-") as folder:
        out = os.path.join(folder, "run")
        command = [BINARY, "train", arguments.config, "--out", out, "--quiet", "--threads", str(arguments.threads)]
        for word in SETS + arguments.set:
            command += ["--set", word]
        # AddressSanitizer keeps what was freed for a while, so that its memory grows.
        env = environment(ASAN_OPTIONS="quarantine_size_mb=0:thread_local_quarantine_size_kb=0")
        with subprocess.Popen(command, env=env) as process:
            try:
                looks = watch(process, arguments.seconds, os.path.join(out, "metrics.csv"))
            finally:
                process.kill()
        print(f"soak: {arguments.seconds:.0f} s, {rows(os.path.join(out, 'metrics.csv'))} rows; {verdict(looks)}")


if __name__ == "__main__":
    main()
