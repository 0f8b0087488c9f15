#!/usr/bin/env python3
"""Compares runs. Runs that differ only in their seed are one row: mean ± standard error of the mean over seeds (their
standard deviation over √n). The column seeds counts all runs; diverged ones are left out of means, unless all diverged.
A run that was stopped or is still training gives means what it has logged, which is no final loss, and no difference.
Rows of a sweep are called by the keys that vary, other runs by their folder, or their `name` if that was set.

Below the table, final losses are subtracted seed by seed, over the seeds, at least two, that are done in both configs.
A difference is the mean over these seeds ± its standard error. It is clear if it has three seeds or more, and chance
alone makes one as large in at most one case of 20 (Student's t): tables mark it by an asterisk, lists say so.

With placement as the first varied key and pre as the base, post, L 12 is compared with pre, L 12, so that only the
placement differs. The rule: a config is compared with the one that has the base's value of the first varied key and the
same other keys; if there is none, with the first earlier config that differs from it in one key, else with the base. So
pre, L 12, with which another is compared, is itself compared with nothing. A repeat of a config is compared with its
earlier run. The first varied key is the first in the order of labels: keys with words, named grid entries, other keys.
Remarks say how the configs differ, which results stand out, and what cannot be concluded.

Losses are in nats per character. final val: final_val_loss of each run's summary.json, the loss of the whole validation
text after the last step; best val: the lowest during training, on eval.batches; grad first/last: gradient norm of block
1's parameters divided by that of block L's; growth: rms of the stream after block L over that before block 1.

--ranges prints a table of ranges, mean ± K s, for a page or a file. s is the standard deviation over the seeds of the
row, but at least the low median of s over the rows; a ratio is taken by its logarithm. A comment below the table holds
what its rows ask for: seeds, text, a hash of each config, and the keys that are not at their defaults. --check holds
each folder to a file that has such a table, in a line: how many means are as asked, and what is not. Rows are matched
by their keys. A row counts if no key and not the text differs and as many seeds are done, whatever their numbers. Equal
trajectories in two folders are named: runs of the same seeds, or copies. The exit code is 1 unless all is as asked."""

import collections
import csv
import json
import math
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, ScriptError, printable, run_command, text_table
from lib.base.progress import counted
from lib.compare.comparison import comparison
from lib.compare.groups import group_by_config
from lib.compare.pairs import CLEAR
from lib.compare.ranges import NONE, checked, measured, tables_in, titles_of
from lib.logs.runs import find_runs

EXAMPLES = """examples:
  scripts/compare.py runs/quickstart/pre runs/quickstart/post
  scripts/compare.py runs/sweep --base "pre · L 12"
  scripts/compare.py runs/sweep --target 2.0               steps, tokens and seconds to a loss of 2.0
"""
# Columns of the table before the metrics: title, member of an entry of comparison()["runs"], and its config key if any.
FACTS = [("placement", "placement", "model.norm_placement"), ("norm", "norm", "model.norm"),
         ("L", "n_layer", "model.n_layer"), ("params", "params", None), ("status", "status", None)]
STAR = "(*: clear, by Student's t at 5%)"  # what `marked` means, in the line above each table that has it


def print_table(columns, indent=""):
    """Prints columns of cells, titles first. On a terminal, columns that do not fit into the width follow below, after
    the first column again."""
    width, fitting = shutil.get_terminal_size((1000, 24)).columns, len(columns)
    while fitting > 2 and max(map(len, text_table(columns[:fitting]))) + len(indent) > width:
        fitting -= 1
    print(*(indent + line for line in text_table(columns[:fitting])), "", sep="\n")
    if columns[fitting:]:
        print_table([columns[0], *columns[fitting:]], indent)


def print_runs(entries):
    """Prints the table of groups. If there are more than two, a column that repeats the labels is left out, and a
    column with one value for all groups becomes a line below the table."""
    columns, labelled = [["run", *(entry["label"] for entry in entries)]], [entry["group"].labelled for entry in entries]
    if has_seeds := any(len(entry["seeds"]) > 1 for entry in entries):
        columns += [["seeds", *(str(len(entry["seeds"])) for entry in entries)]]
    for title, member, key in FACTS:
        if len(entries) < 3 or not all(labelled) or key not in labelled[0]:
            values = [entry[member] for entry in entries]
            columns.append([title, *(f"{value:,}" if isinstance(value, int) else str(value) for value in values)])
    for key, metric in entries[0]["metrics"].items():
        columns.append([metric["title"], *(entry["metrics"][key]["text"] for entry in entries)])
    common = [column for column in columns[1:] if len(entries) > 2 and len(set(column[1:])) == 1]
    print_table([column for column in columns if column not in common])
    if common:
        print("all: " + ", ".join(f"{title} {cell}" for title, cell, *_ in common) + "\n")
    if has_seeds:
        left_out = any(0 < len(entry["group"].diverged) < len(entry["group"].runs) for entry in entries)
        print("±: standard error of the mean over seeds" + left_out * ", without those that diverged" + "\n")


