"""What the configs of runs say but for the seed: the keys that have an effect, and the difference of two configs."""

import itertools
import json
import math
from collections import namedtuple

from lib.base.keys import HISTORY, fields
from lib.sweeps.grid import CASE, read_labels

STEPS, SEED = "train.steps", "train.seed"
TOKENS_OF_STEP = ("train.batch_size", "train.grad_accum", "model.context")

# A key in which two configs differ. `cause`: the key, or the grid entry whose names stand for it; "" if the change was
# not chosen, but follows from others.
Change = namedtuple("Change", "key before after cause")

# The difference of two configs: `changes`; `choices`, their causes, grid entries first; `incomparable`, the keys that
# make final losses incomparable: those of the text, and the number of steps if the numbers of tokens differ. (The final
# loss is of the whole validation text, whatever the size of a batch.)
Difference = namedtuple("Difference", "changes choices incomparable")


class Config:
    """A run's config without its seed and bookkeeping.

    values      {dotted key: value} of the keys that have an effect
    names       {grid entry, or CASE: the name that the sweep's file gives to the run's value}
    named_keys  {such an entry: list of the keys that its names stand for}
    compared    {key: value} of the keys that differ between any two of the configs; configs_of sets it"""

    def __init__(self, run, values=None, names=None, named_keys=None):
        self.run, self.values, self.names, self.named_keys = run, values or {}, names or {}, named_keys or {}

    def value(self, key):
        """The value of a key, whether it has an effect or not. The value of a grid entry with named values is the name,
        or None if the config has none."""
        if key in self.values:
            return self.values[key]
        return self.run.value(key) if key in fields() else self.names.get(key)

    @property
    def stated(self):
        """{key: value} of the keys with an effect that have another value than the schema's default, of the run's
        history, and of "text", the hash of the text, for its path."""
        stated = {key: value for key, value in self.values.items() if key not in HISTORY
                  and "x-text" not in fields().get(key, ()) and value != fields().get(key, {}).get("default")}
        return {**stated, **self.run.history, "text": self.run.text_hash}

    def minus(self, other):
        """The Difference of this config from another. A change follows from others, and was not chosen, if the key has
        no effect in one of them, if both have its derived default, or if the key is train.steps and both train on
        equally many tokens. Cases are compared by their keys, not by name."""
        named = {entry: {*self.named_keys[entry], *other.named_keys[entry]} for entry, name in other.names.items()
                 if entry != CASE and self.names.get(entry, name) != name}
        cause_of = {key: entry for entry, keys in named.items() for key in keys}
        changes, incomparable = [], []
        for key, after in self.compared.items():
            before = other.compared[key]
            if before == after or key not in self.values and key not in other.values:
                continue
            keeps_tokens = key == STEPS and _same_tokens(self, other)
            are_derived = all(key in config.run.config.get("$derived", ()) for config in (self, other))
            follows = (key in self.values) != (key in other.values) or are_derived or keeps_tokens
            changes.append(Change(key, before, after, cause_of.get(key, "" if follows else key)))
            if key.startswith("data.") or key == STEPS and not keeps_tokens:
                incomparable.append(key)
        return Difference(changes, [*named, *(key for key, _, _, cause in changes if key == cause)], incomparable)


def _same_tokens(a, b):
    """Whether two configs, whose numbers of steps differ, train on equally many tokens, up to less than a step."""
    def product(config, *keys):
        values = [config.value(key) for key in keys]
        return math.prod(values) if all(isinstance(value, int) for value in values) else math.nan

    difference = product(a, STEPS, *TOKENS_OF_STEP) - product(b, STEPS, *TOKENS_OF_STEP)
    return abs(difference) < max(product(a, *TOKENS_OF_STEP), product(b, *TOKENS_OF_STEP))


def chosen_among(configs):
    """The keys and grid entries whose value was chosen and differs between any two of the configs."""
    return {key for one, other in itertools.combinations(configs, 2) for key in other.minus(one).choices}


def unknown_keys(config, prefix=""):
    """Yields (dotted key, value) of the keys of a config that the schema has not: those of another version."""
    for name, value in config.items():
        if prefix + name in fields() or name.startswith("$"):
            continue
        if isinstance(value, dict):
            yield from unknown_keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def configs_of(runs):
    """The Config of each run. Texts are compared by hash: the same text at two paths gets the first path, and texts
    found at one path get their hash, too. What the configs do not say of some run's training is a key of all."""
    hashes, first_paths = {}, {}  # {path: the hashes of the texts that were there}, {(key, hash): the first path}
    for run in runs:
        for path in (run.value(key) for key, entry in fields().items() if "x-text" in entry):
            hashes.setdefault(json.dumps(path), set()).update(filter(None, [run.text_hash]))
    told = [key for key in HISTORY if any(key in run.history for run in runs)]
    labels = {folder: read_labels(folder) for folder in {run.folder.parent for run in runs}}

    def values_of(run):
        values = {}
        for key, entry in fields().items():
            value = run.value(key)
            if value is None or key in run.config.get("$idle", ()) or "x-bookkeeping" in entry or key == SEED:
                continue
            if key == STEPS and run.probe:
                value = 0
            if "x-text" in entry and value and run.text_hash:
                value = first_paths.setdefault((key, run.text_hash), value)
                if len(hashes[json.dumps(value)]) > 1:
                    values["data.hash"] = run.text_hash[:6]
            values[key] = value
        values |= unknown_keys(run.config)
        return values | {key: run.history.get(key, HISTORY[key]["default"]) for key in told}

    configs = [Config(run, values_of(run), labels[run.folder.parent]["runs"].get(run.folder.name),
                      labels[run.folder.parent]["keys"]) for run in runs]
    known = dict.fromkeys([*fields(), *(key for config in configs for key in config.values)])
    differing = [key for key in known if len({json.dumps(config.value(key)) for config in configs}) > 1]
    for config in configs:
        config.compared = {key: config.value(key) for key in differing}
    return configs
