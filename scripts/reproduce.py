#!/usr/bin/env python3
"""Runs the experiments of configs/papers and holds their numbers against what the papers and laws let expect.

Each claim is a line: what was measured, the range expected, ok or MISSED. Exit code 1 if any is missed.
"""

import argparse
import csv
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("NORMSCOPE_BINARY", str(ROOT / "build" / "normscope"))
UNIGRAM = 3.08  # nats: what counting letters achieves on the bundled corpus
PROBED_DEPTHS = (6, 8, 10, 12, 14, 24, 48)


@dataclass
class Claim:
    """What must come out: `measure` takes what an experiment left and gives a number within [low, high]."""
    text: str
    measure: Callable
    low: float
    high: float


@dataclass
class Experiment:
    """A file of configs/papers, how to run it, and its claims."""
    name: str
    run: Callable  # (config file, out folder, quick) -> what the claims measure
    claims: list


def normscope(*arguments):
    if subprocess.run([PROGRAM, *map(str, arguments)], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        sys.exit(f"[reproduce] `normscope {' '.join(map(str, arguments))}` failed; its message is above")


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Rows:
    """The rows of a sweep's summary.csv."""

    def __init__(self, rows):
        self.rows = rows

    def losses(self, **values):
        """Final validation losses of the runs whose varied keys (their last parts) have these values, by seed. A run
        that diverged counts as having learnt nothing: infinite."""
        def same(row):
            last = {key.rpartition(".")[2]: value for key, value in row.items()}
            return all(last[key] == str(value) if key != "name" else row["name"].startswith(value)
                       for key, value in values.items())
        found = [row for row in self.rows if same(row)]
        if not found:
            sys.exit(f"[reproduce] no run with {values}; the sweep file has changed?")
        return [float(row["final_val_loss"]) if row["status"] == "done" else math.inf for row in found]


def mean(values):
    return sum(values) / len(values)


def sweep(config, out, quick):
    """Runs a sweep; `quick` only reads its file. The rows of its summary, none if quick."""
    if quick:
        normscope("sweep", config, "--dry-run")
        return None
    normscope("sweep", config, "--out", out)
    return Rows(read_csv(out / "summary.csv"))


def probe_depths(config, out, quick):
    """{(placement, L): mean over seeds of |dW2| of block L}."""
    found = {}
    seeds = 4 if quick else 16
    for placement in ("pre", "post"):
        for layers in PROBED_DEPTHS[::3] if quick else PROBED_DEPTHS:
            folder = out / f"{placement}-{layers}"
            normscope("probe", config, "--set", f"model.norm_placement={placement}", "--set", f"model.n_layer={layers}",
                      "--seeds", seeds, "--out", folder, "--overwrite")
            norms = [float(row["grad_norm_batch"]) for seed in range(1, seeds + 1)
                     for row in read_csv(folder / f"seed-{seed}" / "params.csv")
                     if row["param"] == f"blocks.{layers - 1}.ffn.out.weight"]
            found[placement, layers] = mean(norms)
    return found


def slope(found, placement):
    """Of log |dW2| against log L, by least squares."""
    points = [(math.log(layers), math.log(norm)) for (p, layers), norm in found.items() if p == placement]
    x, y = mean([a for a, _ in points]), mean([b for _, b in points])
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x)**2 for a, _ in points)


def paired(rows, key, one, other):
    """The mean over seeds of other's loss minus one's."""
    return mean([b - a for a, b in zip(rows.losses(**{key: one}), rows.losses(**{key: other}))])


def largest_rate(rows, placement):
    """The largest rate up to which every rate ended below 2.9 nats; 0 if none."""
    best = 0.0
    for rate in ("0.001", "0.003", "0.01", "0.03"):
        if rows.losses(norm_placement=placement, lr=rate)[0] > 2.9:
            break
        best = float(rate)
    return best


def final(**values):
    return lambda rows: mean(rows.losses(**values))


