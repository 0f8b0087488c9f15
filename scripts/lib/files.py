"""Files as the program reads and writes them: JSON may have comments; a file is replaced whole or not at all; a run's
folder is locked while it is trained."""

import collections
import errno
import fcntl
import json
import os
import re
import secrets
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
    """The value of a JSON file, which may have `//` and `/* */` comments. ScriptError: it is missing or no JSON."""
    def blanked(match):  # a comment becomes blanks, so that errors name the right line and column
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    try:
        return JSON.decode(STRING_OR_COMMENT.sub(blanked, Path(path).read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ScriptError(f"there is no file {printable(path)}") from None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ScriptError(f"{printable(path)}: {printable(error)}") from None


def is_locked(folder):
    """Whether a `normscope train` holds the lock on the folder of its run; None if the file system has no locks. One
    that a killed sweep had started holds it until its state is saved."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # there is no such folder yet, or the program will report its fault
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def write_atomically(path, content):
    """Replaces a file by a text or bytes: writes a new file in the same folder, syncs and renames it, so that a kill
    leaves the old file or the new one, complete. A link stays a link. OSError and ScriptError name the file."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise ScriptError(f"{printable(path)}: cannot be written: it exists and is not a file", 1)
    # A name that nobody can take beforehand, and short: the target's may be as long as the file system allows.
    temporary = target.with_name(f".normscope-{secrets.token_hex(8)}")
    try:
        try:
            with open(temporary, "xb") as file:
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
                file.flush()
                _sync(file.fileno())
            os.replace(temporary, target)
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                _sync(folder)
            finally:
                os.close(folder)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _sync(descriptor):
    """Writes a file or folder to the disk, if its file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
