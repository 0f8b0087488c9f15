"""The keys of a config, the norms and the placements, read from configs/schema.json, the copy of the program's own tables."""

import functools
import json

from lib.command import ROOT


@functools.cache
def _schema():
    return json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))


NORMS = _schema()["x-norms"]  # {name: its row in src/model/norms.h}
PLACEMENTS = _schema()["x-placements"]  # {name: its row in src/model/placement.h}


def completed(model):
    """The section `model` of a resolved config with every key: those that it leaves out, as they have no effect in it,
    get what they resolve to or else their default."""
    full = {**model, "init": dict(model.get("init", {}))}
    for key, entry in fields().items():
        section, _, name = key.rpartition(".")
        if section in ("model", "model.init"):
            part = full if section == "model" else full["init"]
            part.setdefault(name, value_without_effect(entry))
    return full


def value_without_effect(entry):
    """The value of a key where it has no effect, by the key's schema; None where that depends on other keys."""
    return entry.get("x-else", entry.get("default"))


@functools.cache
def fields():
    """{dotted key: its JSON Schema}, in the order of the program's table. Members of our own: x-label, the form in which
    a label has the value; x-else, the value where the key has no effect; x-text, if the value is the path of a text;
    x-bookkeeping, if the key changes no result."""
    entries = {}

    def walk(section, prefix):
        for name, entry in section["properties"].items():
            if "properties" in entry:
                walk(entry, f"{prefix}{name}.")
            else:
                entries[prefix + name] = entry

    walk(_schema(), "")
    return entries
