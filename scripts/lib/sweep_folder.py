"""The folder of a sweep, which several sweeps may share at the same time: locks on its runs, and the table of
results."""

import contextlib
import csv
import fcntl
import hashlib
import io
import os

from lib.command import ScriptError, printable
from lib.files import write_atomically
from lib.grid import METRICS, as_cell, write_labels

TABLE = 0  # the byte of the lock file that stands for summary.csv


class Locks:
    """Locks on bytes of the file .lock, which the system releases when a sweep ends, however it ends: one byte for the
    table and one for each run. A file system without locks grants them all."""

    def __init__(self, folder):
        self.descriptor = None
        with contextlib.suppress(OSError):  # a full disk
            self.descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def try_lock(self, byte, flags):
        """Locks or unlocks a byte, as the fcntl flags say. False: another sweep has it; without LOCK_NB among the flags
        this waits instead. True: the byte is locked, or the file system has no locks."""
        try:
            if self.descriptor is not None:
                fcntl.lockf(self.descriptor, flags, 1, byte)
            return True
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            return True

    @contextlib.contextmanager
    def table(self):
        """Keeps other sweeps from writing the table."""
        self.try_lock(TABLE, fcntl.LOCK_EX)
        try:
            yield
        finally:
            self.try_lock(TABLE, fcntl.LOCK_UN)

    def acquire(self, run):
        """Locks the run for this sweep. False: another sweep or a `normscope train` trains it now."""
        if not self.try_lock(byte_of(run), fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
        if is_free(run.folder):
            return True
        self.release(run)
        return False

    def release(self, run):
        """Unlocks a run."""
        self.try_lock(byte_of(run), fcntl.LOCK_UN)


def byte_of(run):
    """The byte of the lock file that stands for a run."""
    return 1 + int.from_bytes(hashlib.sha256(run.name.encode()).digest()[:7])


def is_free(folder):
    """Whether no `normscope train` holds the lock on the folder of its run. One that a killed sweep had started holds
    it until its state is saved."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # there is no such folder yet, or the program will report its fault
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    finally:
        os.close(descriptor)
    return True


class Table:
    """summary.csv: a row for each run that is done, diverged or failed, in the order of the grid. `problem`: the reason
    why it could not be written, or ""."""

    def __init__(self, path, sweep):
        self.path, self.sweep, self.header = path, sweep, ["name", *sweep.columns, "status", *METRICS]
        self.locks, self.problem, self.unwritten = None, "", {}
        self.rows()

    def open(self, folder):
        """Makes the folder, with the labels of the sweep's runs. OSError: it cannot be made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.locks = Locks(folder)
        self._attempt(lambda: write_labels(self.sweep, folder))

    def rows(self):
        """{name: row}; empty if the table is of another grid. ScriptError: the file is no table of a sweep."""
        if not self.path.exists():
            return {}
        try:
            text = self.path.read_bytes().decode("utf-8", "replace")
            header, *rows = [*csv.reader(io.StringIO(text, newline=""))] or [[]]
        except csv.Error:
            header, rows = [], []
        if header[:1] != ["name"] or header[-1 - len(METRICS):] != ["status", *METRICS]:
            raise ScriptError(f"{printable(self.path)}: is no table of a sweep, and would be replaced by one; move it "
                              "away, or choose another folder with --out DIR")
        return {row[0]: row for row in rows if row} if header == self.header else {}

    def add(self, run):
        """Writes the row of a run that has ended, and those that could not be written before."""
        cells = [run.name, *map(run.value, self.sweep.columns), run.status, *map(run.summary.get, METRICS)]
        self.unwritten[run.name] = [as_cell(cell) for cell in cells]
        self.write()

    def write(self):
        """Writes the rows that are not yet written. A failure is kept in `problem`; the result of a run is its
        folder."""
        if self._attempt(self._write):
            self.unwritten.clear()

    def _write(self):
        rows, text = {**self.rows(), **self.unwritten}, io.StringIO()
        names = [run.name for run in self.sweep.runs if run.name in rows]
        csv.writer(text, lineterminator="\n").writerows([self.header, *map(rows.get, names)])
        write_atomically(self.path, text.getvalue())
        write_labels(self.sweep, self.path.parent)  # of another sweep, or after a failure

    def _attempt(self, write):
        """Whether write() succeeds, while no other sweep writes."""
        try:
            with self.locks.table():
                write()
            self.problem = ""
        except ScriptError as error:
            self.problem = str(error)
        except OSError as error:
            self.problem = f"{printable(error.filename or self.path)}: {error.strerror}"
        return not self.problem