EXPERIMENTS = [
    Experiment("xiong", probe_depths, [
        Claim("pre: slope of log |dW2| of block L against log L", lambda f: slope(f, "pre"), -0.55, -0.35),
        Claim("post: the same", lambda f: slope(f, "post"), 0.0, 0.2),
    ]),
    Experiment("warmup", sweep, [
        *(Claim(f"pre, warm-up {w}, lr {lr}: validation loss", final(norm_placement="pre", warmup_steps=w, lr=lr), 2.2, 2.65)
          for w in (0, 200) for lr in ("0.0005", "0.001")),
        Claim("post, no warm-up, lr 0.001: the unigram level", final(norm_placement="post", warmup_steps=0, lr="0.001"),
              UNIGRAM - 0.06, UNIGRAM + 0.1),
        *(Claim(f"post, lr {lr}: what a warm-up of 200 gains",
                lambda rows, lr=lr: mean(rows.losses(norm_placement="post", warmup_steps=0, lr=lr))
                - mean(rows.losses(norm_placement="post", warmup_steps=200, lr=lr)), 0.05, 1)
          for lr in ("0.0005", "0.001")),
    ]),
    Experiment("deep", sweep, [
        Claim("post at L 24: the unigram level", final(norm_placement="post"), UNIGRAM - 0.06, UNIGRAM + 0.1),
        *(Claim(f"{p} at L 24: learns", final(norm_placement=p), 2.2, 2.8) for p in ("pre", "rezero", "res_post")),
    ]),
    Experiment("rmsnorm", sweep, [
        Claim("rmsnorm minus layernorm, paired by seed", lambda rows: paired(rows, "norm", "layernorm", "rmsnorm"), -0.05, 0.05),
    ]),
    Experiment("bias", sweep, [
        Claim("biased minus bias-free FFN, paired by seed", lambda rows: paired(rows, "ffn_bias", "false", "true"), -0.05, 0.05),
    ]),
    Experiment("init", sweep, [
        Claim("Xavier, pre: learns", final(name="xavier-pre"), 2.2, 2.65),
        Claim("Xavier, post: the unigram level", final(name="xavier-post"), UNIGRAM - 0.06, UNIGRAM + 0.1),
        Claim("GPT-2's, post minus pre: no contrast",
              lambda rows: mean(rows.losses(name="gpt2-post")) - mean(rows.losses(name="gpt2-pre")), -0.2, 0.2),
    ]),
    Experiment("stable_lr", sweep, [
        Claim("post: largest rate that learns", lambda rows: largest_rate(rows, "post"), 0, 0),
        *(Claim(f"{p}: largest rate that learns", lambda rows, p=p: largest_rate(rows, p), 0.003, 1)
          for p in ("pre", "sandwich", "res_post", "deepnorm")),
    ]),
]


def main():
    names = [experiment.name for experiment in EXPERIMENTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"what to run (default: all): {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="only see that every file can be run; no claims of training")
    parser.add_argument("--out", metavar="DIR", default="runs/papers", type=Path, help="folder of the runs")
    args = parser.parse_args()
    for name in set(args.names) - set(names):
        parser.error(f"no experiment {name!r}; there are {', '.join(names)}")
    missed = 0
    for experiment in EXPERIMENTS:
        if args.names and experiment.name not in args.names:
            continue
        found = experiment.run(ROOT / "configs" / "papers" / f"{experiment.name}.json", args.out / experiment.name, args.quick)
        print(f"{experiment.name}{': its file is sound' if found is None else ''}", flush=True)
        for claim in experiment.claims if found is not None else []:
            value = claim.measure(found)
            good = claim.low <= value <= claim.high
            missed += not good
            print(f"  {'ok    ' if good else 'MISSED'} {claim.text:58} {value:8.3g}   expected {claim.low:g} to {claim.high:g}",
                  flush=True)
    if missed:
        sys.exit(f"[reproduce] {missed} of the claims {'is' if missed == 1 else 'are'} missed")


if __name__ == "__main__":
    main()
