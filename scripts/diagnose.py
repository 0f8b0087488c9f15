#!/usr/bin/env python3
"""What moved first in a run? The columns of its four logs, in the order of the step at which they leave the range of
healthy runs, and the fault of the course's table of symptoms (configs/course/README.md, task 8) whose sign is seen
first.

A cell is out if it is outside [lowest / 3, highest * 3] of the healthy runs' cells of the same row and column, at its
step and at the logged ones before and after. A column leaves at the first step at which a third of its cells (at
least three, if it has them) are out, and are so at the next logged step too, if there is one with cells to compare.
Losses are compared as perplexities, the cosine of tokens by its distance from 1, heads with all heads of their layer; a
logit below 3 counts as 3, any value that is not finite is out, and sizes below 1e-5 of the column's largest count as
that. Rows whose healthy cells are all 0 or not finite are left out.

HEALTHY is one run or more that are as the run should be, best with other seeds. Without any, the run's own rows before
stand for them, the first ten at most; then a healthy run's columns leave too, as it learns, only later.

A sign is seen at the first step at which a quarter of the rows that it is about show it; one that a healthy run shows
as early is none.

The table: the `step` at which a `column` of a `log` leaves; its value in the `run` in the first `row` that is out then;
its range in the `healthy run` (`2 healthy runs`; without any, the `first rows`); and how many `more` rows are out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, ScriptError, main, printable
from lib.base.tables import print_csv, print_table
from lib.compare.departures import departures, logs_of
from lib.compare.symptoms import fitting
from lib.logs.runs import Run, find_runs

EXAMPLES = """examples:
  scripts/diagnose.py runs/course/symptoms/fault=rate-too-high_seed=1 runs/course/symptoms/fault=healthy_seed=1
  scripts/diagnose.py runs/bad
"""


def rows_of(found, title):
    """The table of departures; `title`: of the column with their ranges."""
    rows = [("step", "log", "column", "run", title, "row", "more")]
    for entry in found:
        texts = dict.fromkeys(f"{value:.3g}" for value in (entry.low, entry.high))
        rows.append((str(entry.step), entry.log, entry.column, f"{entry.value:.3g}", " to ".join(texts), entry.place,
                     str(entry.others)))
    return rows


def print_symptom(sign):
    """Prints the row of the table of symptoms that symptoms.fitting found."""
    if sign is None:
        print("no sign of the table of symptoms (configs/course/README.md, task 8) is seen")
        return
    symptom, step, place, figure = sign
    print(f"{symptom.fault}: at step {step}, {symptom.log}{place and ', ' + place}: {symptom.column} is {figure:.3g}, "
          f"{symptom.sign} {symptom.limit:.3g}\n  {symptom.text}".replace("`", ""))


def run():
    """Reads the command line and prints the table and the symptom."""
    parser = Parser("diagnose", __doc__, epilog=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="run folder, or a seed's folder of a probe")
    parser.add_argument("healthy", metavar="HEALTHY", nargs="*", help="run, probe or sweep folder of healthy runs")
    parser.add_argument("--csv", action="store_true", help="the table of columns alone, comma-separated")
    args = parser.parse_args()
    ill = Run(args.run)
    healthy = [other for other in (find_runs(args.healthy, "config.json") if args.healthy else [])
               if other.folder.resolve() != ill.folder.resolve()]
    if args.healthy and not healthy:
        raise ScriptError(f"{printable(' '.join(args.healthy))}: no run but {ill} itself")
    logs, beside = logs_of(ill), [(other, logs_of(other)) for other in healthy]
    try:
        found = departures(logs, [other for _, other in beside])
    except ScriptError as error:
        raise ScriptError(f"{ill}: {error}") from None
    title = {0: "first rows", 1: "healthy run"}.get(len(healthy), f"{len(healthy)} healthy runs")
    if args.csv:
        print_csv(rows_of(found, title))
        return
    if found:
        print_table(rows_of(found, title))
    else:
        print(f"no column leaves the range of the {title}\n")
    print_symptom(fitting(ill, logs, beside))


if __name__ == "__main__":
    main(run, "diagnose")