def marked(pair):
    """The difference, with an asterisk if it is clear: "-0.061 ± 0.009*"."""
    return pair["difference"] + "*" * (pair["verdict"] == CLEAR)


def print_pairs(result):
    """Prints the differences seed by seed: pairs that differ in the compared key alone as a table, if there are several
    settings of the other keys, and the rest as lists."""
    pairs, parts = result["paired"], {entry["label"]: entry["group"].parts for entry in result["runs"]}
    for value in dict.fromkeys(pair["values"][1] for pair in pairs):
        in_settings = [pair for pair in pairs if pair["setting"] is not None and pair["values"][1] == value]
        if len({pair["partner"] for pair in in_settings}) > 1:
            print_settings(in_settings, result["key"], parts)
            pairs = [pair for pair in pairs if pair not in in_settings]
    for partner in dict.fromkeys(pair["partner"] for pair in pairs):
        print(f"final val minus that of {partner}, seed by seed, mean ± standard error:")
        rows = [("  " + pair["group"], pair["difference"], pair["text"])
                for pair in pairs if pair["partner"] == partner]
        print(*text_table([list(column) for column in zip(*rows)]), "", sep="\n")


def print_settings(pairs, compared_key, parts):
    """Prints pairs that differ in the compared key alone, and whose partners have one value of it: a row for each
    setting of the other keys, which is that of one partner, and a column for each value of the compared key, or several
    if keys that have an effect under this value alone vary. `parts`: {label: Group.parts}.

        setting  pre            post minus pre  mix · mix_post_fraction 0.5 minus pre
        L 6      2.41 ± 0.01    +0.02 ± 0.01    +0.01 ± 0.01
        L 12     2.38 ± 0.01    +0.71 ± 0.02*   +0.11 ± 0.02*
    """
    pair_by_partner = {pair["partner"]: pair for pair in pairs}  # a pair of each row
    partner_value = pairs[0]["values"][1]
    columns = [["setting", *(pair["setting"] for pair in pair_by_partner.values())],
               [partner_value, *(pair["partner_loss"] for pair in pair_by_partner.values())]]
    titles = column_titles(pairs, parts)
    cells = {(titles[pair["group"]], pair["partner"]): marked(pair) for pair in pairs}
    for title in dict.fromkeys(titles.values()):
        columns.append([f"{title} minus {partner_value}",
                        *(cells.get((title, partner), "-") for partner in pair_by_partner)])
    print(f"final val in each setting, and differences by {compared_key}, seed by seed {STAR}:\n")
    print_table(columns, "  ")


def column_titles(pairs, parts):
    """{label of a pair's group: the title of its column}: its value of the compared key, followed by the parts of its
    label that tell apart groups of this value in one row."""
    rows = collections.defaultdict(list)  # {(value, partner): the parts of the groups there}
    for pair in pairs:
        rows[pair["values"][0], pair["partner"]].append(parts[pair["group"]])
    telling = {(value, key) for (value, _), members in rows.items() for key in set().union(*members)
               if len({member.get(key) for member in members}) > 1}
    return {pair["group"]: " · ".join([pair["values"][0], *(text for key, text in parts[pair["group"]].items()
                                                           if (pair["values"][0], key) in telling)])
            for pair in pairs}


def print_rates(pairs):
    """Prints the best learning rate of each config and the next best."""
    if pairs:
        rows, settings = [], collections.Counter(pair["setting"] for pair in pairs)
        for pair in pairs:
            next_best, best = (f"{rate:.15g}" for rate in pair["rates"])
            config = pair["setting"] if settings[pair["setting"]] == 1 else pair["partner"]
            rows.append((config or "-", best, pair["partner_loss"], next_best, marked(pair)))
        print(f"best learning rate of each config, and the next best's final val minus its own, seed by seed {STAR}:\n")
        print_table(list(zip(("config", "lr", "final val", "next lr", "difference"), *rows)), "  ")


