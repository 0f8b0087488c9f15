"""The runs of a sweep, their folders, and its summary.csv."""

import contextlib
import csv
import dataclasses
import fcntl
import functools
import io
import json
from pathlib import Path

from lib.command import ScriptError, printable
from lib.files import FNV_BASIS, fnv1a, write_atomically

FIGURES = ("final_train_loss", "best_val_loss", "final_val_loss", "grad_first_last", "growth", "steps", "seconds", "tokens_per_s")
# Keys and sections in which a run's folder may differ from the sweep. The hash of a text counts, not its place.
CHANGEABLE = ("train.steps", "train.threads", "train.on_nonfinite", "log", "eval", "checkpoint", "name", "data.path", "data.val_path")


@dataclasses.dataclass
class Run:
    """A run of the sweep. `settings` {varied key: value}; `sets` {key: value} over the base; `config` resolved; `status`: done,
    diverged or failed; empty while it has steps left."""
    name: str
    settings: dict
    sets: dict
    config: dict = None
    folder: Path = None
    status: str = ""

    def options(self):
        return [f"--set={key}={json.dumps(value)}" for key, value in self.sets.items()]

    def read(self, name):
        """A JSON file of its folder; empty where there is none or it is damaged."""
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def ended(self):
        """done or diverged, by its summary; empty while it has steps left."""
        summary = self.read("summary.json")
        status = summary.get("status")
        is_whole = status == "done" and summary["steps"] >= self.config["train"]["steps"]
        return status if is_whole or status == "diverged" else ""

    def differences(self):
        """What its folder holds of another run: keys and the hash of its text, with their values there and here."""
        old, then, data = flat(self.read("config.json")), self.read("summary.json").get("corpus_hash"), self.config["data"]
        found = [f"{key} ({value_text(old[key])} -> {value_text(new)})" for key, new in flat(self.config).items()
                 if key in old and old[key] != new and not key.startswith(CHANGEABLE)]
        texts = [data["path"]] if isinstance(data["path"], str) else data["path"]
        now = then and hash_of_texts(*texts, *filter(None, [data.get("val_path")]))
        return found + ([] if then == now else [f"its text's hash ({then} -> {now})"])


def value_text(value):
    """A value in a folder's name or a cell: 1e3 is 1000, None is empty."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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
    problems = []
    for run in runs:
        run.status = run.ended()
        if found := run.differences():
            problems.append(f"{printable(run.folder)} holds a run of another config: {', '.join(found)}; move it away, or choose another "
                            "folder with --out DIR")
    if problems:
        raise ScriptError("\n".join(problems))


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
        return {row[0]: row for row in rows} if header == self.header else {}

    def row(self, run):
        """The run's row; None while it has steps left."""
        status = run.status or run.ended()
        if not status:
            return None
        config, figures = flat(run.config), {} if status == "failed" else run.read("summary.json")
        values = [config.get(key, run.settings.get(key)) for key in self.keys]  # a key without effect is not in the config
        return [value_text(value) for value in (run.name, *values, status, *map(figures.get, FIGURES))]

    def write(self):
        """Writes the rows in the order of the grid; what failed in another shard stays."""
        with open(self.path.with_name(".lock-table"), "w", encoding="utf-8") as lock:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            failed = {name: row for name, row in self.read().items() if "failed" in row}
            text = io.StringIO()
            rows = [self.row(run) or failed.get(run.name) for run in self.runs]
            csv.writer(text, lineterminator="\n").writerows([self.header, *filter(None, rows)])
            write_atomically(self.path, text.getvalue())
