"""The comparison of groups of runs: metrics, differences seed by seed, remarks."""

import collections
import statistics

from lib.base.command import ScriptError, printable
from lib.compare.groups import base_of, group_by_config
from lib.compare.labels import value_text
from lib.compare.pairs import (best_rates, between_bests, metric_text, pair_of, pairings_of, repeats_of,
                               standard_deviation, standard_error)
from lib.compare.remarks import TO_TARGET, remarks_on
from lib.logs import np
from lib.logs.runs import NORM, PLACEMENT

SPEED = "tokens_per_s"
# The columns of metrics: {key of a run's record: title}.
METRICS = {"best_val_loss": "best val", "final_val_loss": "final val", "final_train_loss": "final train",
           "grad_first_last": "grad first/last", "growth": "growth", SPEED: "tokens/s"}


def comparison(runs, base=None, target=None, by=None, metric="final_val_loss"):
    """{"key", "metric", "runs", "paired", "rates", "best", "remarks"} of the runs. "key": the compared key, by which
    pairs.pairings_of chooses pairs; "metric": the title of what is subtracted; "runs": a list of entry_of each group;
    "paired", "rates" and "best": lists of pair_of; "remarks": those of remarks_on. `base`: a run folder, a label, or a
    value in one, by default the first group. `target`: a validation loss; the steps, tokens and seconds to it become
    metrics. `by`: the compared key; by default that of the value `base`, or the first that varies. `metric`: a number
    of summary.json. ScriptError: no group is the base, the groups do not differ in the key, or no run has the
    metric."""
    columns = dict(METRICS)
    if target is not None:
        columns |= {f"{axis}_to_target": f"{axis} to {target:g}" for axis in ("steps", "tokens", "seconds")}
        for run in runs:
            run.record |= reached(target, run)
    known = dict.fromkeys([*columns, *(key for run in runs for key in run.record if key != "status")])
    if metric not in known:
        raise ScriptError(f"--metric: got {printable(metric)}; expected one of {', '.join(map(printable, known))}")
    columns.setdefault(metric, metric)
    groups = group_by_config(runs)
    base, key_of_base = base_of(groups, base)
    varied = dict.fromkeys(key for group in groups for key in group.varied)
    if by is not None and by not in varied:
        raise ScriptError(f"--by: got {printable(by)}, in which the runs do not differ; they differ in "
                          f"{', '.join(map(printable, varied))}")
    compared_key = by or key_of_base or next(iter(base.varied), PLACEMENT)
    pairings, repeats = pairings_of(groups, base, compared_key), repeats_of(groups, base)
    pairs = list(filter(None, (pair_of(pairing, compared_key, metric) for pairing in pairings)))
    rates = best_rates([group for group in groups if group not in repeats])
    return {"key": compared_key, "metric": columns[metric],
            "runs": [entry_of(group, base, columns) for group in groups], "paired": pairs, "rates": rates,
            "best": between_bests([pair["best"] for pair in rates]),
            "remarks": remarks_on(groups, pairings, compared_key, pairs, rates, target)}


def entry_of(group, base, columns):
    """A row of the table as a dict: "group", the Group; facts about it; "seeds", those of all its runs; and "metrics",
    {key: a dict}, each of them over the runs that Group.metric_values counts:

    mean, sd, standard_error  of their values, one a seed; None without a value, and if there is one value no sd
    n                         the number of these values; fewer than the seeds if some diverged or lack the metric
    title, text               the title of the column and its cell
    at_most                   of a metric to a target only: whether the mean is an upper bound"""
    counts = collections.Counter(sorted(printable(run.record["status"]) for run in group.runs))
    metrics = {}
    for key, title in columns.items():
        values = group.metric_values(key)
        metrics[key] = {"title": title, "mean": statistics.fmean(values) if values else None, "n": len(values),
                        "sd": standard_deviation(values), "standard_error": standard_error(values),
                        "text": metric_text(values, key)}
        if key == SPEED and values:  # without an error, which would describe the machine's other load
            metrics[key]["text"] = f"{statistics.fmean(values) / 1e3:,.1f}k"
        if key.endswith("_to_target"):
            metrics[key]["at_most"] = is_bound = bool(values) and any(group.metric_values("target_at_most"))
            if is_bound:
                metrics[key]["text"] = "≤ " + metric_text([statistics.fmean(values)], key)
    names = dict.fromkeys(str(run.value("name")) for run in group.runs)
    return {"group": group, "label": group.label, "name": "; ".join(names), "keys": group.varied,
            "choices": group.config.minus(base.config).choices,
            "seeds": [run.seed for run in group.runs], "folders": [str(run.folder) for run in group.runs],
            "placement": value_text(PLACEMENT, group.runs[0].value(PLACEMENT)),
            "norm": group.value(NORM), "n_layer": group.runs[0].value("model.n_layer"),
            "params": group.runs[0].record.get("params", 0),
            "status": ", ".join(name if len(counts) == 1 else f"{count} {name}" for name, count in counts.items()),
            "metrics": metrics}


def reached(target, run):
    """{"steps_to_target", "tokens_to_target", "seconds_to_target", "target_at_most"}: the steps, tokens and seconds
    after which a run's validation loss came down to the target, linear between evaluations; None if no evaluation is
    as low. "target_at_most": whether the first evaluation is already below the target, so that the numbers are upper
    bounds."""
    rows = run.progress(("step", "tokens", "seconds", "val_loss"))
    steps, _, _, losses = rows[~np.isnan(rows[:, 3])].T
    below = np.flatnonzero(losses <= target)
    if not below.size:
        return {TO_TARGET: None}
    last = below[0]
    pair = slice(max(last - 1, 0), last + 1)
    step = float(np.interp(target, losses[pair][::-1], steps[pair][::-1]))
    record = {TO_TARGET: step, "target_at_most": bool(last == 0 and losses[0] < target)}
    for column, axis in ((1, "tokens"), (2, "seconds")):
        record[f"{axis}_to_target"] = float(np.interp(step, [0, *rows[:, 0]], [0, *rows[:, column]]))
    return record
