"""The time that a sweep will take. Before it: some steps of each shape of its runs are trained, in as many copies at a
time as the sweep trains runs. In it: from the runs that have ended."""

import contextlib
import csv
import dataclasses
import heapq
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from lib.base.files import whole_lines

SECONDS = 4.0  # of measuring, shared out to the shapes
LEAST, MOST = 0.3, 30.0  # seconds for a shape: at least, once two steps are logged; at most until they are
FORWARD = 1 / 3  # share of a step's time that an evaluation of as many tokens takes
QUICK = {"log": {"every": 1, "layers_every": 0}, "eval": {"every": 0}, "checkpoint": {"every": 0}}


def expected_seconds(runs, shares, jobs, start):
    """The seconds that these GridPoints will take, `jobs` at a time, each started as soon as one has ended; None if a
    shape cannot be measured. `shares`: of the steps of each run, those that are left. start(run, file for its stderr)
    starts the training of a run in a process."""
    shapes, steps = {shape_of(run.config): run for run in runs}, {}
    for shape, run in shapes.items():
        steps[shape] = step_seconds(run, jobs, max(LEAST, SECONDS / len(shapes)), start)
        if steps[shape] is None:
            return None
    return end_of((share * run_seconds(run.config, steps[shape_of(run.config)]) for run, share in zip(runs, shares)),
                  jobs)


def seconds_left(runs, jobs):
    """The seconds until these GridPoints have ended, in the order of their start, `jobs` at a time, if each takes as
    long as those that have ended did on average; None before one has."""
    ended = [run.summary["seconds"] for run in runs if "seconds" in run.summary]
    if not ended:
        return None
    mean, now = statistics.fmean(ended), time.monotonic()
    behind = (now - run.started if run.started else 0.0 for run in runs if not run.status)
    return end_of((max(0.0, mean - seconds) for seconds in behind), jobs)


def end_of(seconds, jobs):
    """When the last of runs that take so many seconds ends, `jobs` at a time, each started as soon as one has ended."""
    free_at = [0.0] * jobs
    for duration_of_run in seconds:
        heapq.heapreplace(free_at, free_at[0] + duration_of_run)
    return max(free_at)


def shape_of(config):
    """All that decides the time of a step, as text."""
    train = {key: config["train"].get(key) for key in ("batch_size", "grad_accum", "precision", "gemm", "optimizer")}
    return json.dumps([{**config["model"], "init": None}, train], sort_keys=True)


def step_seconds(run, jobs, seconds, start):
    """The mean seconds of a step of the run, of which `jobs` copies are trained at a time, for so many seconds; None if
    one trains no step."""
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, str(copy)) for copy in range(jobs)]
        config = run.config | {section: run.config[section] | values for section, values in QUICK.items()}
        processes = [start(dataclasses.replace(run, folder=folder, config=config), subprocess.DEVNULL)
                     for folder in folders]
        try:
            end = time.monotonic() + MOST
            while any(process.poll() is None for process in processes) and time.monotonic() < end:
                if seconds and all(len(logged(folder)) > 1 for folder in folders):
                    end, seconds = time.monotonic() + seconds, None
                time.sleep(0.02)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        times = [mean_step(logged(folder)) for folder in folders]
        return None if None in times else statistics.fmean(times)


def logged(folder):
    """[(step, seconds)] of the whole rows of a run's metrics.csv."""
    with contextlib.suppress(OSError), open(folder / "metrics.csv", "rb") as file:
        return [(int(row["step"]), float(row["seconds"])) for row in csv.DictReader(whole_lines(file))]
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
