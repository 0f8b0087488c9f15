"""Labels of groups of runs, such as "post · small · L 12", and the texts of keys' values in them."""

import collections
import itertools
import json
import os
import re
from pathlib import Path

from lib.base.command import printable
from lib.base.keys import fields
from lib.compare.configs import chosen_among
from lib.logs.runs import NORM, PLACEMENT
from lib.sweeps.grid import CASE
from lib.sweeps.sweep_folder import is_of_sweep

MOST_LABELLED = 4  # keys beside the name of a run, or of the label of rows that no key distinguishes
RUN = "run"  # stands in Group.parts for Group.run_name
NUMBERING = re.compile(r"[-_.= /]+$|[-_.= /]*\d+$")  # at the end of what the paths of several seeds have in common


def set_labels(groups):
    """Sets `varied`, `labelled`, `run_name` and `label` of each group. An example: a sweep of placements, a
    grid entry "batch" whose name "small" stands for train.batch_size 2 and train.steps 1200, and 6 or 12 blocks.

    1. The keys that vary, in the order of labels: model.norm_placement, batch, model.n_layer, train.batch_size,
       train.steps (keys_that_vary). `varied` has their values.
    2. The keys that a name in a group's label covers, and that its label therefore omits: train.batch_size and
       train.steps (`covered`).
    3. The keys of the labels: those that have several values among the groups whose names do not cover them:
       model.norm_placement, batch, model.n_layer (`in_labels`).
    4. The label has the group's values of these keys, after the name of its case: "post · small · L 12". Groups with
       the same label get their folder too.
    5. Runs that come from no sweep are called by their folder (run_names). The values stand beside it if they
       are few and tell all groups apart by themselves: a label with some of the keys in which runs differ would name
       these as the cause."""
    keys = keys_that_vary(groups)
    for group in groups:
        group.varied = {key: group.value(key) for key in keys
                        if key in group.config.values or key in group.config.names}
    covered = {group: {key for entry in group.config.names if entry in (*keys, CASE)
                       for key in group.config.named_keys[entry]} for group in groups}
    in_labels = [key for key in keys if len({json.dumps(group.varied.get(key)) for group in groups
                                             if key not in covered[group]}) > 1]
    for group in groups:
        shown = {key: value for key, value in group.varied.items() if key not in covered[group]}
        group.labelled = {CASE: group.value(CASE)} if CASE in group.config.names else {}
        group.labelled |= {key: shown[key] for key in in_labels if key in shown}
        if not group.labelled:  # a single group, or one that no key distinguishes: the first keys name it
            group.labelled = {key: shown[key] for key in keys[:MOST_LABELLED] if key in shown}
    counts = collections.Counter(map(joined, groups))
    names = run_names([group for group in groups if not any(map(is_of_sweep, group.runs))])
    for group in groups:
        if group in names:
            group.run_name = names[group]
            if not in_labels or len(in_labels) > MOST_LABELLED or max(counts.values()) > 1:
                group.labelled = {}
        elif counts[joined(group)] > 1:
            group.run_name = str(group.runs[0])
    for group in groups:
        group.label = joined(group)


def run_names(groups):
    """{group: the name of its runs}, each once: the folder, or what the paths of several seeds begin with: "post" for
    runs/post-1 and runs/post-2. Groups of equal names are called by the path of their first run."""
    names = {}
    for group in groups:
        homes = {str(run.home) for run in group.runs}
        common = NUMBERING.sub("", os.path.commonprefix([*homes])) if len(homes) > 1 else [*homes][0]
        names[group] = os.path.basename(common) or group.runs[0].home.name
    counts = collections.Counter(names.values())
    return {group: name if counts[name] == 1 else str(group.runs[0]) for group, name in names.items()}


def keys_that_vary(groups):
    """The keys and grid entries of configs.chosen_among in the order of labels: keys whose value alone is the label,
    grid entries, other keys, and last the keys that the entries' names stand for. Placement and norm if groups do not
    differ."""
    chosen = chosen_among([group.config for group in groups]) or {PLACEMENT, NORM}
    entries = {entry: group.config.named_keys[entry] for group in groups for entry in group.config.names
               if entry in chosen}
    set_by_entries = set(itertools.chain(*entries.values()))
    free = [key for key in fields() if key in chosen and key not in set_by_entries]
    bare = [key for key in free if fields()[key].get("x-label") == "{}"]
    others, last = [key for key in free if key not in bare], [key for key in fields() if key in set_by_entries]
    return [*bare, *entries, *others, *last]


def joined(group, keys=None):
    """The parts of a group's label that are about these keys, or all of them: "anna · L 12". A key that says what the
    run's name says adds nothing."""
    return " · ".join(dict.fromkeys(text for key, text in group.parts.items() if keys is None or key in keys))


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


def _word(value, is_path):
    if is_path:
        return Path(value).stem
    if isinstance(value, float):
        return f"{value:.15g}"
    return value if isinstance(value, str) else json.dumps(value)
