"""The Python that runs a script: it takes the names of files for UTF-8, and it has the packages that the script
needs."""

import codecs
import locale
import os
import signal
import sys
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"


def is_running_a_script():
    """Whether the program is one of these scripts, and no notebook or test that imports them."""
    return Path(sys.argv[0]).resolve().parent == Path(__file__).resolve().parents[2]


def begin():
    """Prepares a script for what it imports: starts it again with a Python that is new enough, and in Python's UTF-8
    mode if the locale has another encoding. The program and all of its files take names for UTF-8; read in ISO-8859-1,
    they would name other files. Until fit_streams() an interrupt ends the script in silence."""
    if not is_running_a_script():
        return
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.version_info < (3, 11):
        restart(RuntimeError(f"this is Python {'.'.join(map(str, sys.version_info[:2]))}"), "expected 3.11 or newer")
    if not sys.flags.utf8_mode and codecs.lookup(sys.getfilesystemencoding()).name != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def fit_streams():
    """Prepares a script for its work. An interrupt becomes an exception. A stream that is closed leads to /dev/null, as
    a file would get its number. Characters that the encoding of stdout and stderr lacks are escaped; a terminal has the
    encoding of the locale, unless that is ASCII, which the locale C has on any terminal; files and pipes get UTF-8."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # it gets the lowest number that is free
            os.set_inheritable(getattr(sys, name).fileno(), True)
    encoding = codecs.lookup(locale.nl_langinfo(locale.CODESET)).name
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's has none
            is_other = stream.isatty() and encoding not in ("utf-8", "ascii")
            stream.reconfigure(encoding=encoding if is_other else None, errors="backslashreplace")


def restart(error, advice, topic=None):
    """After an error in what a script imports: starts it again with the distribution's Python, which may have the
    package, without PYTHONPATH, which may hold packages of another Python. If that is running already, prints one line
    `[topic] error; advice` and exits with 1; `topic` is the name of the script unless it is given. A program that is
    none of these scripts gets the error."""
    if not is_running_a_script():
        raise error
    if (sys.executable != SYSTEM_PYTHON or "PYTHONPATH" in os.environ) and os.access(SYSTEM_PYTHON, os.X_OK):
        others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        os.execve(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv], others)
    if type(error) is ImportError:  # the package is there; ModuleNotFoundError has a type of its own
        advice = "the package, or one that it needs, is damaged or of another version: install all from one place"
    print(f"[{topic or Path(sys.argv[0]).stem}] {str(error).splitlines()[0]}; {advice}", file=sys.stderr)
    sys.exit(1)
