"""The time that a sweep will take: some steps of each shape of its runs are trained, as many shapes at a time as the
sweep trains runs."""

import contextlib
import csv
import dataclasses
import heapq
import itertools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

SECONDS = 4.0  # of measuring, shared out to the shapes
LEAST, MOST = 0.3, 30.0  # seconds for a shape: from its second step on, and until then
FORWARD = 1 / 3  # share of a step's time that an evaluation of as many tokens takes
QUICK = ("log.every=1", "log.layers_every=0", "eval.every=0", "checkpoint.every=0")


def expected_seconds(runs, jobs, start):
    """The seconds that these GridPoints will take, `jobs` at a time, each started as soon as one has ended; None if a
    shape cannot be measured. start(run, file for its stderr) starts the training of a run in a process."""
    shapes = {shape_of(run.config): run for run in runs}
    count = -(-len(shapes) // jobs) * jobs  # no core is idle
    samples = list(itertools.islice(itertools.cycle(shapes), count))
    measured = {shape: [] for shape in shapes}
    for first in range(0, len(samples), jobs):
        together = samples[first:first + jobs]
        times = step_seconds([shapes[shape] for shape in together], max(LEAST, SECONDS * jobs / len(samples)), start)
        for shape, seconds in zip(together, times):
            measured[shape].append(seconds)
    if None in [seconds for times in measured.values() for seconds in times]:
        return None
    free_at = [0.0] * jobs
    for run in runs:
        seconds = run_seconds(run.config, statistics.fmean(measured[shape_of(run.config)]))
        heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)


def shape_of(config):
    """All that decides the time of a step, as text."""
    train = {key: config["train"].get(key) for key in ("batch_size", "grad_accum", "precision", "gemm", "optimizer")}
    return json.dumps([{**config["model"], "init": None}, train], sort_keys=True)


def step_seconds(runs, seconds, start):
    """The mean seconds of a step of each run, None if it trained none, of runs that are trained together."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        samples = [dataclasses.replace(run, folder=Path(folder, str(i)), overrides=[*run.overrides, *QUICK])
                   for i, run in enumerate(runs)]
        processes = [start(sample, stack.enter_context(tempfile.TemporaryFile())) for sample in samples]
        try:
            begun, end = time.monotonic(), None
            while (any(process.poll() is None for process in processes)
                   and time.monotonic() < (begun + MOST if end is None else end)):
                if end is None and all(len(logged(sample.folder)) > 1 for sample in samples):
                    end = time.monotonic() + seconds
                time.sleep(0.02)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [mean_step(logged(sample.folder)) for sample in samples]


def logged(folder):
    """[(step, seconds)] of the whole rows of a run's metrics.csv."""
    with contextlib.suppress(OSError):
        lines = (folder / "metrics.csv").read_text(encoding="utf-8").split("\n")[:-1]
        return [(int(row["step"]), float(row["seconds"])) for row in csv.DictReader(lines)]
    return []


def mean_step(rows):
    """The mean seconds of a step after the first, which is slower; None without a row."""
    if len(rows) < 2:
        return rows[0][1] if rows else None
    (first, begin), (last, end) = rows[0], rows[-1]
    return (end - begin) / (last - first)


def run_seconds(config, step):
    """The seconds of a run whose steps take `step` each: its steps and its evaluations."""
    model, data, train, evaluation = (config[section] for section in ("model", "data", "train", "eval"))
    paths = data["path"] if isinstance(data["path"], list) else [data["path"]]
    validation = (os.path.getsize(data["val_path"]) if data.get("val_path")
                  else data["val_fraction"] * sum(map(os.path.getsize, paths)))
    batch = train["batch_size"] * model["context"]
    partial = min(validation, evaluation.get("batches", 0) * batch) or validation  # 0 batches: the whole split
    count = (train["steps"] - 1) // evaluation["every"] if evaluation["every"] else 0
    tokens_of_step = batch * train.get("grad_accum", 1)
    return step * (train["steps"] + FORWARD * (validation + count * partial) / tokens_of_step)


def duration(seconds):
    """A rounded duration in words: 40 seconds, 6 minutes, 3.5 hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} second" + "s" * (round(seconds) > 1)
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
