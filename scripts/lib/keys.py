"""The keys of a config, norms and placements by the program's own tables, of which configs/schema.json is the copy."""

import functools
import json

from lib.command import ROOT


@functools.cache
def _schema():
    return json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))


NORMS = _schema()["x-norms"]  # {name: its row in src/model/norms.h}
PLACEMENTS = _schema()["x-placements"]  # {name: its row in src/model/placement.h}


def completed(model):
    """The section `model` of a resolved config with every key: those that it leaves out, as they have no effect in it, get what
    they resolve to or else their default."""
    full = {**model, "init": dict(model.get("init", {}))}
    placement = model.get("norm_placement", "pre")
    full.setdefault("qkv_norm", isinstance(placement, str) and PLACEMENTS[placement]["qkv_norm"])
    for key, entry in fields().items():
        section, _, name = key.rpartition(".")
        if section in ("model", "model.init"):
            part = full if section == "model" else full["init"]
            part.setdefault(name, entry.get("x-else", entry.get("default")))
    return full


@functools.cache
def fields():
    """{dotted key: its JSON Schema}, in the order of the program's table; `x-` members say what a difference means."""
    found = {}

    def walk(section, prefix):
        for name, entry in section["properties"].items():
            if "properties" in entry:
                walk(entry, f"{prefix}{name}.")
            else:
                found[prefix + name] = entry

    walk(_schema(), "")
    return found
