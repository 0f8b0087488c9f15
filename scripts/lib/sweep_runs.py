"""The folders of a sweep's runs, and its summary.csv."""

import contextlib
import csv
import functools
import io
import json
from pathlib import Path

from lib.command import ScriptError, printable
from lib.files import FNV_BASIS, fnv1a, locked, write_atomically
from lib.grid import value_text

FIGURES = ("final_train_loss", "best_val_loss", "final_val_loss", "grad_first_last", "growth", "steps", "seconds", "tokens_per_s")
# Keys and sections in which a run's folder may differ from the sweep. The hash of a text counts, not its place.
CHANGEABLE = ("train.steps", "train.threads", "train.on_nonfinite", "log", "eval", "checkpoint", "name", "data.path", "data.val_path")


class Run:
    """A run of the sweep. `status`: done, diverged or failed; empty while it has steps left."""

    def __init__(self, point, out):
        self.name, self.settings, self.sets, self.config = point.name, point.settings, point.sets, point.config
        self.folder, self.steps = out / point.name, point.config["train"]["steps"]
        self.status, self.not_before = "", 0

    def summary(self):
        """summary.json. Empty where it is missing, empty or damaged: such a run has steps left."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            summary = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
            if isinstance(summary, dict) and isinstance(summary.get("steps"), int):
                return summary
        return {}

    def ended(self):
        """done or diverged, by its summary; empty while it has steps left."""
        summary = self.summary()
        whole = summary.get("status") == "done" and summary["steps"] >= self.steps
        return summary["status"] if whole or summary.get("status") == "diverged" else ""

    def differences(self):
        """The keys in which its folder holds another run, with their values there and here."""
        found = []
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):  # what is damaged, the program reports
            old = flat(json.loads((self.folder / "config.json").read_text(encoding="utf-8")))
            found = [f"{key} ({value_text(old[key])} -> {value_text(new)})" for key, new in flat(self.config).items()
                     if key in old and old[key] != new and not key.startswith(CHANGEABLE)]
        return found

    def text_difference(self):
        """The hashes of its text, there and here, if they differ."""
        then = self.summary().get("corpus_hash")
        data = self.config["data"]
        texts = [data["path"]] if isinstance(data["path"], str) else data["path"]
        now = then and hash_of_texts(*texts, *([data["val_path"]] if data.get("val_path") else []))
        return [] if then == now else [f"its text's hash ({then} -> {now})"]


def flat(config, prefix=""):
    """{dotted key: value}. A placement may be an object itself."""
    pairs = {}
    for name, value in config.items():
        pairs |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) and name != "norm_placement" else {prefix + name: value}
    return pairs


@functools.cache
def hash_of_texts(*paths):
    """FNV-1a of the bytes of all files in order, as in summary.json."""
    return f"{functools.reduce(lambda state, path: fnv1a(Path(path).read_bytes(), state), paths, FNV_BASIS):016x}"


def mark_ended(runs):
    """Sets the status of runs that an earlier sweep finished. An error for folders of another config or text."""
    problems, code = [], 1
    for run in runs:
        run.status = run.ended()
        keys, texts = run.differences(), run.text_difference()
        code = 2 if keys else code
        if keys or texts:
            problems.append(f"{printable(run.folder)} holds a run of another config: {', '.join(keys + texts)}; remove it, or choose "
                            "another folder with --out DIR")
    if problems:
        raise ScriptError("\n".join(problems), code)


class Table:
    """summary.csv: a row a run that is done, diverged or failed. Shards write it too: the folders say what they have done."""

    def __init__(self, out, keys, runs):
        self.path, self.keys, self.runs = out / "summary.csv", keys, runs
        self.header = ["name", *keys, "status", *FIGURES]
        self.read()

    def read(self):
        """Its rows by name; none if it is of another grid. An error if it is no sweep's."""
        try:
            header, *rows = csv.reader(self.path.read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return {}
        except (IsADirectoryError, ValueError, csv.Error):  # ValueError: it is empty, or not UTF-8
            header = []
        if header[:1] != ["name"] or header[-1 - len(FIGURES):] != ["status", *FIGURES]:
            raise ScriptError(f"{printable(self.path)}: is no table of a sweep, and would be replaced by one; move it away, or choose "
                              "another folder with --out DIR")
        return {row[0]: row for row in rows if len(row) == len(self.header)} if header == self.header else {}

    def row(self, run):
        """The run's row; None while it has steps left."""
        status = run.status or run.ended()
        if not status:
            return None
        config, figures = flat(run.config), {} if status == "failed" else run.summary()
        values = [config.get(key, run.settings.get(key)) for key in self.keys]  # a key without effect is not in the config
        return [value_text(value) for value in (run.name, *values, status, *map(figures.get, FIGURES))]

    def write(self):
        """Writes the rows in the order of the grid; what failed in another shard stays."""
        with locked(self.path.with_name(".lock-table"), wait=True):
            failed = {name: row for name, row in self.read().items() if "failed" in row}
            text = io.StringIO()
            rows = [self.row(run) or failed.get(run.name) for run in self.runs]
            csv.writer(text, lineterminator="\n").writerows([self.header, *filter(None, rows)])
            write_atomically(self.path, text.getvalue())
