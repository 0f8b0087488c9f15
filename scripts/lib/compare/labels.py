"""Labels of groups of runs, such as "post · small · L 12", and the texts of keys' values in them."""

import collections
import itertools
import json
import os
from pathlib import Path

from lib.base.command import printable
from lib.base.keys import fields
from lib.compare.configs import chosen_among
from lib.logs.runs import NORM, PLACEMENT
from lib.sweeps.grid import CASE

MOST_LABELLED = 4  # keys


def set_labels(groups):
    """Sets `varied`, `labelled`, `folder`, `label` and `name` of each group. An example: a sweep of placements, a grid
    entry "batch" whose name "small" stands for train.batch_size 2 and train.steps 1200, and 6 or 12 blocks.

    1. The keys that vary, in the order of labels: model.norm_placement, batch, model.n_layer, train.batch_size,
       train.steps (keys_that_vary). `varied` has their values.
    2. The keys that a name in a group's label covers, and that its label therefore omits: train.batch_size and
       train.steps (covered_keys).
    3. The keys of the labels: at most MOST_LABELLED that have several values among the groups whose names do not cover
       them: model.norm_placement, batch, model.n_layer (distinguishing_keys).
    4. The label has the group's values of these keys, after the name of its case if there are several cases:
       "post · small · L 12". Groups with the same label get their folder too."""
    keys = keys_that_vary(groups)
    for group in groups:
        group.varied = {key: group.value(key) for key in keys
                        if key in group.config.values or key in group.config.names}
    has_cases = len({group.value(CASE) for group in groups}) > 1
    covered = {group: covered_keys(group.config, [*keys, CASE] if has_cases else keys) for group in groups}
    in_labels = distinguishing_keys(groups, keys, covered)
    for group in groups:
        group.labelled = {CASE: group.value(CASE)} if has_cases and CASE in group.config.names else {}
        group.labelled |= _values_to_show(group, in_labels, covered)
        if not group.labelled:  # a single group, or one that no key distinguishes: the first keys name it
            group.labelled = _values_to_show(group, keys[:MOST_LABELLED], covered)
    counts = collections.Counter(map(_joined_parts, groups))
    for group in groups:
        if counts[_joined_parts(group)] > 1:
            group.folder = os.path.normpath(group.runs[0].folder)
        group.label = group.name = _joined_parts(group)


def keys_that_vary(groups):
    """The keys and grid entries of configs.chosen_among in the order of labels: keys with word values, grid entries,
    other keys, and last the keys that the entries' names stand for. Placement and norm if groups do not differ."""
    chosen = chosen_among([group.config for group in groups]) or {PLACEMENT, NORM}
    entries = {entry: group.config.named_keys[entry] for group in groups for entry in group.config.names
               if entry in chosen}
    set_by_entries = set(itertools.chain(*entries.values()))
    words, others, last = [], [], []
    for key, field in fields().items():
        if key in set_by_entries:
            last.append(key)
        elif key in chosen:
            (words if field.get("x-label") == "{}" else others).append(key)
    return [*words, *entries, *others, *last]


def covered_keys(config, entries):
    """The keys that the config's names of these grid entries stand for."""
    return {key for entry in config.names if entry in entries for key in config.named_keys[entry]}


def distinguishing_keys(groups, keys, covered):
    """The first MOST_LABELLED of the keys that have several values among the groups that do not cover them. `covered`:
    {group: covered_keys of it}."""
    def values(key):
        return {json.dumps(group.varied.get(key)) for group in groups if key not in covered[group]}

    return [key for key in keys if len(values(key)) > 1][:MOST_LABELLED]


def _values_to_show(group, keys, covered):
    return {key: group.varied[key] for key in keys if key in group.varied and key not in covered[group]}


def _joined_parts(group):
    return " · ".join(group.parts.values())


# ---- texts of values ------------------------------------------------------------------------------------------


def value_text(key, value):
    """The text of a key's value in labels: "L 12", "post", "pre ×6, post ×6", "residual false". The name of a grid
    entry's value stays as it is."""
    if key not in fields():
        return printable(value or "")
    field = fields()[key]
    label = field.get("x-label", key.rsplit(".", 1)[-1] + " {}")
    if value == "none" and label == "{}":
        return "no norm"
    texts = [_word(item, "x-text" in field) for item in (value if isinstance(value, list) else [value])]
    repeats = [(text, len([*equal])) for text, equal in itertools.groupby(texts)]
    return printable(label.format(", ".join(text + (f" ×{count}" if count > 1 else "") for text, count in repeats)))


def config_text(value):
    """A key's value as a config writes it; a text that shares its path with another also has its hash."""
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