def print_csv(entries):
    """Prints the table as CSV: a row a group; the names in its configs and its folders; the number of all its seeds; metrics, which are means over the seeds that
    Group.metric_values counts, each followed by its standard error; a column for each key in which groups differ.
    `_at_most` is true if the mean of a metric to a target is an upper bound."""
    keys = dict.fromkeys(key for entry in entries for key in entry["keys"])
    varied = [key for key in keys if key not in [fact_key for _, _, fact_key in FACTS]]
    suffixes = {"mean": "", "standard_error": "_standard_error", "at_most": "_at_most"}
    metrics = entries[0]["metrics"].items()
    columns = [(key, member) for key, metric in metrics for member in suffixes if member in metric]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    titles = [key + suffixes[member] for key, member in columns]
    writer.writerow(["run", "name", "folder", "seeds", *(member for _, member, _ in FACTS), *titles, *varied])
    for entry in entries:
        values = [entry["metrics"][key][member] for key, member in columns]
        writer.writerow([entry["label"], printable(entry["name"]), printable("; ".join(entry["folders"])),
                         len(entry["seeds"]), *(entry[member] for _, member, _ in FACTS),
                         *("" if value is None or math.isnan(value) else value for value in values),
                         *(printable(entry["keys"].get(key, "")) for key in varied)])


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
        hashes = [run.summary.get("trajectory_hash") for run in runs]
        for one in filter(None, hashes):
            holders[one].add(name)
        asked = sum(cell != NONE for cells in table.rows.values() for cell in cells)
        grades.append((name, inside, asked, faults + texts, hashes))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if as_csv:
        writer.writerow(["folder", "as_asked", "asked", "remarks"])
    for name, inside, asked, faults, hashes in grades:
        shared = collections.Counter(other for one in hashes for other in holders[one] - {name})
        copies = [f"{counted(count, 'run')} with the trajectory_hash of one in {printable(other)}"
                  for other, count in shared.items()]
        if as_csv:
            writer.writerow([printable(name), inside, asked, "; ".join(faults + copies)])
        else:
            print("; ".join([f"{printable(name)}: {inside} of {asked} means are in the ranges of {printable(file)}",
                             *faults, *copies]))
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
    parser = Parser("compare", __doc__)
    parser.epilog = EXAMPLES
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run, probe or sweep folder")
    parser.add_argument("--base", metavar="NAME",
                        help="the reference, by label or folder (default: the first run): its value of the first "
                        "varied key is subtracted in each setting")
    parser.add_argument("--target", metavar="LOSS", type=float,
                        help="add the steps, tokens and seconds to this validation loss, linear between evaluations")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the table, comma-separated")
    form.add_argument("--json", action="store_true",
                      help="the whole comparison, for programs; scripts/README.md describes it")
    form.add_argument("--ranges", metavar="K", type=float, help="ranges to expect, mean ± K s, as a table in Markdown")
    parser.add_argument("--check", metavar="FILE",
                        help="hold each folder to the ranges of a file, in a line; with --csv a table of grades")
    args = parser.parse_args(arguments)
    if args.target is not None and not math.isfinite(args.target):
        raise ScriptError(f"--target: got {args.target}; expected a loss, such as 2.0")
    if args.ranges is not None and not 0 < args.ranges < math.inf:
        raise ScriptError(f"--ranges: got {args.ranges}; expected a number above 0, such as 3")
    if args.check:
        if args.json or args.ranges or args.base or args.target:
            parser.error("--check: goes with --csv alone")
        return check(args.check, args.runs, args.csv)
    unreadable = []  # messages about damaged runs
    runs = find_runs(args.runs, "config.json", unreadable)
    if not runs:
        raise ScriptError(unreadable[0], 1)
    result = comparison(runs, args.base, args.target)
    if args.ranges is not None:
        groups = {entry["label"]: entry["group"] for entry in result["runs"]}
        print(measured(" ".join(args.runs), titles_of(groups), groups, args.ranges), end="")
    elif args.json:
        print_json(result)
    elif args.csv:
        print_csv(result["runs"])
    else:
        print_runs(result["runs"])
        print_pairs(result)
        print_rates(result["rates"])
        print("".join(f"- {remark['text']}\n" for remark in result["remarks"]), end="")
    if unreadable:
        raise ScriptError("\n".join(unreadable), 1)
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main, "compare"))
