"""Files as the program reads and writes them: JSON with comments, whole or not at all."""

import collections
import json
import os
import re
from pathlib import Path

from lib.command import ScriptError, printable

STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def _unique(pairs):
    twice = [key for key, count in collections.Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f"duplicate key {printable(twice[0])!r}")
    return dict(pairs)


def _refuse(word):
    raise ValueError(f"{word} is no JSON number")


JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)  # no key twice, neither NaN nor Infinity


def read_json(path):
    """The value of a JSON file, which may have `//` and `/* */` comments."""
    def blank(found):
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    try:
        return JSON.decode(STRING_OR_COMMENT.sub(blank, Path(path).read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ScriptError(f"there is no file {printable(path)}") from None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ScriptError(f"{printable(path)}: {printable(error)}") from None


def write_atomically(path, text):
    """Writes beside the file, syncs and renames: a kill leaves the old file or the new one, whole."""
    beside = Path(f"{path}.normscope-tmp")
    with open(beside, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
