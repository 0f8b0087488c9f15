"""The text of a run or a config: its two parts, and its hash, by which a text that has changed is refused."""

import functools
import json
import math
import sys
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.logs.safetensors_io import fnv1a


def split_text(data):
    """(training text, validation text) of a resolved config's section `data`."""
    text, *validation = ["".join(content.decode("utf-8-sig", "replace") for content in part)
                         for part in _contents(data)]
    if validation:
        return text, validation[0]
    # As training_characters() in src/data/corpus.cpp.
    train = math.floor((1 - data["val_fraction"]) * len(text) + 2 * sys.float_info.epsilon * len(text))
    return text[:train], text[train:]


def require_text(data, known_hash, user):
    """Refuses a text that has changed. `data`: the section of a resolved config that names it; `known_hash`: that of
    the text of the run or file `user`, "" if it is unknown. ScriptError: the text has another hash."""
    now = known_hash and text_hash(json.dumps(data))
    if now != known_hash:
        names = " + ".join(path for part in _paths(data) for path in part)
        raise ScriptError(f"{printable(user)}: its text is another one than {printable(names)} "
                          f"(hash {printable(known_hash)} -> {now}); restore it", 1)


@functools.lru_cache(maxsize=8)
def text_hash(data):
    """The hash in a run's summary of the text that the section `data`, given as JSON, names."""
    content = b"\xFF".join(b"".join(part) for part in _contents(json.loads(data)))
    return f"{fnv1a(content):016x}"


def _paths(data):
    """The paths of the text, and those of the validation text if it has files of its own."""
    text = data["path"] if isinstance(data["path"], list) else [data["path"]]
    return [text, [data["val_path"]]] if data["val_path"] else [text]


def _contents(data):
    """The contents of the files of each part, of which each but the last gets a newline at its end if it has none, as
    in load_corpus() of src/data/corpus.h."""
    files = [[Path(path).read_bytes() for path in part] for part in _paths(data)]
    return [[content if content.endswith(b"\n") else content + b"\n" for content in part[:-1]] + part[-1:]
            for part in files]
