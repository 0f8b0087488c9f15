#!/usr/bin/python3
"""The page of the course, configs/course/README.md: its commands, its tables of ranges, and the outputs that it quotes.

As a program: trains every grid with the given seeds, and prints the tables with the ranges that follow, by
scripts/lib/compare/ranges.py. The mean over three seeds is tested against them. --write puts the tables into the page, then
runs the page's commands and puts the numbers that they print into its quotations. It takes about a quarter of an hour
on two quiet cores."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from cli import ROOT

from lib.compare.comparison import comparison  # in scripts, which cli.py puts on the path
from lib.base.files import read_json
from lib.base.tables import markdown_table
from lib.compare.departures import logs_of
from lib.compare.groups import group_by_config
from lib.compare.ranges import asked_of, measured, tables_in
from lib.compare.symptoms import SYMPTOMS, figures, first_sight
from lib.logs.run_text import text_hash
from lib.logs.runs import Run, find_runs
from lib.sweeps.grid import load_sweep, resolve, write_labels

PAGE = Path(ROOT, "configs", "course", "README.md")
RUNS = "runs/course/"  # a table of ranges begins with the folder that its figures are of
# The environment of commands, which may use all cores: cli.py allows tests one thread.
ALL_CORES = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")


def commands(text):
    """The lines of the page's blocks for a shell."""
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            for line in block.replace("\\\n", "").splitlines()]


# ---- ranges ---------------------------------------------------------------------------------------------------


def file_of(grid):
    return PAGE.parent / f"{grid}.json"


def planned(grid, folder):
    """{label of a row: what it asks for} of a grid of the course, of which nothing is trained."""
    sweep = load_sweep(file_of(grid))
    resolve(sweep)
    write_labels(sweep, folder)
    Path(folder, "summary.csv").touch()  # so that a sweep made its runs
    runs = [Run(Path(folder, run.name), run.config, {"corpus_hash": text_hash(json.dumps(run.config["data"]))})
            for run in sweep.runs]
    seeds = read_json(file_of(grid))["seeds"]
    return {group.label: asked_of(group, seeds) for group in group_by_config(runs)}


def train(grid, seeds, folder):
    """Trains a grid of the course with these seeds instead of its own, below `folder`.
    Returns {label: lib.compare.groups.Group}."""
    file = file_of(grid)
    spec = read_json(file)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{grid}.json"
    copy.write_text(json.dumps({**spec, "base": str(file.parent / spec["base"]), "seeds": seeds}), encoding="utf-8")
    subprocess.run([Path(ROOT, "scripts", "sweep.py"), copy, "--out", folder / grid], check=True, stdout=sys.stderr,
                   env=ALL_CORES)
    return {entry["label"]: entry["group"] for entry in comparison(find_runs([folder / grid], "config.json"))["runs"]}


# ---- symptoms -------------------------------------------------------------------------------------------------

TITLES = ("fault", "log", "figure", "sign", "row", "step", "with the fault", "run without it", "there", "picture")
TABLE = re.compile(r"^\| fault \|.*?^$", re.MULTILINE | re.DOTALL)


def cells_of(symptom, case):
    """The first cells of a case's row in the table of symptoms."""
    return case, f"`{symptom.log}`", symptom.column, f"{symptom.sign} {symptom.limit:.2g}"


def symptoms_anew(text, folder):
    """The page with a table of symptoms that has the figures of the runs in this folder."""
    runs = {entry["label"]: entry["group"].runs[0] for entry in comparison(find_runs([folder], "config.json"))["runs"]}
    rows = [TITLES]
    for symptom in SYMPTOMS:
        for case, cured in symptom.cases.items():
            step, place, figure = first_sight(symptom, runs[case], logs_of(runs[case]))
            there = figures(symptom, runs[cured], logs_of(runs[cured]))[step][place]
            rows.append((*cells_of(symptom, case), place, str(step), f"{figure:.3g}", cured, f"{there:.3g}",
                         f"`{symptom.picture}`"))
    return TABLE.sub(lambda _: markdown_table(rows), text)


# ---- quotations -----------------------------------------------------------------------------------------------


def skeleton(line):
    """A line of output without the width of its columns and without numbers, except one that begins it."""
    first, *others = line.split() or [""]
    return " ".join([first, *(NUMBER.sub("#", word) for word in others)])


def quotations(text):
    """[(commands, quoted text)] of the page: a block for a shell and the block of its output that follows at once."""
    return [(commands(f"```sh\n{block}```"), quoted) for block, quoted in
            re.findall(r"^```sh\n([^`]*?)^```\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def quoted_anew(quoted, output):
    """The quotation with the numbers of this output, in which its lines are looked for in their order. LookupError: a
    line is not there, whatever its numbers."""
    rest, lines = iter(output.splitlines()), []
    for line in quoted.splitlines():
        lines.append(next((printed for printed in rest if skeleton(printed) == skeleton(line)), None))
        if lines[-1] is None:
            raise LookupError(f"no command prints {line}")
    return "".join(line + "\n" for line in lines)


def output_of(lines):
    """The output of commands. One that fails, as `check` of a faulty wiring does, has an output too."""
    return "".join(run(line, stdout=subprocess.PIPE, encoding="utf-8").stdout for line in lines)


def run(line, **options):
    """Runs a command of the page in the root of the tree."""
    return subprocess.run(shlex.split(line, comments=True), cwd=ROOT, env=ALL_CORES, check=False, **options)


def main():
    """Reads the command line, trains and prints or writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--out", default="runs/course_ranges", help="folder of the runs, which are kept")
    parser.add_argument("--write", action="store_true", help="write the page")
    args = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    for table in tables_in(text):
        grid = table.folder.removeprefix(RUNS)
        groups = train(grid, args.seeds, args.out)
        new = measured(table.folder, table.titles, groups, seeds=read_json(file_of(grid))["seeds"])
        print(new)
        text = text.replace(str(table), str(new))
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
        for line in commands(text):
            run(line, stdout=subprocess.DEVNULL)
        text = symptoms_anew(text, Path(ROOT, RUNS, "symptoms"))
        for lines, quoted in quotations(text):
            try:
                text = text.replace(quoted, quoted_anew(quoted, output_of(lines)))
            except LookupError as error:
                print(f"{'; '.join(lines)}: {error}; the quotation stays as it is", file=sys.stderr)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
