"""Groups of runs that differ only in their seed, the keys that distinguish groups, and labels made of these keys or, in
a sweep's folder, of the names that the sweep's file gives to values and cases."""

import collections
import copy
import itertools
import json
import math
import os
from pathlib import Path

from lib.command import ScriptError, printable
from lib.grid import CASE, labelled_keys, labels_of
from lib.keys import fields, value_without_effect
from lib.runs import NORM, PLACEMENT, shortened

MEAN = "mean and range of"  # seeds
SEED, STEPS = "train.seed", "train.steps"
MOST_LABELLED = 4  # keys


class Group:
    """Runs that differ only in their seed.

    runs        list of Run
    keys        {dotted key: value} of the keys that have an effect, without the seed and bookkeeping
    names       {grid entry or CASE: the name that the sweep's file gives to its value}
    named_keys  {such an entry: list of the keys that its names stand for}
    varied      {key or grid entry in which the groups differ by choice: value}
    labelled    {key or grid entry in the label: value}
    label       text, unique among the groups
    folder      path of the first run if nothing else distinguishes the group from another, else ""

    figures.styled adds the colour, dash, marker, panel and name of the group in a figure."""

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
        """The value of a key; if it has no effect, the value that it resolves to, or None if that depends on other
        keys. The value of a grid entry with named values is the name, or None if the group has none."""
        if key in self.keys:
            return self.keys[key]
        return value_without_effect(fields()[key]) if key in fields() else self.names.get(key)

    @property
    def derived(self):
        """The keys whose values are defaults that depend on other keys."""
        keys = self.runs[0].config.get("$derived")
        return keys if isinstance(keys, list) else []

    @property
    def diverged(self):
        return [run for run in self.runs if run.diverged]

    def metric_values(self, key):
        """The values of a metric in the records of the runs that have it. Diverged runs, whose last loss would spoil a
        mean, are left out unless all diverged."""
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
    groups, counts, first_paths = {}, {}, {}  # counts: {(config, seed): earlier runs of both}
    sweeps = {run.folder.parent: None for run in runs}
    names = {path: labels for folder in sweeps for path, labels in labels_of(folder).items()}
    named_keys = {folder: labelled_keys(folder) for folder in sweeps}
    for run in runs:
        keys = _keys_of(run, hashes, first_paths)
        config = json.dumps(keys)
        repeat = counts.get((config, run.seed), 0)
        counts[config, run.seed] = repeat + 1
        group = Group([], keys=keys, names=names.get(run.folder), named_keys=named_keys[run.folder.parent])
        groups.setdefault((config, repeat), group).runs.append(run)
    _set_labels(list(groups.values()))
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
    """{key: value} of the config's keys without seed and bookkeeping. Texts are compared by hash. The same text at two
    paths gets the first path (`first_paths`). Two texts found at one path get path and hash (`hashes`)."""
    keys = {}
    for key, entry in fields().items():
        value = run.value(key)
        if value is None or "x-bookkeeping" in entry or key == SEED:
            continue
        if key == STEPS and run.probe:
            value = 0
        if "x-text" in entry and value and run.text_hash:
            if len(hashes[json.dumps(value)]) > 1:
                value = {"path": value, "hash": run.text_hash[:6]}
            value = first_paths.setdefault((key, run.text_hash), value)
        keys[key] = value
    return keys


def difference(a, b):
    """[(key, value in a, value in b, whether it follows)] of the keys in which two groups differ. A difference follows
    from others, and was not chosen, if the key has no effect in one group, if both groups have its derived default, or
    if the key is train.steps and both groups train on equally many tokens."""
    differences = []
    for key in fields():
        if key not in a.keys and key not in b.keys or a.value(key) == b.value(key):
            continue
        defaults = [key in group.derived for group in (a, b)]
        if any(defaults) and None in (a.value(key), b.value(key)):
            continue  # a default in one group, no effect in the other: nobody set the key
        follows = all(defaults) or (key in a.keys) != (key in b.keys) or (key == STEPS and same_tokens(a, b))
        differences.append((key, a.value(key), b.value(key), follows))
    return differences


def same_tokens(a, b):
    """Whether two groups, whose numbers of steps differ, train on equally many tokens, up to less than a step."""
    def product(group, *keys):
        values = [group.value(key) for key in keys]
        return math.prod(values) if all(isinstance(value, int) for value in values) else math.nan

    step = ("train.batch_size", "train.grad_accum", "model.context")
    return abs(product(a, STEPS, *step) - product(b, STEPS, *step)) < max(product(a, *step), product(b, *step))


