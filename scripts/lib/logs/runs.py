"""Reading runs: finds their folders and reads their configs, logs and summaries."""

import csv
import functools
import json
import math
import os
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.base.files import is_locked, natural_order
from lib.logs import np

PLACEMENT, NORM = "model.norm_placement", "model.norm"
LARGEST = {"step": 1e7, "layer": 1025}  # columns of whole numbers from 0, and the largest that a run can write
TEXTS = ("site", "param")  # columns of names


def shortened(text, length):
    return text if len(text) <= length else text[:length - 1] + "…"


# ---- reading --------------------------------------------------------------------------------------------------

UNLOGGED = "set log.layers_every above 0 and train again"
STEP_BYTES = 4000  # the rows of a layer and step in layers.csv or params.csv take less
RUNNING, STOPPED = "running", "stopped"  # the status of a run that is still training; of one that was killed


class Run:
    """A run folder, or one seed of a probe folder: `folder`, its path as given; `home`, the absolute path of the run's
    or the probe's folder; `config` and `summary`, the dicts of its files, `summary` empty without the file; `probe`,
    whether it is of a probe. ScriptError: the config is missing or damaged."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = self._json("config.json")
        model = self.config.get("model")
        if not isinstance(model, dict) or not isinstance(model.get("n_layer"), int) or "norm_placement" not in model:
            raise ScriptError(f"{self}: damaged config.json: expected that of a run, with model.n_layer and "
                              "model.norm_placement", 1)
        self.summary = self._json("summary.json") if (self.folder / "summary.json").exists() else {}
        self.probe = self.summary.get("status") == "probe"
        folder = Path(os.path.abspath(self.folder))  # without ".."
        self.home = folder.parent if self.probe else folder

    def value(self, key):
        """The value of a dotted key of the config; None if it has none."""
        return functools.reduce(lambda part, name: part.get(name) if isinstance(part, dict) else None, key.split("."),
                                self.config)

    @property
    def seed(self):
        return self.value("train.seed")

    @property
    def history(self):
        """{key of keys.HISTORY: text}: "steps 30 until 20" if a resume at step 20 changed train.steps from 30; "from pre
        step 300 #1b2c3d" if the run started from the weights, with that hash, of another one."""
        past, parent = (self.summary.get(key) for key in ("past", "parent"))
        parts = [f"steps {part.get('train.steps')} until {part.get('step')}"
                 for part in (past if isinstance(past, list) else []) if isinstance(part, dict)]
        history = {"past": ", ".join(parts)} if parts else {}
        if isinstance(parent, dict):
            moments = " with moments" if parent.get("moments") else ""
            history["parent"] = (f"from {Path(str(parent.get('folder'))).name} step {parent.get('step')}{moments} "
                                 f"#{str(parent.get('hash'))[:6]}")
        return history

    def texts(self):
        """The list of the paths of the run's text."""
        paths = self.value("data.path") or []
        return [paths] if isinstance(paths, str) else paths

    def __str__(self):
        return printable(self.folder)

    def _json(self, name):
        try:
            value = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ScriptError(f"{self}: no {name}; not a run folder") from None
        except (ValueError, RecursionError) as error:
            raise ScriptError(f"{self}: damaged {name}: {error}") from None
        if not isinstance(value, dict):
            raise ScriptError(f"{self}: damaged {name}: not an object")
        return value

    def rows(self, name, columns, hint, keep=None, some=True, last=None, no_column=""):
        """The named columns of a log as an array (rows, columns) of floats, NaN for empty cells. ScriptError: the file,
        a column or, with `some`, any row is missing, or a row is damaged.

        hint, no_column  advice in the error if the file or a column is missing
        keep             (column, names): keeps rows whose cell in that column is in `names`, and appends its index in
                         `names` to the row
        last             read only that many bytes from the end of the file"""
        lines = self._lines(name, hint, last)
        _, header = next(lines, (0, []))
        missing = [c for c in (*columns, *([keep[0]] if keep else [])) if c not in header]
        if missing:
            advice = no_column and f"; {no_column}"
            raise ScriptError(f"{self}: {name} has no column {', '.join(missing)}{advice}")
        indices = [header.index(c) for c in columns]
        keep_index = header.index(keep[0]) if keep else None
        name_indices = {name: [i] for i, name in enumerate(keep[1])} if keep else {}
        rows = []
        for number, row in lines:
            try:
                name_index = name_indices.get(row[keep_index]) if keep else []
                if name_index is not None:
                    rows.append(_values(row, indices, columns) + name_index)
            except (ValueError, IndexError):
                raise ScriptError(f"{self}: {name} line {number}: damaged row") from None
        if some and not rows:
            raise ScriptError(f"{self}: {name} has no rows yet")
        return np.array(rows).reshape(len(rows), len(columns) + (keep is not None))

    def records(self, name, hint="not a training run"):
        """Yields each row of a log as {column: number, NaN for an empty cell; text in the columns TEXTS}. `hint` and
        ScriptError: as in rows()."""
        lines = self._lines(name, hint)
        _, header = next(lines, (0, []))
        for number, row in lines:
            try:
                yield dict(zip(header, _values(row, range(len(header)), header)))
            except (ValueError, IndexError):
                raise ScriptError(f"{self}: {name} line {number}: damaged row") from None

    def _lines(self, name, hint, last=None):
        """Yields (number, cells) of the complete lines of a log, the header first."""
        try:
            file = open(self.folder / name, "rb")
        except FileNotFoundError:
            raise ScriptError(f"{self}: no {name}; {hint}") from None
        with file:
            reader = csv.reader(_complete_lines(file, last))
            yield from ((reader.line_num, row) for row in reader)

    @functools.cached_property
    def record(self):
        """{name: value} of the numbers in summary.json, which a run writes at its start, at checkpoints and at its end,
        and of the status: the program cannot write STOPPED, so an unlocked folder says so."""
        record = {key: value for key, value in self.summary.items() if _is_metric(key, value)}
        status = self.summary.get("status")
        if not isinstance(status, str) or status == RUNNING:
            status = STOPPED if is_locked(self.folder) is False else RUNNING
        return record | {"status": status}

    @property
    def text_hash(self):
        """The hash of the bytes of the run's text, as summary.json has it; "" if it has none."""
        text_hash = self.summary.get("corpus_hash")
        return text_hash if isinstance(text_hash, str) else ""

    def evaluations(self):
        """The steps with a validation loss and these losses, as an array (evaluations, 2)."""
        return self._column("val_loss")

    def progress(self, axis):
        """The tokens or seconds (`axis`) that training had taken at each logged step, as an array of rows (step,
        value); no rows if the logs lack it. Without a column of seconds they are the sum of step_ms, if every
        step is logged."""
        rows = self._column(axis)
        if axis == "seconds" and not len(rows):
            rows = self._column("step_ms")
            rows = np.stack([rows[:, 0], rows[:, 1].cumsum() / 1000], axis=1)
            if not np.array_equal(rows[:, 0], np.arange(1, len(rows) + 1)):
                rows = rows[:0]
        return rows

    def last_step(self):
        """The step to which training is known to have come: that of the last checkpoint or row of metrics.csv."""
        return int(max(self.record.get("steps", 0), self._column("step").max(initial=0)))

    def _column(self, column):
        """The steps at which metrics.csv has a value in the column and these values; none if it cannot be read."""
        try:
            rows = self.rows("metrics.csv", ("step", column), "not a training run", some=False)
        except ScriptError:
            return np.empty((0, 2))
        return rows[~np.isnan(rows[:, 1])]

    @property
    def diverged(self):
        return self.summary.get("status") == "diverged"

    def diverged_at(self, otherwise=None):
        """The step at which the run diverged, as its summary has it, else `otherwise`."""
        culprit = self.summary.get("first_nonfinite")
        step = culprit.get("step") if isinstance(culprit, dict) else None
        return step if isinstance(step, int) else otherwise


