"""Files as the program reads and writes them: JSON with comments, whole or not at all, locked folders, hashes of texts."""

import collections
import contextlib
import fcntl
import json
import os
import re
import sys
from pathlib import Path

from lib.command import ScriptError, printable

STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
FNV_BASIS, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def parse_json(text):
    """The value of a JSON text; a ValueError for a key given twice, and for NaN or Infinity, which JSON does not have."""
    def unique(pairs):
        twice = [key for key, count in collections.Counter(key for key, _ in pairs).items() if count > 1]
        if twice:
            raise ValueError(f"duplicate key {printable(twice[0])!r}")
        return dict(pairs)

    def refuse(word):
        raise ValueError(f"{word} is no JSON number")

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)


def read_json(path):
    """The value of a JSON file, which may have `//` and `/* */` comments."""
    def blank(found):
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    try:
        return parse_json(STRING_OR_COMMENT.sub(blank, Path(path).read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ScriptError(f"there is no file {printable(path)}") from None
    except RecursionError:
        raise ScriptError(f"{printable(path)}: nested too deeply") from None
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ScriptError(f"{printable(path)}: {printable(error)}") from None


def write_atomically(path, text):
    """Writes beside the file, syncs and renames: a kill leaves the old file or the new one, whole."""
    beside = Path(f"{path}.normscope-tmp")
    with open(beside, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


@contextlib.contextmanager
def locked(path, shared=False, wait=False):
    """Holds the lock of a folder, or of a file, which is made. An error if another process holds it, unless `wait`."""
    descriptor = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        raise ScriptError(f"[lock] {printable(path)}: another process is writing here; wait for it or use another folder",
                          1) from None
    except OSError as error:  # a file system without locks
        print(f"note: {printable(path)} cannot be locked ({error.strerror}); start one process at a time there", file=sys.stderr)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def fnv1a(content, state=FNV_BASIS):
    """FNV-1a, 64 bits, of bytes."""
    for byte in content:
        state = (state ^ byte) * FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return state
