"""The keys of a config, the norms and the placements, read from configs/schema.json, the copy of the program's own
tables (`normscope config --schema`).

Defaults are the program's: a run's config.json has every key of the version that wrote it. A default that depends on
other keys, such as model.d_ff = 4 model.d_model with any activation, SwiGLU too, is a formula in src/config/fields.cpp.
The schema has only its words, in the key's description. Its value is in a resolved config (a run's config.json,
`normscope config`), which has every key; its "$derived" lists the keys at such a default, its "$idle" those that have
no effect. To change a default:

1. In fields.cpp, change the function and its words. The function may read only keys whose rows stand above its key's
   row; move a row if need be.
2. Write `normscope config --schema` to configs/schema.json.
3. Correct its words in configs/course/README.md, tests/program/test_cli_tools.py, test_config.cpp and
   test_config_values.cpp."""

import functools
import json

from lib.base.command import ROOT, ScriptError, printable
from lib.base.files import member


@functools.cache
def _schema():
    return json.loads((ROOT / "configs" / "schema.json").read_text(encoding="utf-8"))


# Further keys of a run, from its summary.json: what its config does not say of its training (Run.history), and the hash
# of its text where another text has stood at the same path.
HISTORY = {"past": {"x-label": "{}", "default": "one schedule"}, "parent": {"x-label": "{}", "default": "from scratch"},
           "data.hash": {"x-label": "text #{}"}}


@functools.cache
def fields():
    """{dotted key: its JSON Schema}, in the order of the program's table, and HISTORY. Members of our own: x-label, the
    form in which a label has the value; x-text, if the value is the path of a text; x-bookkeeping, if the key changes
    no result."""
    def entries(section, prefix=""):
        for name, entry in section["properties"].items():
            yield from entries(entry, f"{prefix}{name}.") if "properties" in entry else [(prefix + name, entry)]

    return dict(entries(_schema())) | HISTORY


NORMS = _schema()["x-norms"]  # {name: its row in src/engine/model/norms.h}
PLACEMENTS = _schema()["x-placements"]  # {name: its row in src/engine/model/placement.h}
PLACED = fields()["model.norm_placement"]["anyOf"][0]["enum"]  # the names of placements, then of patterns of them


def placements(model):
    """[(attention's placement, the FFN's placement)] of each block of a resolved config's section `model`, whose
    "$blocks" is the list that a pattern such as `mix` stands for. ScriptError: a list of another length than the number
    of blocks."""
    written, depth = model.get("$blocks", model["norm_placement"]), model["n_layer"]
    entries = written if isinstance(written, list) else [written] * depth
    if len(entries) != depth:
        raise ScriptError(f"[model] norm_placement: {len(entries)} entries for {depth} blocks")
    return [(entry["attn"], entry["ffn"]) if isinstance(entry, dict) else (entry, entry) for entry in entries]


def require_every_key(config, file):
    """Returns the resolved config of a file. ScriptError: an older normscope wrote it, and a key that can change a
    result is missing."""
    asked = {key for key, entry in fields().items() if "x-bookkeeping" not in entry and key not in HISTORY}
    if "$idle" not in config or any(member(config, key) is None for key in asked.difference(config["$idle"])):
        raise ScriptError(f"{printable(file)}: an older normscope wrote this config, which lacks keys; its commands "
                          "still read it, and train --resume writes it anew")
    return config
