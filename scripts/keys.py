"""Which config keys a run has a use for, by the program's own table, of which configs/schema.json is the copy."""

import functools
import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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

    walk(json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8")), "")
    return found


def flattened(config):
    """{dotted key: value} of a config; keys that the table does not know too."""
    flat = {}

    def walk(value, name):
        if isinstance(value, dict) and name not in fields():
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else key)
        else:
            flat[name] = value

    walk(config, "")
    return flat


def fault(flat):
    """What is wrong with a flattened config's values, in words; None if they are what the scripts count on."""
    for key, entry in fields().items():
        section, value = key.split(".")[0], flat.get(key)
        if section != key and section in flat:
            return f"{section} is not an object"
        if key not in flat:
            continue
        kind = entry.get("type")
        if kind in ("integer", "number"):
            low, high = entry["minimum"], entry.get("maximum", entry.get("exclusiveMaximum", float("inf")))
            number = isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
            if not number or not low <= value <= high or value == entry.get("exclusiveMaximum"):
                return f"{key} is no {kind} from {low} to {high}"
        elif kind == "boolean" and not isinstance(value, bool):
            return f"{key} is neither true nor false"
        elif not all(isinstance(name, (str, bool)) for name in (value if isinstance(value, list) else [value])):
            return f"{key} is no name"
    return None


def used_keys(written):
    """{key: its value as JSON} of a flattened config's keys that it has a use for, less those that change no number."""
    flat = {key: entry.get("default") for key, entry in fields().items()} | written

    def holds(value, wanted):
        if isinstance(wanted, list):
            return any(v in wanted for v in (value if isinstance(value, list) else [value]))
        (how, what), = wanted.items()
        if how == "not":
            return not holds(value, what)
        if how == "as":
            return value == flat[what]
        return flat[what] is None or value < flat[what]

    def matters(key):
        entry = fields().get(key, {})
        uses = entry.get("x-used-when", [{}])
        return not entry.get("x-bookkeeping") and any(all(holds(flat[k], w) for k, w in use.items()) for use in uses)

    return {key: _one_place(json.dumps(value)) if fields().get(key, {}).get("x-text") else json.dumps(value)
            for key, value in written.items() if matters(key)}


_places = {}  # {the hash of a text: the paths, as JSON, under which it was first met}


@functools.cache
def _one_place(paths):
    """The paths, as JSON, that stand for all which hold the same text; those that cannot be read, for themselves."""
    text = hashlib.sha256()
    try:
        for path in map(Path, [json.loads(paths)] if paths.startswith('"') else json.loads(paths)):
            if not path.is_file():
                return paths  # nothing, or what never ends: a pipe, a device
            text.update(path.read_bytes())
    except (OSError, TypeError, ValueError):
        return paths
    return _places.setdefault(text.digest(), paths)
