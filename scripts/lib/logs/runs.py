"""Reading runs: finds their folders and reads their configs, logs and summaries."""

import csv
import functools
import json
import math
import os
from pathlib import Path

from lib.base.command import ScriptError, printable
from lib.base.files import is_locked, member, natural_order, whole_lines
from lib.logs import np

PLACEMENT, NORM = "model.norm_placement", "model.norm"
LARGEST = {"step": 1e7, "layer": 1025}  # columns of whole numbers from 0, and the largest that a run can write
TEXTS = ("site", "param")  # columns of names


def shortened(text, length):
    return text if len(text) <= length else text[:length - 1] + "…"


# ---- reading --------------------------------------------------------------------------------------------------

UNLOGGED = "set log.layers_every above 0 and train again"
RUNNING, STOPPED = "running", "stopped"  # the status of a run that is still training; of one that was killed


class Run:
    """A run folder, or one seed of a probe folder: `folder`, its path as given; `home`, the absolute path of the run's
    or the probe's folder; `config` and `summary`, the dicts of its files, `summary` empty without the file; `probe`,
    whether it is of a probe. The dicts of a run without files may be given. ScriptError: the config is missing or
    damaged."""

    def __init__(self, folder, config=None, summary=None):
        self.folder = Path(folder)
        self.config = self._json("config.json") if config is None else config
        model = self.config.get("model")
        if not isinstance(model, dict) or not isinstance(model.get("n_layer"), int) or "norm_placement" not in model:
            raise ScriptError(f"{self}: damaged config.json: expected that of a run, with model.n_layer and "
                              "model.norm_placement", 1)
        if summary is None:
            summary = self._json("summary.json") if (self.folder / "summary.json").exists() else {}
        self.summary = summary
        self.probe = self.summary.get("status") == "probe"
        self.rows = functools.cache(self.rows)  # pictures of a page ask for the same columns
        folder = Path(os.path.abspath(self.folder))  # without ".."
        self.home = folder.parent if self.probe else folder

    def value(self, key):
        """The value of a dotted key of the config; None if it has none."""
        return member(self.config, key)

    @property
    def seed(self):
        return self.value("train.seed")

    @property
    def history(self):
        """{key of keys.HISTORY: text}: "steps 30 until 20" if a resume at step 20 changed train.steps from 30; "from
        pre step 300 #1b2c3d" if the run started from the weights, with that hash, of another one."""
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
            raise ScriptError(f"{self}: damaged {name}: {error}", 1) from None
        if not isinstance(value, dict):
            raise ScriptError(f"{self}: damaged {name}: not an object", 1)
        return value

    def rows(self, name, columns, hint="not a training run", keep=None, some=True):
        """The named columns of a log as an array (rows, columns) of floats, NaN for empty cells. ScriptError: the file,
        a column or, with `some`, any row is missing, or a row is damaged.

        hint  advice in the error if the file is missing
        keep  (column, names): keeps rows whose cell in that column is in `names`, and appends its index in `names` to
              the row"""
        header, wanted = self.header(name, hint), (*columns, keep[0]) if keep else columns
        if missing := [column for column in wanted if column not in header]:
            raise ScriptError(f"{self}: {name} has no column {', '.join(dict.fromkeys(missing))}")
        indices = [header.index(column) for column in wanted]
        places = {word: str(place) for place, word in enumerate(keep[1])} if keep else {}
        numbers, rows = [], []
        try:
            for number, cells in self.lines(name):
                chosen = [cells[index] for index in indices]
                if keep:
                    chosen[-1] = places.get(chosen[-1])
                if chosen[-1] is not None:
                    numbers.append(number)
                    rows.append([float(cell or "nan") for cell in chosen])
        except ValueError:
            self._refuse(name, numbers[-1], "a cell is no number")
        if some and not rows:
            raise ScriptError(f"{self}: {name} has no rows yet")
        rows = np.array(rows).reshape(len(rows), len(wanted))
        for column, values in zip(columns, rows.T):
            is_wrong = ~((values >= 0) & (values <= LARGEST.get(column, 0)) & (values == np.floor(values)))
            if column in LARGEST and is_wrong.any():
                self._refuse(name, numbers[is_wrong.argmax()], f"no run has such a {column}")
        return rows

    def records(self, name, hint="not a training run"):
        """Yields each row of a log as {column: number; text in the columns TEXTS}, without its empty cells. `hint` and
        ScriptError: as in rows()."""
        header = self.header(name, hint)
        for number, cells in self.lines(name):
            try:
                yield {column: cell if column in TEXTS else float(cell)
                       for column, cell in zip(header, cells) if cell}
            except ValueError:
                self._refuse(name, number, "a cell is no number")

    def header(self, name, hint=""):
        """The columns of a log. ScriptError, with the advice `hint`: there is no such file."""
        try:
            with open(self.folder / name, "rb") as file:
                return file.readline().decode("utf-8", "replace").rstrip("\n").split(",")
        except FileNotFoundError:
            raise ScriptError(f"{self}: no {name}; {hint}") from None

    def lines(self, name):
        """Yields (number, cells) of the whole lines below the header of a log. ScriptError, with the line, where a row
        has not the header's cells, and, once all lines are taken, unless they are one trajectory, as CsvWriter::check()
        of src/io/csv.h has it: steps never fall, every step before the last checkpoint has as many different rows as
        the first, and none is missing that is due. Behind that checkpoint a kill tears rows."""
        header, steps, keys = self.header(name), [], []
        cells_of_key = 3 if header[1:2] == ["layer"] else 1
        with open(self.folder / name, "rb") as file:
            file.readline()
            for number, line in enumerate(whole_lines(file), start=2):
                cells = line[:-1].split(",")
                if len(cells) != len(header) or "\0" in line:
                    self._refuse(name, number, f"got {printable(line[:-1][:60])}; expected {len(header)} cells")
                steps.append(cells[0])
                if cells[0] == steps[0]:
                    keys.append(tuple(cells[:cells_of_key]))
                yield number, cells
        self._check_steps(name, steps, len(set(keys)), int(self.record.get("steps", 0)))

    def _check_steps(self, name, steps, most, saved):
        """Refuses a log unless its rows, of these steps, are one trajectory: `most` rows a step, fewer only from step
        `saved` on, that of the last checkpoint."""
        for at, step in enumerate(steps):
            if not step.isdecimal() or int(step) > LARGEST["step"]:
                self._refuse(name, at + 2, f"{printable(step)} is no step")
        steps = np.array(steps, int)
        for at in np.flatnonzero(np.diff(steps) < 0)[:1]:
            self._refuse(name, at + 3, f"step {steps[at + 1]} follows step {steps[at]}")
        distinct, starts, counts = np.unique(steps, return_index=True, return_counts=True)
        for at in np.flatnonzero((counts > most) | ((counts < most) & (distinct < saved)))[:1]:
            self._refuse(name, starts[at] + 2, f"step {distinct[at]} has {counts[at]} rows; expected {most}")
        for step in np.setdiff1d(self._due(name, saved), distinct)[:1]:
            at = np.searchsorted(steps, step)
            self._refuse(name, at + 2, f"expected a row of step {step}")

    def _due(self, name, saved):
        """The steps before `saved` at which a log must have rows, as Trainer::plan() in src/train/trainer.cpp has them:
        those after `logged_since`, which older versions did not write."""
        def number(key):
            return value if isinstance(value := self.value(key), int) and value > 0 else 0

        def multiples(every):
            return steps % (every or math.inf) == 0

        steps = np.arange(self.record.get("logged_since", saved) + 1, min(saved, LARGEST["step"]))
        is_metrics = name == "metrics.csv"
        every = number("log.every" if is_metrics else "log.layers_every")
        first = max(1, number("log.layers_first"))
        due = multiples(every) | (steps <= (every and first))
        if is_metrics and (self.value("data.val_path") or self.value("data.val_fraction")):
            due |= multiples(number("eval.every"))
        return steps[due]

    def _refuse(self, name, number, what):
        raise ScriptError(f"{self}: {name} line {number}: {what}; restore the log, or train the run again", 1)

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

    def last_step(self):
        """The step to which training is known to have come: that of the last checkpoint or row of metrics.csv."""
        return int(max(self.record.get("steps", 0), self.progress(("step",)).max(initial=0)))

    def progress(self, columns):
        """rows() of metrics.csv; without a row if there is none yet, or no such file."""
        has_file = (self.folder / "metrics.csv").exists()
        return self.rows("metrics.csv", columns, some=False) if has_file else np.empty((0, len(columns)))

    @property
    def diverged(self):
        return self.summary.get("status") == "diverged"

    def diverged_at(self, otherwise=None):
        """The step at which the run diverged, as its summary has it, else `otherwise`."""
        culprit = self.summary.get("first_nonfinite")
        step = culprit.get("step") if isinstance(culprit, dict) else None
        return step if isinstance(step, int) else otherwise


COUNTS = ("steps", "logged_since", "params", "vocab")  # whole numbers in summary.json


def _is_metric(key, value):
    """Whether a member of summary.json is a number that a run can write there."""
    return type(value) in (int, float) and (key not in COUNTS or 0 <= value < 1 << 53 and value == int(value))


def find_runs(paths, needed, unreadable=None):
    """The runs of these paths, each a run folder, a probe folder, or a folder that holds such folders one or two levels
    down. Within one path runs in no sweep's folder come first, pre-norm before others, each as folders_below has them;
    then those of sweeps, in the order of summary.csv. `needed`: the file that each run below a path must have.
    ScriptError: there is no run, or one is damaged; the message about a damaged run goes to the list `unreadable`
    instead if that is given."""
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
        runs[before:] = sorted(runs[before:], key=_rank)
    return runs


def _rank(run):
    """The rank of a run among those of one path."""
    if (run.folder.parent / "summary.csv").exists():
        return 2
    return 0 if run.value(PLACEMENT) == "pre" else 1


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