COUNTS = ("steps", "params", "vocab")  # whole numbers in summary.json


def _is_metric(key, value):
    """Whether a member of summary.json is a number that a run can write there."""
    return type(value) in (int, float) and (key not in COUNTS or 0 <= value < 1 << 53 and value == int(value))


def _values(row, indices, columns):
    """The cells at these indices as numbers, NaN for empty ones, or as texts in the columns TEXTS; ValueError or
    IndexError if a run cannot have written them."""
    values = [row[index] if column in TEXTS else float(row[index] or "nan") for index, column in zip(indices, columns)]
    for column, value in zip(columns, values):
        if column in LARGEST and not (0 <= value <= LARGEST[column] and value == int(value)):
            raise ValueError
    return values


def _complete_lines(file, last=None):
    """Yields the lines of a binary file as text: the header, then, with `last`, only the lines in that many bytes at the
    end of the file. A last line without a newline, which a kill has torn, is dropped."""
    yield file.readline().decode("utf-8", "replace")
    start = os.fstat(file.fileno()).st_size - last if last else 0
    if start > file.tell():
        file.seek(start)
        file.readline()  # the rest of a line
    for line in file:
        if not line.endswith(b"\n"):
            return
        yield line.decode("utf-8", "replace")


def find_runs(paths, needed, unreadable=None):
    """The runs of these paths, each a run folder, a probe folder, or a folder that holds such folders one or two levels
    down. Within one path pre-norm runs come first; those of a sweep's folder are in the order of its summary.csv.
    `needed`: the file that each run below a path must have. ScriptError: there is no run, or one is damaged; the
    message about a damaged run goes to the list `unreadable` instead if that is given."""
    runs, seen = [], set()
    for path in map(Path, paths):
        if not path.is_dir():
            raise ScriptError(f"{printable(path)}: no such folder; name run folders, such as runs/quickstart/pre")
        folders = [path] if (path / "config.json").exists() else folders_below(path, needed)
        if not folders:
            raise ScriptError(f"{printable(path)}: no config.json, and no run with {needed} in the folders below")
        before = len(runs)
        for folder in folders:
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                try:
                    runs.append(Run(folder))
                except ScriptError as error:
                    if unreadable is None:
                        raise
                    unreadable.append(str(error))
        if not (path / "summary.csv").exists():
            runs[before:] = sorted(runs[before:], key=lambda run: run.value(PLACEMENT) != "pre")
    return runs


def folders_below(path, needed):
    """The run folders one or two levels below, and the seeds of probe folders there, sorted as natural_order has them;
    those of a sweep in the order of its summary.csv."""
    folders = {file.parent for levels in ("*", "*/*", "*/*/seed-*") for file in path.glob(f"{levels}/config.json")}

    @functools.cache
    def rank(sweep):
        try:
            with open(sweep / "summary.csv", encoding="utf-8", errors="replace", newline="") as file:
                return {row[0]: i for i, row in enumerate(csv.reader(file)) if row}
        except (OSError, csv.Error):
            return {}

    def order(folder):
        ranks = rank(folder.parent)
        return natural_order(folder.parent), ranks.get(folder.name, len(ranks)), natural_order(folder)

    return sorted((folder for folder in folders if (folder / needed).exists()), key=order)
