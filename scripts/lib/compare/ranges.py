"""Tables of ranges: in which range each figure of a group of runs is to be expected, by runs with several seeds. With K
= 3, the mean over other seeds is hardly ever outside unless something else is different.

A range is mean ± K s. s is the standard deviation over the seeds of the row, but at least the low median of s over the
rows of the column. Ratios are taken by their logarithms. A row whose runs all diverged says so; "-" is no range.

Below a table a comment, which Markdown does not show, says what its rows ask for: a line of JSON for what all of them
have in common, and one for what each has besides. `config` is a hash of the config without seed and bookkeeping; keys
at their defaults are left out."""

import hashlib
import json
import math
import re
import statistics
from collections import namedtuple

from lib.base.command import ScriptError, printable
from lib.base.files import JSON
from lib.base.keys import fields
from lib.base.tables import markdown_cells, markdown_table
from lib.compare.comparison import METRICS, SPEED

KEYS = {title: key for key, title in METRICS.items() if key != SPEED}  # of columns that may have ranges
RATIOS = ("grad first/last", "growth")  # their titles
DIVERGED, NONE = "diverged", "-"
ENOUGH = 3  # seeds for a mean that is held to a range
TABLE = re.compile(r"^\|[^\n]*\n\|-[^\n]*\n(?:\|[^\n]*(?:\n|\Z))+(?:<!--[^\n]*\n(?:{[^\n]*\n)+-->\n?)?", re.MULTILINE)


class Ranges(namedtuple("Ranges", "folder titles rows asked", defaults=[{}])):
    """A table of ranges: the `folder` of the runs that it is of; `titles` of the figures, as compare.py prints them;
    `rows`, {label of a group: a cell a figure}, "2.46 to 2.49", "diverged" or "-"; and `asked`, {label: asked_of it},
    empty without the comment."""

    def __str__(self):
        lines = [[f"`{self.folder}`", *self.titles], *([label, *cells] for label, cells in self.rows.items())]
        common = {key: value for key, value in next(iter(self.asked.values()), {}).items()
                  if all(asked.get(key) == value for asked in self.asked.values())}
        parts = [common, *({key: value for key, value in asked.items() if key not in common}
                           for asked in self.asked.values())]
        comment = "".join(json.dumps(part, ensure_ascii=False) + "\n" for part in parts)
        return (markdown_table(lines)
                + f"<!-- what the rows ask for: all of them, and each\n{comment}-->\n" * bool(self.asked))


def tables_in(text):
    """The Ranges of a Markdown text, in order; other tables are passed over. ScriptError: a comment is damaged."""
    tables = []
    for match in TABLE.findall(text):
        lines = match.splitlines()
        (folder, *titles), _, *rows = [markdown_cells(line) for line in lines if line.startswith("|")]
        if titles and KEYS.keys() >= {*titles} and all(len(row) == len(titles) + 1 for row in rows):
            try:
                common, *asked = [JSON.decode(line) for line in lines if line.startswith("{")] or [{}]
                is_whole = len(asked) in (0, len(rows)) and all({"config", "seeds"} <= {*common, *part}
                                                                for part in asked)
            except ValueError:
                is_whole = False
            if not is_whole:
                raise ScriptError(f"the comment below the table of {printable(folder)} is damaged: expected a line of "
                                  "JSON for all rows and one for each, as --ranges prints them")
            tables.append(Ranges(folder.strip("`"), titles, {label: cells for label, *cells in rows},
                                 {row[0]: common | part for row, part in zip(rows, asked)}))
    return tables


def values_of(group, title):
    """The finite figures of the runs of a group on the scale on which their range is symmetric; None if all of them
    diverged."""
    if len(group.diverged) == len(group.runs):
        return None
    values = [value for value in group.metric_values(KEYS[title]) if math.isfinite(value) and value > 0]
    return [math.log10(value) for value in values] if title in RATIOS else values


def titles_of(groups):
    """The titles of the figures that can have ranges. ScriptError: there is none."""
    values = {title: [values_of(group, title) for group in groups.values()] for title in KEYS}
    titles = [title for title, of in values.items() if any(of) or of.count(None) == len(of)]
    if not titles:
        raise ScriptError("--ranges: no run has a figure yet; train them to their end")
    return titles


def asked_of(group, seeds=None):
    """What a row asks for that is made from a group: {"config": the hash, "seeds": those of its runs or others, and the
    keys, "text" among them, that are not at their defaults}."""
    stated, derived = group.config.stated, group.runs[0].config.get("$derived", ())
    digest = hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:12]
    return {"config": digest, "seeds": seeds or sorted(run.seed for run in group.runs),
            **{key: value for key, value in stated.items() if key not in derived}}