def named_choices(a, b):
    """{grid entry: the keys that its names stand for} of the entries whose values have other names in two groups. Cases
    are compared by their keys, not by name."""
    return {entry: {*a.named_keys[entry], *b.named_keys[entry]} for entry, name in a.names.items()
            if entry != CASE and b.names.get(entry, name) != name}


def choices(a, b):
    """The grid entries with other names and the other keys in which two groups differ by choice."""
    named = named_choices(a, b)
    keys = set().union(*named.values())
    return [*named, *(key for key, _, _, follows in difference(a, b) if not follows and key not in keys)]


# ---- labels ---------------------------------------------------------------------------------------------------


def _set_labels(groups):
    """Sets `varied`, `labelled`, `folder`, `label` and `name` of each group.

    A label has at most MOST_LABELLED of the keys that distinguish the groups: first keys with word values, then names
    of grid entries, then numbers, as in "post · small · L 12". A name replaces the keys that it sets; that of a case
    comes first. Groups with the same label get a folder too."""
    keys = _label_keys(groups)
    has_cases = len({group.names.get(CASE) for group in groups}) > 1
    replaced = {}  # {group: the keys that the names in its label stand for}
    for group in groups:
        group.varied = {key: group.value(key) for key in keys if key in group.keys or key in group.names}
        names = [name for name in group.names if name in keys or name == CASE and has_cases]
        replaced[group] = {key for name in names for key in group.named_keys[name]}

    def is_distinguishing(key):
        return len({json.dumps(group.varied.get(key)) for group in groups if key not in replaced[group]}) > 1

    distinguishing = [key for key in keys if is_distinguishing(key)][:MOST_LABELLED]
    for group in groups:
        own = {key: value for key, value in group.varied.items() if key not in replaced[group]}
        group.labelled = {CASE: group.names[CASE]} if has_cases and CASE in group.names else {}
        group.labelled |= {key: own[key] for key in distinguishing if key in own}
        if not group.labelled:  # no key distinguishes it, as if there is one group only: then the first keys name it
            group.labelled = {key: own[key] for key in keys[:MOST_LABELLED] if key in own}
    counts = collections.Counter(map(_joined_parts, groups))
    for group in groups:
        if counts[_joined_parts(group)] > 1:
            group.folder = os.path.normpath(group.runs[0].folder)
        group.label = group.name = _joined_parts(group)


def _joined_parts(group):
    return " · ".join(group.parts.values())


def _label_keys(groups):
    """The keys and the grid entries in which groups differ by choice, in the order of labels; last the keys that the
    names of entries stand for."""
    differing = {key for group, other in zip(groups, groups[1:]) for key in choices(group, other)} or {PLACEMENT, NORM}
    entries = {entry: group.named_keys[entry] for group in groups for entry in group.names if entry in differing}
    replaced = {key for keys in entries.values() for key in keys if key in fields()}
    is_number = {key: fields()[key].get("x-label") != "{}" for key in fields()}
    own = [key for key in fields() if key in differing and key not in replaced]
    keys = [*(key for key in own if not is_number[key]), *entries, *(key for key in own if is_number[key])]
    return [*keys, *(key for key in fields() if key in replaced)]


def value_text(key, value):
    """The text of a key's value in labels: "L 12", "post", "pre ×6, post ×6", "residual false". The name of a grid
    entry's value stays as it is."""
    if key not in fields():
        return printable(value or "")
    entry = fields()[key]
    label = entry.get("x-label", key.rsplit(".", 1)[-1] + " {}")
    if value == "none" and label == "{}":
        return "no norm"
    texts = [_word(item, "x-text" in entry) for item in (value if isinstance(value, list) else [value])]
    repeats = [(text, len([*equal])) for text, equal in itertools.groupby(texts)]
    return printable(label.format(", ".join(text + (f" ×{count}" if count > 1 else "") for text, count in repeats)))


def config_text(value):
    """A key's value as a config writes it; a text that shares its path with another also has its hash."""
    if value is None:
        return "no effect"
    if isinstance(value, dict) and "hash" in value:
        return f"{json.dumps(value['path'], ensure_ascii=False)} #{value['hash']}"
    return json.dumps(value, ensure_ascii=False)


def _word(value, is_path):
    if is_path and isinstance(value, dict):
        paths = value["path"] if isinstance(value["path"], list) else [value["path"]]
        return f"{', '.join(Path(path).stem for path in paths)} #{value['hash']}"
    if is_path:
        return Path(value).stem
    if isinstance(value, float):
        return f"{value:.15g}"
    return value if isinstance(value, str) else json.dumps(value)


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
