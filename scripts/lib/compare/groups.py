"""Groups of runs that differ only in their seed. labels.py makes their labels."""

import copy
import json
import os
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.base.keys import HISTORY, fields
from lib.compare.differences import STEPS
from lib.compare.labels import set_labels, value_text
from lib.logs.runs import NORM, PLACEMENT, shortened
from lib.sweeps.grid import labelled_keys, labels_of

MEAN = "mean and range of"  # seeds
SEED = "train.seed"


class Group:
    """Runs that differ only in their seed.

    runs        list of Run
    keys        {dotted key: value} of the keys that have an effect, without the seed and bookkeeping
    names       {grid entry, or CASE: the name that the sweep's file gives to the group's value}
    named_keys  {such an entry: list of the keys that its names stand for}

    labels.set_labels sets

    varied      {key or grid entry in which the groups differ by choice: the group's value}
    labelled    {key or grid entry in the label: the group's value}
    folder      path of the first run if nothing else distinguishes the group from another, else ""
    label       text, unique among the groups

    and layout.styled the name, colour, dash, marker and panel of the group in a figure."""

    def __init__(self, runs, label="", keys=None, names=None, named_keys=None):
        self.runs, self.label, self.name = runs, label, label
        self.keys, self.names, self.named_keys = keys or {}, names or {}, named_keys or {}
        self.varied, self.labelled, self.folder = {}, {}, ""

    @property
    def placement(self):
        """The placement's name, or JSON if the blocks' placements differ."""
        written = self.runs[0].value(PLACEMENT)
        return written if isinstance(written, str) else json.dumps(written)

    @property
    def parts(self):
        """{key: the part of the label about it}; with "folder" if no key distinguishes the group from another."""
        folder = {"folder": printable(self.folder)} if self.folder else {}
        return {key: value_text(key, value) for key, value in self.labelled.items()} | folder

    def is_named(self, name):
        """Whether `name` is the group's label, the folder of one of its runs, or the last part of such a folder."""
        path = os.path.normpath(name)
        return name == self.label or any(path in (os.path.normpath(run.folder), run.folder.name) for run in self.runs)

    def restricted_to(self, runs):
        """A copy of the group that has only these runs."""
        group = copy.copy(self)
        group.runs = runs
        return group

    def value(self, key):
        """The value of a key, whether it has an effect or not. The value of a grid entry with named values is the name,
        or None if the group has none."""
        if key in self.keys:
            return self.keys[key]
        return self.runs[0].value(key) if key in fields() else self.names.get(key)

    @property
    def derived(self):
        """The keys whose values are defaults that depend on other keys."""
        return self.runs[0].config.get("$derived", ())

    @property
    def diverged(self):
        return [run for run in self.runs if run.diverged]

    def metric_values(self, key):
        """The values of a metric, one for each run that has it: means and standard errors are taken over these.
        Diverged runs, whose last loss would spoil a mean, are left out unless all diverged; unfinished runs count."""
        counted = self.runs if len(self.diverged) == len(self.runs) else [run for run in self.runs if not run.diverged]
        return [run.record[key] for run in counted if run.record.get(key) is not None]

    def legend(self, statistic=MEAN):
        """The label with notes: "post (mean and range of 3 seeds, 1 diverged)". `statistic`: what is drawn of the
        seeds; None omits that note."""
        notes = [f"{statistic} {len(self.runs)} seeds"] if statistic and len(self.runs) > 1 else []
        if self.diverged and len(self.runs) > 1:
            notes.append(f"{len(self.diverged)} diverged")
        elif self.diverged:
            step = self.runs[0].diverged_at()
            notes.append("diverged" if step is None else f"diverged at step {step}")
        return shortened(self.label, 90) + (f" ({', '.join(notes)})" if notes else "")


