"""The keys in which two groups of runs differ, and which of these differences were chosen."""

import math

from lib.base.keys import fields
from lib.sweeps.grid import CASE

STEPS = "train.steps"


def difference(a, b):
    """[(key, value in a, value in b, whether it follows)] of the keys in which two groups differ. A difference follows
    from others, and was not chosen, if the key has no effect in one group, if both groups have its derived default, or
    if the key is train.steps and both groups train on equally many tokens."""
    differences = []
    for key in fields():
        if key not in a.keys and key not in b.keys or a.value(key) == b.value(key):
            continue
        follows = ((key in a.keys) != (key in b.keys) or all(key in group.derived for group in (a, b))
                   or (key == STEPS and same_tokens(a, b)))
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


def chosen_keys(a, b):
    """The grid entries with other names and the other keys in which two groups differ by choice."""
    named = named_choices(a, b)
    keys = set().union(*named.values())
    return [*named, *(key for key, _, _, follows in difference(a, b) if not follows and key not in keys)]
