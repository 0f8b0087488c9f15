"""The keys of a config, norms and placements by the program's own tables, of which configs/schema.json is the copy."""

import functools
import json

from lib.command import ROOT


@functools.cache
def _schema():
    return json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))


NORMS = _schema()["x-norms"]  # {name: its row in src/model/norms.h}
PLACEMENTS = _schema()["x-placements"]  # {name: its row in src/model/placement.h}


NEEDED = ("model.n_layer", "model.norm_placement")  # by all that reads runs


def fault(config):
    """What is wrong with the first value of a resolved config that does not fit its schema; "" if all fit."""
    for key, entry in fields().items():
        *sections, name = key.split(".")
        part, path = config, ""
        for section in sections:
            path = f"{path}{section}."
            part = part.get(section, {})
            if not isinstance(part, dict):
                return f"{path[:-1]}: got {json.dumps(part)}; expected an object"
        if key in NEEDED and name not in part:
            return f"{key}: missing; every run's config says it"
        if name in part and not fits(part[name], entry):
            return f"{key}: got {json.dumps(part[name])}; expected {allowed(entry)}"
    return ""


def allowed(schema):
    """The values that fit a JSON Schema, in words."""
    if "anyOf" in schema:
        return " or ".join(map(allowed, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(str(value).lower() for value in schema["enum"])
    limits = [f"{schema[word]:g}" for word in ("minimum", "maximum") if word in schema]
    return schema["type"] + (f", {'..'.join(limits)}" if limits else "")


def fits(value, schema):
    """Whether a value fits a JSON Schema; of the words that the keys' schemas use."""
    types = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return any(value is one or value == one and type(value) is type(one) for one in schema["enum"])
    kind = schema.get("type")
    if isinstance(value, bool) and kind != "boolean" or not isinstance(value, types[kind]):
        return False
    if kind in ("integer", "number"):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if kind == "array":
        return len(value) >= schema.get("minItems", 0) and all(fits(item, schema["items"]) for item in value)
    if kind == "object":
        return value.keys() == schema["properties"].keys() and all(fits(value[k], s) for k, s in schema["properties"].items())
    return True


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