def group_by_config(runs):
    """The groups in the order of their first runs. A second run of the same config and seed (a copy, or a repeat by
    another build) starts another group."""
    hashes = {}  # {path: the hashes of the texts that were there}
    for run in runs:
        for path in _texts(run):
            hashes.setdefault(path, set()).update(filter(None, [run.text_hash]))
    told = [key for key in HISTORY if any(key in run.history for run in runs)]
    sweeps = {run.folder.parent: None for run in runs}
    names = {path: labels for folder in sweeps for path, labels in labels_of(folder).items()}
    named_keys = {folder: labelled_keys(folder) for folder in sweeps}
    groups, earlier_runs, first_paths = {}, {}, {}  # earlier_runs: {(config, seed): their number}
    for run in runs:
        keys = _keys_of(run, hashes, first_paths) | {key: run.history.get(key, HISTORY[key]["default"]) for key in told}
        config = json.dumps(keys)
        repeat = earlier_runs.get((config, run.seed), 0)
        earlier_runs[config, run.seed] = repeat + 1
        group = Group([], keys=keys, names=names.get(run.folder), named_keys=named_keys[run.folder.parent])
        groups.setdefault((config, repeat), group).runs.append(run)
    set_labels(list(groups.values()))
    return list(groups.values())


def base_of(groups, name=None):
    """The base of the comparison: the group with that label or run folder; without a name, the first group."""
    for group in groups:
        if name is None or group.is_named(name):
            return group
    raise ScriptError(f"--base: got {printable(name)}; expected a run's folder, or one of: "
                    + "; ".join(group.label for group in groups))


# ---- keys -----------------------------------------------------------------------------------------------------


def _texts(run):
    return [json.dumps(run.value(key)) for key, entry in fields().items() if "x-text" in entry and run.value(key)]


def _keys_of(run, hashes, first_paths):
    """{key: value} of the config's keys that have an effect, without seed and bookkeeping. Texts are compared by hash.
    The same text at two paths gets the first path (`first_paths`). Two texts found at one path get path and hash
    (`hashes`)."""
    keys = {}
    for key, entry in fields().items():
        value = run.value(key)
        if value is None or key in run.config.get("$idle", ()) or "x-bookkeeping" in entry or key == SEED:
            continue
        if key == STEPS and run.probe:
            value = 0
        if "x-text" in entry and value and run.text_hash:
            if len(hashes[json.dumps(value)]) > 1:
                value = {"path": value, "hash": run.text_hash[:6]}
            value = first_paths.setdefault((key, run.text_hash), value)
        keys[key] = value
    return keys


# ---- settings in common ---------------------------------------------------------------------------------------


def shared_seeds(groups):
    """The number of seeds if several groups have equally many, more than one; else 0."""
    seeds = {len(group.runs) for group in groups}
    return seeds.pop() if len(groups) > 1 and len(seeds) == 1 and seeds != {1} else 0


def shared_settings(groups, statistic=MEAN):
    """The settings that all runs share, as a subtitle: "mean and range of 3 seeds · 12 blocks · width 64 · lr 0.001".
    `statistic`: as in Group.legend."""
    runs = [run for group in groups for run in group.runs]

    def common(key, form="{}"):
        values = {json.dumps(run.value(key)) for run in runs}
        value = json.loads(values.pop()) if len(values) == 1 else None
        return None if value is None or isinstance(value, (list, dict)) else form.format(value)

    layers = common("model.n_layer")
    seeds = shared_seeds(groups)
    parts = [seeds and f"{statistic} {seeds} seeds", "1 block" if layers == "1" else layers and f"{layers} blocks",
             common("model.d_model", "width {}"), common("model.context", "context {}")]
    if len(groups) > 1:  # the label of a single group has both
        parts += [common(PLACEMENT), common(NORM)]
    parts.append(common("model.init.scheme"))
    if not all(run.probe for run in runs):
        parts += [common("train.optimizer"), common("train.lr", "lr {:g}")]
    texts = {tuple(Path(path).stem for path in run.texts()) for run in runs}
    parts += [" + ".join(names) for names in texts if len(texts) == 1]
    parts.append(common("train.seed", "seed {}"))
    return shortened(" · ".join(part for part in parts if part), 112)
