"""Chooses output paths and writes figures."""

import io
import os
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.base.files import MARK, require_output, write_atomically
from lib.figures.layout import DPI, look


def folder_of(runs):
    """The folder that holds all of the runs; for a single run or probe its own folder. Never a folder above the working
    directory."""
    common, here = Path(os.path.commonpath([run.home for run in runs])), Path.cwd()
    return Path(os.path.relpath(here if common in here.parents else common))


def output_path(given, runs, name, endings):
    """The path of the file to write. `given`: the argument of -o, a file or a folder; None: folder_of(runs). In a
    folder the file is called `name`; a path without an ending gets the first of `endings`. ScriptError: another
    ending, or a file that require_output() protects."""
    path = folder_of(runs) if given is None else Path(os.path.normpath(given))
    if path.is_dir() or str(given).endswith(os.sep):
        path = path / (name + endings[0])
    elif not path.suffix:
        path = path.with_suffix(endings[0])
    elif path.suffix.lower() not in endings:
        raise ScriptError(f"-o {printable(given)}: got the ending {printable(path.suffix)}; give a name ending in "
                        + " or ".join(endings))
    require_output(path)
    return path


def file_bytes(figure, kind):
    """The figure as a file of this kind (png, svg, pdf), by one version of Matplotlib the same bytes every
    time."""
    file = io.BytesIO()
    metadata = {"png": {"Software": MARK}, "svg": {"Creator": MARK, "Date": None},  # with None it is left out
                "pdf": {"Producer": MARK, "CreationDate": None}}
    with look(figure.paper):
        figure.savefig(file, format=kind, dpi=300 if figure.paper else DPI, metadata=metadata[kind])
    return file.getvalue()


def save(figure, path):
    """Writes the figure as a file of the kind that the path ends with, and prints the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, file_bytes(figure, path.suffix.lower()[1:]))
    print(f"wrote {printable(path)}")
