#!/usr/bin/python3
"""Trains for a given time and watches: memory and file handles flat, every row of every log there.

usage: soak.py [CONFIG] [--seconds N] [--set KEY=VALUE]... [--threads N]

The first minute (a third of a shorter time) is for warming up; after it the resident memory may move by 1% and the
number of open files not at all, but for those of a checkpoint that is being written. Then the run is interrupted, its
logs are counted row by row, and it is resumed for some steps more. Exit 1 and a line where anything is wrong.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

from cli import BINARY, LOGS, ROOT, Run, environment, sites_of

WARM_UP = 60  # seconds at most
GLANCE = 0.25  # seconds between two looks at the process
MEMORY_MAY_MOVE = 0.01
OPEN_WHILE_WRITING = 2  # the new file and its folder


class Fault(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Fault(what)


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS"))


def watch(process, seconds):
    """[(seconds since the start, resident bytes, open files)] until the time is over."""
    begin, looks = time.monotonic(), []
    while (now := time.monotonic() - begin) < seconds:
        need(process.poll() is None, f"the run ended by itself after {now:.0f} s: {process.poll()}")
        looks.append((now, resident_bytes(process.pid), len(os.listdir(f"/proc/{process.pid}/fd"))))
        time.sleep(GLANCE)
    return looks


def check_looks(looks, seconds):
    """What memory and handles did after the warm-up; a line that says so."""
    warm = [look for look in looks if look[0] > min(WARM_UP, seconds / 3)]
    memory, handles = [look[1] for look in warm], [look[2] for look in warm]
    moved = (max(memory) - min(memory)) / memory[0]
    need(moved <= MEMORY_MAY_MOVE, f"resident memory moved by {moved:.2%}, from {min(memory)} to {max(memory)} bytes; "
                                   f"expected at most {MEMORY_MAY_MOVE:.0%}")
    half = len(handles) // 2
    first, last = min(handles[:half]), min(handles[half:])
    need(first == last, f"{first} files were open at first, {last} at the end; expected the same number")
    need(max(handles) <= first + OPEN_WHILE_WRITING,
         f"{max(handles)} files were open at once; expected {first}, and {OPEN_WHILE_WRITING} more while one is written")
    return f"resident memory {memory[-1] / 2**20:.1f} MiB within {moved:.2%}, {first} open files"


def check_logs(run):
    """Every row that the config asks for is there, whole, in order; a line that says how many."""
    config, summary = run.json("config.json"), run.summary
    steps, rows = summary["steps"], {}
    for name in LOGS:
        need(run.bytes(name).endswith(b"\n"), f"{name} ends in a torn row")
        rows[name] = run.rows(name)
        for row in rows[name][-200:]:
            [float(value) for key, value in row.items() if value and key not in ("site", "param")]

    def due(every):
        return [s for s in range(1, steps + 1) if s == 1 or s % every == 0]

    evaluated = {s for s in due(config["eval"]["every"]) if s > 1}
    expected = sorted(evaluated | set(due(config["log"]["every"])))
    need([int(row["step"]) for row in rows["metrics.csv"]] == expected, "metrics.csv has not the rows of its steps")
    need({int(row["step"]) for row in rows["metrics.csv"] if row["val_loss"]} == evaluated,
         "metrics.csv has not the validation losses of its steps")
    logged = sorted({*due(config["log"]["layers_every"]), *range(1, config["log"]["layers_first"] + 1)})
    places = sites_of(config["model"]["n_layer"])
    need([(int(r["step"]), int(r["layer"]), r["site"]) for r in rows["layers.csv"]] ==
         [(step, *place) for step in logged for place in places], "layers.csv has not the rows of its steps")
    names = [row["param"] for row in rows["params.csv"] if row["step"] == "1"]
    need([(int(r["step"]), r["param"]) for r in rows["params.csv"]] == [(step, n) for step in logged for n in names],
         "params.csv has not the rows of its steps")
    need(run.metadata("checkpoint.safetensors")["step"] == str(steps), "the checkpoint is not of the last step")
    return f"{steps} steps, {sum(map(len, rows.values()))} rows"


def soak(arguments, folder):
    out = os.path.join(folder, "run")
    # So long a run that only its time ends it; logs at a pace that keeps hours of them small.
    sets = ["train.steps=10000000", "train.schedule=constant", "log.every=10", "log.layers_every=50", "eval.every=100",
            "eval.batches=2", "checkpoint.every=50", *arguments.set]
    command = [BINARY, "train", arguments.config, "--out", out, "--quiet", "--threads", str(arguments.threads)]
    for word in sets:
        command += ["--set", word]
    # AddressSanitizer keeps what was freed for a while, so that its memory grows.
    env = environment(ASAN_OPTIONS="quarantine_size_mb=0:thread_local_quarantine_size_kb=0")
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, encoding="utf-8") as process:
        try:
            looks = watch(process, arguments.seconds)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    need(process.returncode == 130, f"interrupted, it ended with {process.returncode}: {errors}")
    said = [check_looks(looks, arguments.seconds), check_logs(Run(out))]
    steps = Run(out).summary["steps"] + 5
    result = subprocess.run([*command, "--set", f"train.steps={steps}", "--resume"], capture_output=True,
                            encoding="utf-8", check=False)
    need((result.returncode, Run(out).summary["status"]) == (0, "done"), f"it did not resume: {result.stderr}")
    return "; ".join(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("config", nargs="?", default=os.path.join(ROOT, "configs", "quickstart.json"))
    parser.add_argument("--seconds", type=float, default=3600, help="how long (default: an hour)")
    parser.add_argument("--threads", type=int, default=1, help="of the run (default: 1)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for normscope train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="normscope-soak-") as folder:
        try:
            print(f"soak: {arguments.seconds:.0f} s; {soak(arguments, folder)}")
        except Fault as fault:
            sys.exit(f"[soak] {fault}")


if __name__ == "__main__":
    main()
