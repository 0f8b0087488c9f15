"""Tables of ranges: in which range each figure of a group of runs is to be expected, by runs with several seeds. With K
= 3, the mean over other seeds is hardly ever outside unless something else is different.

A range is mean ± K s. s is the standard deviation over the seeds of the row, but at least the low median of s over the
rows of the column. Ratios are taken by their logarithms. A row whose runs all diverged says so instead."""

import math
import re
import statistics
from collections import namedtuple

from lib.base.command import ScriptError
from lib.compare.comparison import METRICS

KINDS = {title: (key, kind) for key, title, kind in METRICS if kind != "speed"}  # of columns that may have ranges
DIVERGED = "diverged"
TABLE = re.compile(r"^\|[^\n]*\n\|-[^\n]*\n(?:\|[^\n]*(?:\n|\Z))+", re.MULTILINE)


class Ranges(namedtuple("Ranges", "folder titles rows")):
    """A table of ranges: the `folder` of the runs that it is of; the `titles` of the figures, as compare.py prints them;
    and `rows`, {label of a group: a cell a figure}, "2.46 to 2.49" or "diverged"."""

    def __str__(self):
        lines = [[f"`{self.folder}`", *self.titles], *([label, *cells] for label, cells in self.rows.items())]
        head, *body = (f"| {' | '.join(line)} |\n" for line in lines)
        return head + "|---" * len(lines[0]) + "|\n" + "".join(body)


def tables_in(text):
    """The Ranges of a Markdown text, in their order; other tables are passed over."""
    tables = []
    for match in TABLE.findall(text):
        (folder, *titles), _, *rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")]
                                       for line in match.splitlines()]
        if titles and KINDS.keys() >= {*titles} and all(len(row) == len(titles) + 1 for row in rows):
            tables.append(Ranges(folder.strip("`"), titles, {label: cells for label, *cells in rows}))
    return tables


def values_of(group, title):
    """A figure of the runs of a group on the scale on which its range is symmetric; None if all of them diverged."""
    key, kind = KINDS[title]
    if len(group.diverged) == len(group.runs):
        return None
    values = group.metric_values(key)
    return [math.log10(value) for value in values] if kind == "ratio" else values


def titles_of(groups):
    """The titles of the figures that can have ranges: each group has finite ones, or all its runs diverged."""
    def is_finite(group, title):
        values = group.metric_values(KINDS[title][0])
        is_lost = len(group.diverged) == len(group.runs)
        return is_lost or values and all(math.isfinite(value) and value > 0 for value in values)

    return [title for title in KINDS if all(is_finite(group, title) for group in groups.values())]


def measured(folder, titles, groups, factor=3):
    """The Ranges of {label: Group}; `factor`: K. ScriptError: no group has a standard deviation."""
    rows = {label: [] for label in groups}
    for title in titles:
        values = {label: values_of(group, title) for label, group in groups.items()}
        deviations = {label: statistics.stdev(of) for label, of in values.items() if of and len(of) > 1}
        if any(values.values()) and not deviations:
            raise ScriptError(f"--ranges: no row has two values of {title}; train more seeds")
        for label, of in values.items():
            s = max(deviations.get(label, 0), statistics.median_low(deviations.values())) if of else 0
            rows[label].append(range_text(statistics.fmean(of), factor * s, title) if of else DIVERGED)
    return Ranges(folder, titles, rows)


def range_text(mean, distance, title):
    """The range as a cell, rounded outward: losses to 0.01, ratios to one digit."""
    ends = []
    for side, outward in ((-1, math.floor), (1, math.ceil)):
        end = mean + side * distance
        if KINDS[title][1] == "ratio":
            digit = 10.0 ** math.floor(end)
            ends.append(f"{float(f'{outward(round(10 ** end / digit, 6)) * digit:.1g}'):g}")
        else:
            ends.append(f"{max(0, outward(round(end * 100, 6))) / 100:.2f}")
    return " to ".join(ends)


def checked(table, groups):
    """(the number of figures of {label: Group} inside the Ranges, a text for each that is outside and for each row that
    only one has)."""
    inside, texts = 0, [f"{label}: no row of the table" for label in groups if label not in table.rows]
    for label, cells in table.rows.items():
        if label not in groups:
            texts.append(f"{label}: no runs")
            continue
        for title, cell in zip(table.titles, cells):
            outside = outside_text(groups[label], title, cell)
            inside += not outside
            texts += [f"{label}: {title} {outside}"] * bool(outside)
    return inside, texts


def outside_text(group, title, cell):
    """ "2.51, expected 2.46 to 2.49" if the group's mean is outside the range of the cell; "" if it is inside."""
    values = values_of(group, title)
    if group.diverged or not values:
        got = f"{len(group.diverged)} of {len(group.runs)} diverged" if group.diverged else "missing"
        return "" if values is None and cell == DIVERGED else f"{got}, expected {cell}"
    mean = statistics.fmean(values)
    value = 10 ** mean if KINDS[title][1] == "ratio" else mean
    is_inside = cell != DIVERGED and float(cell.split(" to ")[0]) <= value <= float(cell.split(" to ")[1])
    return "" if is_inside else f"{value:.4g}, expected {cell}"
