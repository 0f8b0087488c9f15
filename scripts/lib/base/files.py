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

from lib.base.command import ScriptError, printable

MARK = "made with normscope"  # in the metadata of pictures and pages
RUN_FILE = re.compile(r"(config|summary)\.json|sample\.txt|\w+\.csv|\w+\.safetensors")
STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def repeated(items):
    """The items that are there more than once."""
    return [item for item, count in collections.Counter(items).items() if count > 1]


def _unique(pairs):
    if twice := repeated(key for key, _ in pairs):
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


def member(content, key):
    """The value of a dotted key in nested objects of JSON; None if there is none."""
    for name in key.split("."):
        content = content.get(name) if isinstance(content, dict) else None
    return content


def whole_lines(file):
    """Yields the lines from the place of an open binary file on as text. A last line without a newline, which a kill
    has torn, is left out."""
    for line in file:
        if not line.endswith(b"\n"):
            return
        yield line.decode("utf-8", "replace")


def natural_order(path):
    """A key for sorting paths by the numbers in them: L=2 before L=12, and lr=0.0003 before lr=0.001."""
    number = r"\d+(?:\.\d+)?"
    return re.sub(number, "0", str(path)), [float(n) for n in re.findall(number, str(path))], str(path)


def try_lock(attempt):
    """Whether attempt(), a call of fcntl, gets a lock that another process may have; None if the file system has no
    locks."""
    try:
        attempt()
        return True
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None


def lock(folder):
    """Locks a folder until this process ends, if the file system has locks. ScriptError: another process has locked
    it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    if try_lock(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)) is False:
        raise ScriptError(f"{printable(folder)}: another process is writing here; wait for it, or name another folder "
                          "with --out DIR", 1)


def is_locked(folder):
    """Whether a `normscope train` holds the lock on the folder of its run; None if the file system has no locks. One
    that a killed sweep had started holds it until its state is saved."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # there is no such folder yet, or the program will report its fault
        return False
    is_free = try_lock(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB))
    os.close(descriptor)
    return None if is_free is None else not is_free


def require_output(path, inputs=(), overwrite=None, mark=MARK):
    """The rule for files that a user names to plot.py, report.py, make_corpus.py and reproduce.py, as require_output()
    of src/logs/run_folder.h has it. ScriptError: the path
    is one of the `inputs`, or a run's own file, or a file without `mark` that `overwrite` does not ask to replace
    (None: the script has no such option)."""
    target, reason = Path(os.path.realpath(path)), ""
    if os.path.exists(path) and any(os.path.exists(one) and os.path.samefile(path, one) for one in inputs):
        reason = "is an input, and would be replaced;"
    elif RUN_FILE.fullmatch(target.name) and any((folder / "config.json").exists() for folder in target.parents[:2]):
        reason = "is the name of a run's own file;"
    elif target.is_file() and not overwrite and mark.encode() not in target.read_bytes():
        ways = "" if overwrite is None else " replace it with --overwrite, or"
        reason = f"exists, and normscope has not marked it as its own;{ways}"
    if reason:
        raise ScriptError(f"{printable(path)}: {reason} name another file")


def write_atomically(path, content):
    """Replaces a file by a text or bytes: writes a new file in the same folder, syncs and renames it, so that a kill
    leaves the old file or the new one, complete. A link stays a link, and the file keeps its mode. OSError and
    ScriptError name the file."""
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_file()):  # a link to itself, a folder, a device
        raise ScriptError(f"{printable(path)}: cannot be written: it exists and is not a file", 1)
    # A name that nobody can take beforehand, and short: the target's may be as long as the file system allows.
    temporary = target.with_name(f".normscope-{secrets.token_hex(8)}")
    try:
        try:
            with open(temporary, "xb") as file:
                if target.exists():
                    os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)
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
