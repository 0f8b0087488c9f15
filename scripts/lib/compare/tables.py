"""The tables of a comparison, as compare.py prints them and the page shows them: groups of runs, and differences seed
by seed."""

import collections
from collections import namedtuple

from lib.compare.pairs import CLEAR

# Columns of the table before the metrics: title, member of an entry of comparison()["runs"], and its config key if any.
FACTS = [("placement", "placement", "model.norm_placement"), ("norm", "norm", "model.norm"),
         ("L", "n_layer", "model.n_layer"), ("params", "params", None), ("status", "status", None)]
STAR = "(*: clear, by Student's t at 5%)"  # what `marked` means, in the line above each table that has it

# A table below a heading, or none if that is "", and lines about it. Its first row is the titles, which a list
# (`is_list`) has in Markdown and on the page only.
Part = namedtuple("Part", "heading rows is_list lines", defaults=[()])


def parts_of(result, hidden=()):
    """The Parts of what comparison() returns: the table of groups, the differences, the learning rates. `hidden`:
    metrics that the table of groups leaves out."""
    return [part_of_runs(result["runs"], hidden), *parts_of_pairs(result), *parts_of_rates(result)]


def part_of_runs(entries, hidden):
    """The table of groups. If there are more than two groups, a column that repeats the labels is left out, and a
    column with one value for all groups becomes a line."""
    columns = [["run", *(entry["label"] for entry in entries)]]
    labelled = [entry["group"].labelled for entry in entries]
    lines, metrics = [], {key: metric["title"] for key, metric in entries[0]["metrics"].items() if key not in hidden}
    if has_seeds := any(len(entry["seeds"]) > 1 for entry in entries):
        columns += [["seeds", *(str(len(entry["seeds"])) for entry in entries)]]
    for title, member, key in FACTS:
        if len(entries) < 3 or not all(labelled) or key not in labelled[0]:
            values = [entry[member] for entry in entries]
            columns.append([title, *(f"{value:,}" if isinstance(value, int) else str(value) for value in values)])
    columns += [[title, *(entry["metrics"][key]["text"] for entry in entries)] for key, title in metrics.items()]
    common = [column for column in columns[1:] if len(entries) > 2 and len(set(column[1:])) == 1]
    if common:
        lines.append("all: " + ", ".join(f"{title} {cell}" for title, cell, *_ in common))
    means = [[entry["metrics"][key]["mean"] for key in ("best_val_loss", "final_val_loss")] for entry in entries]
    if any(None not in pair and pair[0] < pair[1] for pair in means):
        lines.append("best val: the lowest at any evaluation, on eval.batches of the validation text; final val: after "
                     "the last step, on all of it")
    if has_seeds:
        left_out = any(0 < len(entry["group"].diverged) < len(entry["group"].runs) for entry in entries)
        lines.append("±: standard error of the mean over seeds" + left_out * ", without those that diverged")
    return Part("", [*zip(*(column for column in columns if column not in common))], False, lines)


def marked(pair):
    """The difference, with an asterisk if it is clear: "-0.061 ± 0.009*"."""
    return pair["difference"] + "*" * (pair["verdict"] == CLEAR)


def parts_of_pairs(result):
    """The differences seed by seed: pairs that differ in the compared key alone as a table, if there are several
    settings of the other keys, and the rest as lists."""
    pairs, parts = result["paired"], {entry["label"]: entry["group"].parts for entry in result["runs"]}
    for value in dict.fromkeys(pair["values"][1] for pair in pairs):
        in_settings = [pair for pair in pairs if pair["setting"] is not None and pair["values"][1] == value]
        if len({pair["partner"] for pair in in_settings}) > 1:
            yield Part(f"{result['metric']} in each setting, and differences by {result['key']}, seed by seed {STAR}:",
                       rows_of_settings(in_settings, parts), False)
            pairs = [pair for pair in pairs if pair not in in_settings]
    for partner in dict.fromkeys(pair["partner"] for pair in pairs):
        rows = [(pair["group"], pair["difference"], pair["text"]) for pair in pairs if pair["partner"] == partner]
        yield Part(f"{result['metric']} minus that of {partner}, seed by seed, mean ± standard error:",
                   [("run", "difference", "shared seeds"), *rows], True)


def rows_of_settings(pairs, parts):
    """The table of pairs that differ in the compared key alone, and whose partners have one value of it: a row for each
    setting of the other keys, which is that of one partner, and a column for each value of the compared key, or several
    if keys that have an effect under this value alone vary. `parts`: {label: Group.parts}.

        setting  pre            post minus pre  mix · mix_post_fraction 0.5 minus pre
        L 6      2.41 ± 0.01    +0.02 ± 0.01    +0.01 ± 0.01
        L 12     2.38 ± 0.01    +0.71 ± 0.02*   +0.11 ± 0.02*
    """
    titles, partner_value = column_titles(pairs, parts), pairs[0]["values"][1]
    cells = {(titles[pair["group"]], pair["partner"]): marked(pair) for pair in pairs}
    columns = [*dict.fromkeys(titles.values())]
    rows = [("setting", partner_value, *(f"{title} minus {partner_value}" for title in columns))]
    for partner, pair in {pair["partner"]: pair for pair in pairs}.items():
        rows.append((pair["setting"], pair["partner_text"], *(cells.get((title, partner), "-") for title in columns)))
    return rows


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


def parts_of_rates(result):
    """The best learning rate of each config and the next best; and configs at the best of each, where it differs."""
    rows, settings = [], collections.Counter(pair["setting"] for pair in result["rates"])
    for pair in result["rates"]:
        next_best, best = (f"{rate:.15g}" for rate in pair["rates"])
        config = pair["setting"] if settings[pair["setting"]] == 1 else pair["partner"]
        rows.append((config or "-", best, pair["partner_text"], next_best, marked(pair)))
    if rows:
        yield Part("best learning rate of each config, and the next best's final val minus its own, seed by seed "
                   f"{STAR}:", [("config", "lr", "final val", "next lr", "difference"), *rows], False)
    rows = [(pair["group"], "minus", pair["partner"], marked(pair)) for pair in result["best"]]
    if rows:
        yield Part(f"final val of configs at the best learning rate of each, seed by seed {STAR}:",
                   [("config", "", "another", "difference"), *rows], False)
