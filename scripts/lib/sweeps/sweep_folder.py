"""The folder of a sweep, which several sweeps may share at the same time: locks on its runs, and the table of
results."""

import contextlib
import csv
import fcntl
import hashlib
import io
import os

from lib.base.command import ScriptError, printable
from lib.base.files import is_locked, read_json, try_lock, write_atomically
from lib.base.tables import csv_text
from lib.sweeps.grid import METRICS, GridPoint, as_cell, read_labels, write_labels

LOCK = ".lock"  # a file in the folder of a sweep
RESULTS = ["status", *METRICS]  # the last columns of the table
csv.field_size_limit(1 << 30)  # bytes of a value, such as a list of texts
TABLE = 0  # the byte of the lock file that stands for summary.csv


class Locks:
    """Locks on bytes of the file .lock, which the system releases when a sweep ends, however it ends: one byte for the
    table and one for each run. A file system without locks grants them all."""

    def __init__(self, folder):
        self.descriptor = None
        with contextlib.suppress(OSError):  # a full disk
            self.descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def call(self, byte, flags):
        """Locks or unlocks a byte, as the fcntl flags say. False: another sweep has it; without LOCK_NB among the flags
        this waits instead."""
        return self.descriptor is None or try_lock(lambda: fcntl.lockf(self.descriptor, flags, 1, byte)) is not False

    def acquire(self, run):
        """Locks the run for this sweep. False: another sweep or a `normscope train` trains it now."""
        if not self.call(byte_of(run), fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
        if is_locked(run.folder):
            self.release(run)
            return False
        return True

    def release(self, run):
        """Unlocks a run."""
        self.call(byte_of(run), fcntl.LOCK_UN)


def byte_of(run):
    """The byte of the lock file that stands for a run."""
    return 1 + int.from_bytes(hashlib.sha256(run.name.encode()).digest()[:7])


class Table:
    """summary.csv: a row for each run that is done, diverged or failed: those of this sweep in the order of its grid,
    then those of other sweeps in the folder. Columns are the keys that vary in any of these sweeps. `problem`: the
    reason why it could not be written, or "". ScriptError: summary.csv is no table of a sweep, or the folder has runs
    that belong to no sweep."""

    def __init__(self, path, sweep):
        self.path, self.sweep = path, sweep
        self.locks, self.problem = None, ""
        self._read()
        read_labels(path.parent)
        own = {run.name for run in sweep.runs}
        others = {file.parent.name for file in path.parent.glob("*/config.json")} - own
        if others and not (path.exists() or (path.parent / LOCK).exists()):
            raise ScriptError(f"{printable(path.parent)}: holds other runs, such as {printable(min(others))}, that "
                              "no sweep made; choose another folder with --out DIR")

    def open(self):
        """Makes the folder, with the labels of the sweep's runs. OSError: it cannot be made."""
        folder = self.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        self.locks = Locks(folder)
        self._attempt(lambda: write_labels(self.sweep, folder))

    def _read(self):
        """(columns of keys, {name: {column: cell}}). ScriptError: the file is no table of a sweep."""
        if not self.path.exists():
            return [], {}
        try:
            text = self.path.read_bytes().decode("utf-8", "replace")
            header, *rows = [*csv.reader(io.StringIO(text, newline=""))] or [[]]
        except csv.Error:
            header, rows = [], []
        if header[:1] != ["name"] or header[-len(RESULTS):] != RESULTS:
            raise ScriptError(f"{printable(self.path)}: is no table of a sweep, or one of another version with other "
                              "columns; move it away, and it is written anew, or choose another folder with --out DIR")
        return header[1:-len(RESULTS)], {row[0]: dict(zip(header, row)) for row in rows if row}

    def write(self, *runs):
        """Writes the rows of runs that have ended. A failure is kept in `problem`; the result of a run is its folder,
        from which a later row is written."""
        self._attempt(lambda: self._write(runs))

    def _write(self, runs):
        folder, (columns, rows) = self.path.parent, self._read()
        write_labels(self.sweep, folder)  # of another sweep, or after a failure
        columns, labels = list(dict.fromkeys([*self.sweep.columns, *columns])), read_labels(folder)["runs"]
        rows |= {run.name: row_of(run, columns) for run in runs}
        for path in sorted(folder.iterdir()):
            # A run whose sweep was killed before it wrote the row, or had other columns; or one that could not be
            # trained again as the sweep has it now.
            row = rows.get(path.name, {})
            if (row.get("status", "failed") == "failed" or not row.keys() >= {*columns}) and (
                    ended := ended_run(path, labels.get(path.name, {}))):
                rows[path.name] = row_of(ended, columns)
        own = dict.fromkeys(run.name for run in self.sweep.runs if run.name in rows)
        others = [name for name in rows if name not in own and (folder / name).is_dir()]
        titles = ["name", *columns, *RESULTS]
        table = [titles, *([rows[name].get(title, "") for title in titles] for name in [*own, *others])]
        write_atomically(self.path, csv_text(table))

    def _attempt(self, write):
        """Calls write() while no other sweep writes, and sets `problem`."""
        self.locks.call(TABLE, fcntl.LOCK_EX)
        try:
            write()
            self.problem = ""
        except ScriptError as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"{printable(error.filename or self.path)}: {error.strerror}"
        finally:
            self.locks.call(TABLE, fcntl.LOCK_UN)


def is_of_sweep(run):
    """Whether a sweep made a run, which bears the name of its folder then."""
    has_marks = any((run.folder.parent / name).exists() for name in (LOCK, "summary.csv"))
    return has_marks and run.value("name") == run.folder.name


def row_of(run, columns):
    """{column: cell} of a GridPoint that has ended."""
    cells = {column: run.value(column) for column in columns}
    cells |= {"name": run.name, "status": run.status, **{key: run.summary.get(key) for key in METRICS}}
    return {column: as_cell(cell) for column, cell in cells.items()}


def steps_left(run):
    """How many steps `normscope train --resume` will train of a GridPoint: all without a checkpoint, else those after
    it. A diverged run has some too, and a run that is done if train.steps was raised."""
    steps, summary = run.config["train"]["steps"], _read_object(run.folder / "summary.json")
    trained = summary.get("steps", 0) if (run.folder / "checkpoint.safetensors").exists() else 0
    # The checkpoint of a run that is not done is of an earlier step, though its summary may count all.
    return max(steps - trained, int(summary.get("status") != "done"))


def ended_run(folder, labels):
    """The run of a folder as a GridPoint with these labels if it is done or diverged, and so has a row in the table;
    else None. Whether it is trained again is another question: steps_left."""
    config, summary = (_read_object(folder / name) for name in ("config.json", "summary.json"))
    status = config and summary.get("status")
    if status in ("done", "diverged"):
        return GridPoint(folder.name, {}, labels, config, folder, status, summary)
    return None


def _read_object(file):
    """The object of a JSON file of a run; {} if there is no run, or a damaged one."""
    try:
        content = read_json(file)
    except (ScriptError, OSError):
        return {}
    return content if isinstance(content, dict) else {}
