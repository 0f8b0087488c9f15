"""What moved first in a run: the columns of its logs by the step at which they leave the range of healthy runs, or that
of the run's own first rows.

A cell is out if it is not finite, or its size is outside [lowest / 3, highest * 3] of the healthy runs' finite cells of
its row and column, at its logged step and at the ones before and after, because runs of other seeds reach a phase a
little earlier or later. A column leaves at the first logged step at which a third of its cells, and at least three if
it has them, are out, and are so at the next one too (unless there is none, or nothing to compare): one cell in hundreds
is out by chance."""

import collections
import math

from lib.base.command import ScriptError
from lib.logs.sites import ROUNDING

FACTOR = 3  # said above, in the help of diagnose.py, and in test_diagnose.py
OWN_ROWS = 10  # logged steps of the run itself that stand for healthy ones
SHARE, LEAST_CELLS = 1 / 3, 3  # of a column's cells that must be out
ZERO = 1e-5  # of the largest size in the column; what is smaller is rounding
# Judged, in the order of computation. Not judged are what the config or the machine sets (lr, clip_factor, times), a
# mean, which is around 0 beside its rms, a gradient's largest element, which is of one batch, and what repeats another
# column: norms of a tensor, value, and the largest between two rows.
COLUMNS = [tuple(column.split()) for column in (
    "params.csv rms", "layers.csv rms", "layers.csv abs_max", "layers.csv nonfinite", "layers.csv branch_share",
    "layers.csv token_cosine", "heads.csv max_logit", "heads.csv entropy", "heads.csv first_share",
    "metrics.csv train_loss", "layers.csv grad_rms", "layers.csv grad_nonfinite", "params.csv grad_rms",
    "metrics.csv grad_norm", "params.csv update_rms", "metrics.csv val_loss")]
SIZES = {  # {column: the size of a cell, where that is not its value}
    "train_loss": lambda loss: math.exp(min(loss, 700.0)),  # perplexity
    "val_loss": lambda loss: math.exp(min(loss, 700.0)),
    "token_cosine": lambda cosine: max(1 - cosine, ROUNDING),
    "max_logit": lambda logit: max(logit, 3.0),  # e^3 = 20: so small a logit cannot draw all attention to one token
    "nonfinite": lambda count: 1 + FACTOR * count,  # any is out
    "grad_nonfinite": lambda count: 1 + FACTOR * count}

Departure = collections.namedtuple("Departure", "step log column place value low high others")


def place_of(row):
    """What a row is about: "layer 4, site stream", a parameter's name, "" of metrics.csv."""
    if "param" in row:
        return row["param"]
    return ", ".join(f"{key} {row[key] if key == 'site' else int(row[key])}"
                     for key in ("layer", "site", "head") if key in row)


def logs_of(run):
    """{log: {step: {place: row}}} of the logs that a run has, rows as Run.records yields them. ScriptError: it has
    none, or one is damaged."""
    logs, names = {}, dict.fromkeys(log for log, _ in COLUMNS)
    for log in names:
        if (run.folder / log).exists():
            steps = logs.setdefault(log, {})
            for row in run.records(log):
                steps.setdefault(int(row["step"]), {})[place_of(row)] = row
    if not any(logs.values()):
        raise ScriptError(f"{run}: has no row in {', '.join(names)}; train it with log.layers_every above 0")
    return logs


def departures(logs, healthy):
    """[Departure] of each column that leaves, the earliest first. `logs`: of the run, as logs_of has them; `healthy`:
    those of healthy runs, or none, for the run's own first rows. ScriptError: there is nothing to compare with."""
    found, is_compared = [], False
    beside_of = {log: _beside(log, logs, healthy) for log in logs}
    for log, column in COLUMNS:
        rows = logs.get(log, {})
        steps = sorted(rows)
        for step, following in zip(steps, [*steps[1:], *steps[-1:]]):
            cells = _judged(rows[step], beside_of[log][step], column)
            is_compared |= bool(cells)
            if _leaves(cells):
                # A row after own rows is held to them, not to the row that left.
                later = _judged(rows[following], beside_of[log][following if healthy else step], column)
                if not later or _leaves(later):
                    found.append(Departure(step, log, column, *next(cell[1:] for cell in cells if cell[0]),
                                           sum(cell[0] for cell in cells) - 1))
                    break
    if not is_compared:
        raise ScriptError("no row to compare with: the healthy runs have other steps or another model" if healthy else
                          "fewer than two logged steps; name a healthy run to compare with")
    return sorted(found, key=lambda departure: departure.step)


def _leaves(cells):
    """Whether enough of a column's cells are out."""
    return bool(cells) and sum(cell[0] for cell in cells) >= min(max(SHARE * len(cells), LEAST_CELLS), len(cells))


def _beside(log, logs, healthy):
    """{step: the rows, {place: row} each, that those of a logged step are compared with}: those of healthy runs at that
    step and at the logged ones before and after, or the run's own earlier ones."""
    steps, near = sorted(logs[log]), collections.defaultdict(list)
    if not healthy:
        return {step: [logs[log][own] for own in steps[:min(at, OWN_ROWS)]] for at, step in enumerate(steps)}
    for rows in (other.get(log, {}) for other in healthy):
        logged = sorted(rows)
        for at, step in enumerate(logged):
            near[step] += [rows[other] for other in logged[max(0, at - 1):at + 2]]
    return {step: near[step] for step in steps}


def _range_place(place):
    """The place whose cells a row is compared with: heads of a layer are interchangeable."""
    return place.partition(", head")[0]


def _judged(rows, beside, column):
    """[(whether it is out, place, value, low, high)] of the cells of a column at a step that have finite
    counterparts."""
    size, ranges = SIZES.get(column, float), collections.defaultdict(list)
    for others in beside:
        for place, row in others.items():
            if math.isfinite(row.get(column, math.nan)):
                ranges[_range_place(place)].append(row[column])
    largest = max((size(value) for values in ranges.values() for value in values), default=0)
    cells = []
    for place, row in rows.items():
        values = ranges.get(_range_place(place), ()) if column in row else ()
        if any(map(size, values)):  # a size of 0, as of a bias at the start, is no scale
            low, high = min(values), max(values)
            smallest, biggest = sorted(max(size(bound), ZERO * largest) for bound in (low, high))
            own = row[column]
            is_inside = (math.isfinite(own)
                         and smallest / FACTOR <= max(size(own), ZERO * largest) <= biggest * FACTOR)
            cells.append((not is_inside, place, own, low, high))
    return cells
