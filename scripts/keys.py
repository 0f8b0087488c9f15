"""The keys of a config by the program's own table, of which configs/schema.json is the copy."""

import functools
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
