"""Where the Python that runs a script lacks a package, as one of pyenv or conda may, the distribution's may have it."""

import os
import sys
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"


def restart(error, topic, advice):
    """On an ImportError: starts the script again with the distribution's Python, else says in one line what is missing. A
    program that is none of these scripts gets the error."""
    if Path(sys.argv[0]).resolve().parent != Path(__file__).resolve().parents[1]:
        raise error
    if sys.executable != SYSTEM_PYTHON and os.access(SYSTEM_PYTHON, os.X_OK):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print(f"[{topic}] {error}; {advice}", file=sys.stderr)
    sys.exit(1)
