"""The keys of a config, the norms and the placements, read from configs/schema.json, the copy of the program's own
tables (`normscope config --schema`).

Defaults are the program's: the scripts have none of their own. A default that depends on other keys, such as model.d_ff
= 4 model.d_model with any activation, SwiGLU too, is a formula in src/config/fields.cpp. The schema has only its words,
in the key's description. Its value is in a resolved config (a run's config.json, `normscope config`), whose "$derived"
lists such keys. To change it:

1. In fields.cpp, change the function and its words. The function may read only keys whose rows stand above its key's
   row; move a row if need be.
2. Write `normscope config --schema` to configs/schema.json.
3. Correct its words in configs/course/README.md, tests/test_cli_tools.py, test_config.cpp and
   test_config_values.cpp."""

import functools
import json
import math

from lib.command import ROOT


@functools.cache
def _schema():
    return json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))


NORMS = _schema()["x-norms"]  # {name: its row in src/model/norms.h}
PLACEMENTS = _schema()["x-placements"]  # {name: its row in src/model/placement.h}


def placements(model):
    """[(attention's placement, the FFN's placement)] of each block of a resolved config's section `model`; patterns
    such as `mix` are resolved. ValueError: a list of another length than the number of blocks."""
    written, depth = model.get("norm_placement", "pre"), model["n_layer"]
    pattern = PLACEMENTS[written]["pattern"] if isinstance(written, str) else None
    if pattern:
        mixed = math.ceil(model.get("mix_post_fraction", 0.25) * depth - 1e-9)
        count = {"none": 0, "one": 1, "mix_post_fraction": mixed}[pattern["first_blocks"]]
        written = [pattern["first"]] * count + [pattern["rest"]] * (depth - count)
    entries = written if isinstance(written, list) else [written] * depth
    if len(entries) != depth:
        raise ValueError(f"[model] norm_placement: {len(entries)} entries for {depth} blocks")
    return [(entry["attn"], entry["ffn"]) if isinstance(entry, dict) else (entry, entry) for entry in entries]


def completed(model):
    """The section `model` of a resolved config with every key. Keys that it omits, as they have no effect in it, get
    their value without effect."""
    full = {**model, "init": dict(model.get("init", {}))}
    for key, entry in fields().items():
        section, _, name = key.rpartition(".")
        if section in ("model", "model.init"):
            (full if section == "model" else full["init"]).setdefault(name, value_without_effect(entry))
    return full


def value_without_effect(entry):
    """The value of a key that has no effect, by the key's schema; None if that depends on other keys."""
    return entry.get("x-else", entry.get("default"))


# Further keys of a run, from its summary.json: what its config does not say of its training (Run.history).
HISTORY = {"past": {"x-label": "{}", "default": "one schedule"}}


@functools.cache
def fields():
    """{dotted key: its JSON Schema}, in the order of the program's table, and HISTORY. Members of our own: x-label, the form in
    which a label has the value; x-else, the value where the key has no effect; x-text, if the value is the path of a
    text; x-bookkeeping, if the key changes no result."""
    entries = {}

    def walk(section, prefix):
        for name, entry in section["properties"].items():
            if "properties" in entry:
                walk(entry, f"{prefix}{name}.")
            else:
                entries[prefix + name] = entry

    walk(_schema(), "")
    return entries | HISTORY
