#!/usr/bin/env python3
"""Compares runs. Runs that differ only in their seed are one row: mean ± standard error of the mean over seeds (their
standard deviation over √n). The column seeds counts all runs; diverged ones are left out of means, unless all diverged.
A run that was stopped or is still training gives means what it has logged, which is no final loss, and no difference.
Rows of a sweep are called by the keys that vary, other runs by their folder; the keys that vary stand beside it if they
are four at most and tell all rows apart.

Below the table, final losses are subtracted seed by seed, over the seeds, at least two, that are done in both configs.
A difference is the mean over these seeds ± its standard error. It is clear if it has three seeds or more, and chance
alone makes one as large in at most one case of 20 (Student's t): tables mark it by an asterisk, lists say so.

With placement as the compared key and pre as the base, post, L 12 is compared with pre, L 12, so that only the
placement differs. The rule: a config is compared with the one that has the base's value of the compared key and the
same other keys; if there is none, with the first earlier config that differs from it in one key, else with the base. So
pre, L 12, with which another is compared, is itself compared with nothing. A repeat of a config is compared with its
earlier run. The compared key is --by, or that of a value given as --base, else the first that varies, in the order of
labels: keys whose value alone is the label (post, rmsnorm, sgd), named entries of a grid, other keys (L 12, schedule
linear). The best learning rate of a config is compared with its next best, and configs that differ in it are compared
at the best of each; both need two seeds or more, all done. Remarks say how the configs differ, which results stand out,
and what cannot be concluded.

Losses are in nats per character. final val: final_val_loss of each run's summary.json, the loss of the whole validation
text after the last step; best val: the lowest during training, on eval.batches; grad first/last: gradient norm of block
1's parameters divided by that of block L's; growth: rms of the stream after block L over that after block 1.

--ranges prints a table of ranges, mean ± K s, for a page or a file. s is the standard deviation over the seeds of the
row, but at least the low median of s over the rows; a ratio is taken by its logarithm. A comment below the table holds
what its rows ask for: seeds, text, a hash of each config, and the keys that are not at their defaults. --check holds
each folder to a file that has such a table, in a line: how many means are as asked, and what is not. Rows are matched
by their keys. A row counts if no key and not the text differs and three seeds are done or diverged (or as many as the
range has, if fewer), whatever their numbers. Take ranges of five seeds or more: those of three are too narrow now and
then. Equal trajectories in two folders are named: runs of the same seeds, or copies. The exit code is 1 unless all is
as asked."""

import collections
import json
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base import command
from lib.base.command import Parser, ScriptError, printable
from lib.base.progress import counted
from lib.base.tables import markdown_table, print_csv, print_table, text_table
from lib.compare.comparison import SPEED, comparison
from lib.compare.groups import group_by_config
from lib.compare.ranges import NONE, checked, measured, tables_in, titles_of
from lib.compare.tables import FACTS, parts_of
from lib.logs.runs import find_runs

EXAMPLES = """examples:
  scripts/compare.py runs/quickstart/pre runs/quickstart/post
  scripts/compare.py runs/sweep --base peri                differences from peri in each setting of the other keys
  scripts/compare.py runs/sweep --by model.n_layer --metric growth
  scripts/compare.py runs/sweep --target 2.0               steps, tokens and seconds to a loss of 2.0
"""


def print_part(part, markdown):
    """Prints a Part, and an empty line after its table and after each of its lines."""
    heading, rows, is_list, lines = part
    if heading:
        print(heading if is_list and not markdown else heading + "\n")
    if markdown:
        print(markdown_table(rows))
    elif is_list:
        print(*("  " + line for line in text_table(rows[1:])), "", sep="\n")
    else:
        print_table(rows, "  " * bool(heading))
    print("".join(f"{line}\n\n" for line in lines), end="")


def rows_of_csv(entries):
    """The rows of the CSV: a row a group; the names in its configs and its folders; the number of all its seeds;
    metrics, which are means over the seeds that Group.metric_values counts, each followed by its standard error; a
    column for each key in which groups differ. `_at_most` is true if the mean of a metric to a target is an upper
    bound."""
    keys = dict.fromkeys(key for entry in entries for key in entry["keys"])
    varied = [key for key in keys if key not in [fact_key for _, _, fact_key in FACTS]]
    suffixes = {"mean": "", "standard_error": "_standard_error", "at_most": "_at_most"}
    metrics = entries[0]["metrics"].items()
    columns = [(key, member) for key, metric in metrics for member in suffixes if member in metric]
    titles = [key + suffixes[member] for key, member in columns]
    yield ["run", "name", "folder", "seeds", *(member for _, member, _ in FACTS), *titles, *varied]
    for entry in entries:
        values = [entry["metrics"][key][member] for key, member in columns]
        yield [entry["label"], printable(entry["name"]), printable("; ".join(entry["folders"])), len(entry["seeds"]),
               *(entry[member] for _, member, _ in FACTS),
               *("" if value is None or math.isnan(value) else value for value in values),
               *(printable(entry["keys"].get(key, "")) for key in varied)]


def print_json(result):
    """The whole comparison as JSON, with null for NaN and infinities, which JSON cannot hold."""
    written = json.dumps(result, default=lambda group: group.label)
    print(json.dumps(json.loads(written, parse_constant=lambda _: None), indent=2))


