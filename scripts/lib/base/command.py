"""Shared by all commands: options, errors in one line, text that is safe for a terminal, the path of the program. It
needs no package."""

import argparse
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

from lib.base.system_python import fit_streams

ROOT = Path(__file__).resolve().parents[3]
# Characters that change the direction of writing.
DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class ScriptError(Exception):
    """An error for the user: a line for each problem. `code` is the exit code: 2 if what the command names
    cannot give what it asks for, 1 if a file is damaged, or cannot be read or written."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


class _Once(argparse.Action):
    """Stores the value of an option. A second one is an error, as one of the two would be dropped in silence."""

    is_given = False

    def __call__(self, parser, namespace, values, option_string=None):
        if self.is_given and option_string:
            parser.error(f"{option_string} is given twice; give it once")
        self.is_given = True
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser whose help keeps the lines of the docstring and whose errors are one line, `[topic] message`. An option
    with a value is given once, unless its action is another than `store`."""

    def __init__(self, topic, description, **settings):
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.register("action", None, _Once)
        self.topic = topic

    def parse_known_args(self, args=None, namespace=None):
        """Parses the command line. A shell leaves the ~ of --out=~/runs and -o~/x; here it is the home folder."""
        words = sys.argv[1:] if args is None else [str(word) for word in args]
        home = os.path.expanduser("~")
        words = [re.sub(r"^(--?[\w-]+=|-[a-z])~(?=/)", lambda match: match[1] + home, word) for word in words]
        return super().parse_known_args(words, namespace)

    def error(self, message):
        self.exit(2, f"[{self.topic}] {printable(message)}; see {self.prog} --help\n")


def main(run, topic):
    """Calls `run` and ends the program with the exit code that it returns, 0 if none. Errors become lines `[topic]
    message` on stderr; a line that begins with a topic keeps it."""
    is_closed = sys.stdout is None
    fit_streams()
    try:
        code = run()
        sys.stdout.flush()
        if is_closed:
            raise ScriptError("output: stdout is closed, so that nothing could be printed", 1)
    except ScriptError as error:
        for line in str(error).split("\n"):
            print(line if line.startswith("[") else f"[{topic}] {line}", file=sys.stderr)
        code = error.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains again at its end
        print(f"[{topic}] output: stdout was closed before all of it was written", file=sys.stderr)
        code = 1
    except OSError as error:
        print(f"[{topic}] {printable(error.filename or 'output')}: {error.strerror or error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def printable(text):
    """The text with control characters escaped, and with characters escaped that break lines or change the direction of
    writing: names of files and samples may hold any character."""
    def shown(character):
        if unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") and character not in DIRECTIONS:
            return character
        return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"

    return "".join(map(shown, str(text)))


def program():
    """The path of the program: the environment's NORMSCOPE_BINARY, else that in the build folder."""
    return Path(os.environ.get("NORMSCOPE_BINARY") or ROOT / "build" / "normscope")


def ask(*arguments, purpose, **options):
    """Runs the program with these arguments and options of subprocess.run, and returns a CompletedProcess. `purpose`:
    the reason why the program is needed, for the error, such as "knows the keys"."""
    try:
        return subprocess.run([program(), *arguments], capture_output=True, check=False, **options)
    except OSError as error:
        raise ScriptError(f"{printable(program())}: {error.strerror}; it {purpose}: build it by scripts/build.sh, or "
                          "name it in NORMSCOPE_BINARY", 1) from None


def argument(path):
    """The path as an argument that no program takes for an option, even if it begins with "-"."""
    return os.path.join(".", path) if str(path).startswith("-") else str(path)
