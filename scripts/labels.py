"""What runs are called: the values of the keys in which they differ, as `normscope compare` has it."""

import json
import unicodedata
from pathlib import Path

from keys import fields

PLACEMENT, NORM = "model.norm_placement", "model.norm"
MOST_KEYS = 4  # in a label, unless more are needed to tell runs apart
# Marks that turn the direction of writing.
TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def printable(text):
    """The text with control characters escaped, and those that break lines or turn the direction of writing: file names
    and samples may hold anything."""
    return "".join(_escaped(c) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in TURNING else c
                   for c in str(text))


def _escaped(character):
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def label_all(configs):
    """A label each: the values of the keys in which the configs differ, words before numbers."""
    order = {key: (entry.get("x-label") != "{}", i) for i, (key, entry) in enumerate(fields().items())}
    names = sorted({k for c in configs for k in c}, key=lambda k: (order.get(k, (True, len(order))), k))
    differing = [k for k in names if len({c[k] for c in configs if k in c}) > 1]

    def told(keys):
        return len({tuple(c.get(k) for k in keys) for c in configs})

    derived, more = [k for k in fields() if fields()[k].get("x-derived")], ""
    for key in [*derived, *differing[::-1]]:
        without = [k for k in differing if k != key]
        if key in differing and told(without) == told(differing) and (key in derived or len(differing) > MOST_KEYS):
            differing, more = without, more if key in derived else " · …"
    if not differing:
        differing = [PLACEMENT, NORM]
    return [" · ".join(wording(k, c[k]) for k in differing if k in c) + more or "run" for c in configs]


def wording(key, text):
    """A key's value as a reader says it."""
    value, entry = json.loads(text), fields().get(key, {})
    if entry.get("x-text"):
        value = " + ".join(Path(str(p)).stem for p in (value if isinstance(value, list) else [value]))
    elif isinstance(value, list):  # placements block by block: runs of equal ones as "pre ×6"
        pieces = []
        for item in value:
            if pieces and pieces[-1][0] == item:
                pieces[-1][1] += 1
            else:
                pieces.append([item, 1])
        value = ", ".join(f"{item} ×{n}" if n > 1 else str(item) for item, n in pieces)
    elif isinstance(value, bool):
        value = "on" if value else "off"
    elif isinstance(value, float):
        value = f"{value:g}"
    form = entry.get("x-label", key.split(".")[-1] + " {}")
    return "no norm" if (form, value) == ("{}", "none") else printable(form.format(value))
