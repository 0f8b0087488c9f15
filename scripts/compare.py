#!/usr/bin/env python3
"""Compares runs. Runs that differ only in their seed are one row: mean ± standard error of the mean over seeds (their
standard deviation over √n). The column seeds counts all runs; diverged ones are left out of means, unless all diverged.

Below the table, losses are subtracted seed by seed, over the seeds that are done in both configs. A config is compared
with the one that has the base's value of the first varied key and the same other keys, as post, L 12 with pre, L 12. If
there is none, it is compared with the first earlier config that differs from it in one key, else with the base. A
config that serves as partner by the first rule (pre, L 12) has no partner itself. A repeat of a config is compared with
its earlier run. The first varied key is the first in the order of labels: keys with words, named grid entries, other
keys. Remarks say how the configs differ, which results stand out, and what cannot be concluded.

Losses are in nats per character; grad first/last: gradient norm of block 1's parameters divided by that of block L's;
growth: rms of the stream after block L over that before block 1."""

import csv
import json
import math
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.command import Parser, ScriptError, printable, run_command, text_table
from lib.comparison import comparison
from lib.runs import find_runs

EXAMPLES = """examples:
  scripts/compare.py runs/quickstart/pre runs/quickstart/post
  scripts/compare.py runs/sweep --base "pre · L 12"
  scripts/compare.py runs/sweep --target 2.0               steps, tokens and seconds to a loss of 2.0
"""
# Columns of the table before the metrics: title, member of an entry of comparison()["runs"], and its config key if any.
FACTS = [("placement", "placement", "model.norm_placement"), ("norm", "norm", "model.norm"),
         ("L", "n_layer", "model.n_layer"), ("params", "params", None), ("status", "status", None)]


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
    columns = [["run", *(entry["label"] for entry in entries)]]
    if has_seeds := any(len(entry["seeds"]) > 1 for entry in entries):
        columns += [["seeds", *(str(len(entry["seeds"])) for entry in entries)]]
    for title, member, key in FACTS:
        if len(entries) < 3 or key not in entries[0]["group"].labelled:
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
    return pair["difference"] + "*" * (pair["verdict"] == "a clear difference")


def print_pairs(pairs, compared_key):
    """Prints the differences seed by seed: pairs that differ in the compared key alone as a table, if there are several
    settings of the other keys, and the rest as lists."""
    in_settings = [pair for pair in pairs if pair["setting"] is not None]
    if len({pair["partner"] for pair in in_settings}) > 1:
        print_settings(in_settings, compared_key)
        pairs = [pair for pair in pairs if pair not in in_settings]
    for partner in dict.fromkeys(pair["partner"] for pair in pairs):
        print(f"final val minus that of {partner}, seed by seed, mean ± standard error:")
        rows = [("  " + pair["group"], pair["difference"], pair["text"])
                for pair in pairs if pair["partner"] == partner]
        print(*text_table([list(column) for column in zip(*rows)]), "", sep="\n")


def print_settings(pairs, compared_key):
    """Prints pairs that differ in the compared key alone: a row for each setting of the other keys, which is that of
    one partner, and a column for each value of the compared key.

        setting  pre            post minus pre
        L 6      2.41 ± 0.01    +0.02 ± 0.01
        L 12     2.38 ± 0.01    +0.71 ± 0.02*
    """
    pair_by_partner = {pair["partner"]: pair for pair in pairs}  # a pair of each row
    partner_value = pairs[0]["values"][1]
    columns = [["setting", *(pair["setting"] for pair in pair_by_partner.values())],
               [partner_value, *(pair["partner_loss"] for pair in pair_by_partner.values())]]
    cells = {(pair["values"][0], pair["partner"]): marked(pair) for pair in pairs}
    for value in dict.fromkeys(value for value, _ in cells):
        columns.append([f"{value} minus {partner_value}",
                        *(cells.get((value, partner), "-") for partner in pair_by_partner)])
    print(f"final val in each setting, and differences by {compared_key}, seed by seed (*: clear, by Student's t at "
          "5%):\n")
    print_table(columns, "  ")


def print_rates(pairs):
    """Prints the best learning rate of each config and the next best."""
    if pairs:
        rows = []
        for pair in pairs:
            next_best, best = (f"{rate:.15g}" for rate in pair["rates"])
            rows.append((pair["setting"] or "-", best, pair["partner_loss"], next_best, marked(pair)))
        print("best learning rate of each config, and the next best's final val minus its own, seed by seed:\n")
        print_table(list(zip(("config", "lr", "final val", "next lr", "difference"), *rows)), "  ")


def print_csv(entries):
    """Prints the table as CSV: a row a group; the number of all its seeds; metrics, which are means over the seeds that
    Group.metric_values counts, each followed by its standard error; a column for each key in which groups differ.
    `_at_most` is true if the mean of a metric to a target is an upper bound."""
    keys = dict.fromkeys(key for entry in entries for key in entry["keys"])
    varied = [key for key in keys if key not in [fact_key for _, _, fact_key in FACTS]]
    suffixes = {"mean": "", "standard_error": "_standard_error", "at_most": "_at_most"}
    metrics = entries[0]["metrics"].items()
    columns = [(key, member) for key, metric in metrics for member in suffixes if member in metric]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    titles = [key + suffixes[member] for key, member in columns]
    writer.writerow(["run", "seeds", *(member for _, member, _ in FACTS), *titles, *varied])
    for entry in entries:
        values = [entry["metrics"][key][member] for key, member in columns]
        writer.writerow([entry["label"], len(entry["seeds"]), *(entry[member] for _, member, _ in FACTS),
                         *("" if value is None or math.isnan(value) else value for value in values),
                         *(printable(entry["keys"].get(key, "")) for key in varied)])


def print_json(result):
    """The whole comparison as JSON, with null for NaN and infinities, which JSON cannot hold."""
    written = json.dumps(result, default=lambda group: group.label)
    print(json.dumps(json.loads(written, parse_constant=lambda _: None), indent=2))


def main(arguments=None):
    """Reads the command line and prints the comparison."""
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
    form.add_argument("--json", action="store_true", help="the whole comparison, for programs")
    args = parser.parse_args(arguments)
    if args.target is not None and not math.isfinite(args.target):
        raise ScriptError(f"--target: got {args.target}; expected a loss, such as 2.0")
    unreadable = []  # messages about damaged runs
    runs = find_runs(args.runs, "config.json", unreadable)
    if not runs:
        raise ScriptError(unreadable[0], 1)
    result = comparison(runs, args.base, args.target)
    if args.json:
        print_json(result)
    elif args.csv:
        print_csv(result["runs"])
    else:
        print_runs(result["runs"])
        print_pairs(result["paired"], result["key"])
        print_rates(result["rates"])
        print("".join(f"- {remark['text']}\n" for remark in result["remarks"]), end="")
    if unreadable:
        raise ScriptError("\n".join(unreadable), 1)


if __name__ == "__main__":
    sys.exit(run_command(main, "compare"))