def measured(folder, titles, groups, factor=3, seeds=None):
    """The Ranges of {label: Group}; `factor`: K; `seeds`: as in asked_of. ScriptError: no group has a standard
    deviation."""
    rows = {label: [] for label in groups}
    for title in titles:
        values = {label: values_of(group, title) for label, group in groups.items()}
        deviations = {label: statistics.stdev(of) for label, of in values.items() if of and len(of) > 1}
        if any(values.values()) and not deviations:
            raise ScriptError(f"--ranges: no row has two values of {title}; train more seeds")
        for label, of in values.items():
            s = max(deviations.get(label, 0), statistics.median_low(deviations.values())) if of else 0
            without = DIVERGED if of is None else NONE
            rows[label].append(range_text(statistics.fmean(of), factor * s, title) if of else without)
    return Ranges(folder, titles, rows, {label: asked_of(group, seeds) for label, group in groups.items()})


def range_text(mean, distance, title):
    """The range as a cell, rounded outward: losses to 0.01, ratios to one digit."""
    ends = []
    for side, outward in ((-1, math.floor), (1, math.ceil)):
        end = mean + side * distance
        if title in RATIOS:
            digit = 10.0 ** math.floor(end)
            ends.append(f"{float(f'{outward(round(10 ** end / digit, 6)) * digit:.1g}'):g}")
        else:
            ends.append(f"{max(0, outward(round(end * 100, 6))) / 100:.2f}")
    return " to ".join(ends)


# ---- whether runs are as asked ----------------------------------------------------------------------------------


def checked(table, groups):
    """(the number of figures of {label: Group} that are as the Ranges ask, a text for whatever is not). A row in whose
    runs a key, the text or the number of seeds is another has none."""
    names, inside = group_of_rows(table, groups), 0
    texts = [f"{label}: no row of the table" for label in groups if label not in names.values()]
    for label, cells in table.rows.items():
        if label not in names:
            texts.append(f"{label}: no runs")
            continue
        group, asked = groups[names[label]], table.asked.get(label)
        faults = asked and [*changes(asked, asked_of(group)), *missing_seeds(asked["seeds"], group)]
        if not faults:
            outside = [outside_text(group, title, cell) for title, cell in zip(table.titles, cells) if cell != NONE]
            faults = [f"{title} {text}" for title, text in zip(table.titles, outside) if text]
            inside += outside.count("")
        texts += [f"{label}: {fault}" for fault in faults]
    return inside, texts


def group_of_rows(table, groups):
    """{label of a row: label of its group}: of the same name without a comment, else those that differ least first."""
    if not table.asked:
        return {label: label for label in table.rows if label in groups}
    made, names = {name: asked_of(group) for name, group in groups.items()}, {}
    for _, label, name in sorted(((len(changes(table.asked[label], made[name])), label, name)
                                  for label in table.asked for name in made), key=lambda row: row[0]):
        if label not in names and name not in names.values():
            names[label] = name
    return names


def changes(asked, made):
    """Texts of the keys in which two results of asked_of() differ: "train.beta2 0.9, expected 0.99"."""
    def shown(part, key):
        return json.dumps(part.get(key, fields().get(key, {}).get("default", "its default")), ensure_ascii=False)

    keys = [key for key in {**asked, **made} if key not in ("config", "seeds") and asked.get(key) != made.get(key)]
    if not keys and asked["config"] != made["config"]:
        return ["another config, though no key is set to another value: of another version of normscope"]
    return ["another text" if key == "text" else f"{printable(key)} {shown(made, key)}, expected {shown(asked, key)}"
            for key in keys]


def missing_seeds(seeds, group):
    """[a text] if fewer runs of the group have ended than a row of these `seeds` asks for: ENOUGH, or as many as it
    has itself."""
    ended = [run.seed for run in group.runs if run.record["status"] in ("done", DIVERGED)]
    asked = min(ENOUGH, len(seeds))
    return [f"{len(ended)} of {asked} seeds are done"] * (len(ended) < asked)


def outside_text(group, title, cell):
    """ "2.51, expected 2.46 to 2.49" if the group's mean is outside the range of the cell; "" if it is inside."""
    values = values_of(group, title)
    if group.diverged or not values:
        got = f"{len(group.diverged)} of {len(group.runs)} diverged" if group.diverged else "missing"
        return "" if values is None and cell == DIVERGED else f"{got}, expected {cell}"
    mean = statistics.fmean(values)
    value = 10 ** mean if title in RATIOS else mean
    is_inside = cell != DIVERGED and float(cell.split(" to ")[0]) <= value <= float(cell.split(" to ")[1])
    return "" if is_inside else f"{value:.4g}, expected {cell}"