def check(file, paths, as_csv):
    """Prints for each folder how many figures are as the file asks, and what is not. Returns the exit code."""
    tables = tables_in(Path(file).read_text(encoding="utf-8"))
    together = " ".join(paths)  # a table may be of several folders
    is_one = any(is_of(table, together) for table in tables)
    grades, holders = [], collections.defaultdict(set)  # {trajectory_hash: folders with such a run}
    for name, folders in [(together, paths)] if is_one else [(path, [path]) for path in paths]:
        table, faults, runs = table_of(tables, name, file), [], []
        try:
            runs = find_runs(folders, "config.json", faults)
        except ScriptError as error:
            faults.append(str(error))
        inside, texts = checked(table, {group.label: group for group in group_by_config(runs)})
        hashes = [run.summary["trajectory_hash"] for run in runs if "trajectory_hash" in run.summary]
        for one in hashes:
            holders[one].add(name)
        asked = sum(cell != NONE for cells in table.rows.values() for cell in cells)
        grades.append((name, inside, asked, faults + texts, hashes))
    rows = [("folder", "as_asked", "asked", "remarks")]
    for name, inside, asked, faults, hashes in grades:
        shared = collections.Counter(other for one in hashes for other in holders[one] - {name})
        remarks = faults + [f"{counted(count, 'run')} with the digits of one in {printable(other)}"
                            for other, count in shared.items()]
        rows.append((printable(name), inside, asked, "; ".join(remarks)))
        if not as_csv:
            line = f"{printable(name)}: {inside} of {asked} means are in the ranges of {printable(file)}"
            print("; ".join([line, *remarks]))
    if as_csv:
        print_csv(rows)
    return int(any(faults for _, _, _, faults, _ in grades))


def is_of(table, folder):
    """Whether a table of ranges is of this folder, or of several, joined by blanks."""
    return [*map(os.path.normpath, table.folder.split(" "))] == [*map(os.path.normpath, folder.split(" "))]


def table_of(tables, folder, file):
    """The table of ranges by which a folder is judged: its own, one of a folder with the same name, or the only one."""
    own = ([table for table in tables if is_of(table, folder)]
           or [table for table in tables if Path(table.folder).name == Path(folder).name] or tables)
    if len(own) != 1:
        raise ScriptError(f"{printable(file)}: has {len(tables)} tables of ranges, and not one of {printable(folder)}; "
                          "expected one, as --ranges prints it")
    return own[0]


def main(arguments=None):
    """Reads the command line and prints the comparison. Returns the exit code."""
    parser = Parser("compare", __doc__, epilog=EXAMPLES)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
    parser.add_argument("--base", metavar="NAME",
                        help="the reference (default: the first run): a row by its label or folder, whose value of the "
                        "compared key is subtracted in each setting of the others; or a value, such as peri or "
                        "\"L 6\", whose key is then the compared one")
    parser.add_argument("--by", metavar="KEY", help="the compared key, such as train.warmup_steps (default: as above)")
    parser.add_argument("--metric", metavar="NAME", default="final_val_loss",
                        help="a number of summary.json, whose differences are shown instead of final val's")
    parser.add_argument("--speed", action="store_true", help="add tokens/s, which --csv and --json always have")
    parser.add_argument("--target", metavar="LOSS", type=float,
                        help="add the steps, tokens and seconds to this validation loss, linear between evaluations")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the table, comma-separated")
    form.add_argument("--json", action="store_true",
                      help="the whole comparison, for programs; scripts/README.md describes it")
    form.add_argument("--markdown", action="store_true", help="all tables in Markdown, to hand in")
    form.add_argument("--ranges", metavar="K", type=float, help="ranges to expect, mean ± K s, as a table in Markdown")
    parser.add_argument("--check", metavar="FILE",
                        help="hold each folder to the ranges of a file, in a line; with --csv a table of grades")
    args = parser.parse_args(arguments)
    if args.target is not None and not math.isfinite(args.target):
        raise ScriptError(f"--target: got {args.target}; expected a loss, such as 2.0")
    if args.ranges is not None and not 0 < args.ranges < math.inf:
        raise ScriptError(f"--ranges: got {args.ranges}; expected a number above 0, such as 3")
    if args.check:
        if any((args.json, args.markdown, args.ranges, args.base, args.by, args.target, args.speed)):
            parser.error("--check: goes with --csv alone")
        return check(args.check, args.runs, args.csv)
    unreadable = []  # messages about damaged runs
    runs = find_runs(args.runs, "config.json", unreadable)
    if not runs:
        raise ScriptError(unreadable[0], 1)
    result = comparison(runs, args.base, args.target, args.by, args.metric)
    if args.ranges is not None:
        groups = {entry["label"]: entry["group"] for entry in result["runs"]}
        print(measured(" ".join(args.runs), titles_of(groups), groups, args.ranges), end="")
    elif args.json:
        print_json(result)
    elif args.csv:
        print_csv(rows_of_csv(result["runs"]))
    else:
        for part in parts_of(result, set() if args.speed else {SPEED} - {args.metric}):
            print_part(part, args.markdown)
        print("".join(f"- {remark['text']}\n" for remark in result["remarks"]), end="")
    if unreadable:
        raise ScriptError("\n".join(unreadable), 1)
    return 0


if __name__ == "__main__":
    command.main(main, "compare")
