#!/usr/bin/python3
"""The page of the course, configs/course/README.md: its commands, its tables of ranges, and the outputs that it quotes.

As a program: trains every grid with the given seeds, and prints the tables with the ranges that follow. A range is the
mean over the seeds ± 3 standard deviations, those of the row's own runs or the low median of the column's rows,
whichever is larger. The mean over three seeds is tested against it. Ratios are taken by their logarithms. --write puts
the tables into the page, then runs the page's commands and puts the numbers that they print into its quotations. It
takes about a quarter of an hour on two quiet cores."""

import argparse
import dataclasses
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from cli import ROOT

from lib.comparison import METRICS, comparison  # in scripts, which cli.py puts on the path
from lib.files import read_json
from lib.runs import find_runs

PAGE = Path(ROOT, "configs", "course", "README.md")
RUNS = "runs/course/"  # a table of ranges begins with the folder that its figures are of
DIVERGED = "diverged"
# The environment of commands, which may use all cores: cli.py allows tests one thread.
ALL_CORES = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
COLUMNS = {title: (key, kind) for key, title, kind in METRICS}
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?")


@dataclasses.dataclass
class Table:
    """Ranges of the page: `grid`, the name of its file and folder; `titles` of figures, as compare.py prints them;
    `rows`, {label of a group: a cell a figure}."""
    grid: str
    titles: list
    rows: dict

    def __str__(self):
        lines = [[f"`{RUNS}{self.grid}`", *self.titles], *([label, *cells] for label, cells in self.rows.items())]
        head, *body = (f"| {' | '.join(line)} |\n" for line in lines)
        return head + "|---" * len(lines[0]) + "|\n" + "".join(body)


def tables(text):
    """The tables of ranges of a page, in their order."""
    return [table_of(match) for match in re.findall(rf"^\| `{RUNS}[^\n]*\n(?:\|[^\n]*\n)+", text, re.MULTILINE)]


def table_of(text):
    """A table of ranges from its lines."""
    (folder, *titles), _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines()]
    return Table(folder.strip("`").removeprefix(RUNS), titles, {label: cells for label, *cells in rows})


def commands(text):
    """The lines of the page's blocks for a shell."""
    return [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            for line in block.replace("\\\n", "").splitlines()]


# ---- ranges ---------------------------------------------------------------------------------------------------


def train(grid, seeds, folder):
    """Trains a grid of the course with these seeds instead of its own, below `folder`.
    Returns {label: lib.groups.Group}."""
    file = Path(ROOT, "configs", "course", f"{grid}.json")
    spec = read_json(file)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{grid}.json"
    copy.write_text(json.dumps({**spec, "base": str(file.parent / spec["base"]), "seeds": seeds}), encoding="utf-8")
    subprocess.run([Path(ROOT, "scripts", "sweep.py"), copy, "--out", folder / grid], check=True, stdout=sys.stderr,
                   env=ALL_CORES)
    return {entry["label"]: entry["group"] for entry in comparison(find_runs([folder / grid], "config.json"))["runs"]}


def values_of(group, title):
    """A figure of the runs of a group on the scale on which its range is symmetric; None if all of them diverged."""
    key, kind = COLUMNS[title]
    values = group.metric_values(key)
    if len(group.diverged) == len(group.runs):
        return None
    return [math.log10(value) for value in values] if kind == "ratio" else values


def range_text(values, spread, title):
    """The range as a cell: losses outward to 0.01, ratios to one digit."""
    mean, ends = statistics.fmean(values), []
    for side, outward in ((-1, math.floor), (1, math.ceil)):
        end = mean + side * 3 * spread
        if COLUMNS[title][1] == "ratio":
            digit = 10.0 ** math.floor(end)
            ends.append(f"{outward(10 ** end / digit) * digit:.1g}")
        else:
            ends.append(f"{max(0, outward(end * 100)) / 100:.2f}")
    return " to ".join(ends)


def measured(table, groups):
    """The table with the ranges that follow from these groups."""
    rows = {label: [] for label in groups}
    for title in table.titles:
        values = {label: values_of(group, title) for label, group in groups.items()}
        spreads = {label: statistics.stdev(of) for label, of in values.items() if of}
        usual = statistics.median_low(spreads.values())
        for label, of in values.items():
            rows[label].append(range_text(of, max(spreads[label], usual), title) if of else DIVERGED)
    return Table(table.grid, table.titles, rows)


def misses(table, groups):
    """The faults of the table for these groups: a line for each mean that lies outside its range."""
    lines = [f"{table.grid}: the labels are {', '.join(groups)}; the page has {', '.join(table.rows)}"] * (
        list(groups) != list(table.rows))
    for label in groups.keys() & table.rows.keys():
        for title, cell in zip(table.titles, table.rows[label], strict=True):
            values = values_of(groups[label], title)
            if values is None or cell == DIVERGED:
                if values is not None or cell != DIVERGED:
                    lines.append(f"{table.grid}: {label}: {title}: got {values or DIVERGED}; expected {cell}")
                continue
            mean = statistics.fmean(values)
            value = 10 ** mean if COLUMNS[title][1] == "ratio" else mean
            lower, upper = map(float, cell.split(" to "))
            if groups[label].diverged or not lower <= value <= upper:
                lines.append(f"{table.grid}: {label}: {title}: got {value:.4g}; expected {cell}")
    return lines


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
    for table in tables(text):
        new = measured(table, train(table.grid, args.seeds, args.out))
        print(new)
        text = text.replace(str(table), str(new))
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
        for line in commands(text):
            run(line, stdout=subprocess.DEVNULL)
        for lines, quoted in quotations(text):
            try:
                text = text.replace(quoted, quoted_anew(quoted, output_of(lines)))
            except LookupError as error:
                print(f"{'; '.join(lines)}: {error}; the quotation stays as it is", file=sys.stderr)
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
