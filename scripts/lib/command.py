"""What commands share and needs no package: options, errors in one line, text fit for a terminal, the program's place."""

import argparse
import os
import sys
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Marks that turn the direction of writing.
TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class ScriptError(Exception):
    """A line, or some, of what is wrong. `code` is the exit code: 2 for usage, 1 for I/O."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """Help keeps the docstring's lines; an error is one line."""

    def __init__(self, topic, description, **settings):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.topic = topic

    def error(self, message):
        self.exit(2, f"[{self.topic}] {printable(message)}; see {self.prog} --help\n")


def run_command(run, topic):
    """The exit code that `run` returns, 0 if none. What goes wrong becomes lines `[topic] what` on stderr; a line that has a
    topic keeps it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a locale may lack the characters of a name
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except ScriptError as error:
        for line in str(error).splitlines():
            print(line if line.startswith("[") else f"[{topic}] {line}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again at its end
        print(f"[{topic}] output: nobody reads it any more", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"[{topic}] {printable(error.filename or 'output')}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def printable(text):
    """The text with control characters escaped, and those that break lines or turn the direction of writing: file names
    and samples may hold anything."""
    return "".join(_escaped(c) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in TURNING else c
                   for c in str(text))


def _escaped(character):
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def table_of(columns):
    """Columns of cells, titles first, as lines: two blanks apart, numbers to the right but for the first column."""
    def is_number(cell):
        return cell == "" or cell in ("nan", "inf") or cell[0] in "0123456789+-"

    lines = [""] * len(columns[0])
    for place, column in enumerate(columns):
        width = max(map(len, column))
        right = place > 0 and all(map(is_number, column[1:] or column))
        for row, cell in enumerate(column):
            lines[row] += ("  " if place else "") + (cell.rjust(width) if right else cell.ljust(width))
    return [line.rstrip() for line in lines]


def program():
    """The program: NORMSCOPE or NORMSCOPE_BINARY, else that of the build folder."""
    return Path(os.environ.get("NORMSCOPE") or os.environ.get("NORMSCOPE_BINARY") or ROOT / "build" / "normscope")


def argument(path):
    """The path as an argument of a program, which takes it for no option."""
    return os.path.join(".", path) if str(path).startswith("-") else str(path)
