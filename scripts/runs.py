"""What the plots share of reading: finding run folders, their tables, groups of seeds, labels from their configs."""

import csv
import json
import logging
import math
import os
import sys
import unicodedata
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"
logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no word about its caches on a first start
try:
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    matplotlib.rcdefaults()  # the same figure whatever the user's own settings
except ImportError as import_error:  # another python3 comes first on PATH, without the distribution's packages
    if sys.executable != SYSTEM_PYTHON and os.access(SYSTEM_PYTHON, os.X_OK):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print(f"[plot] {import_error}; install python3-matplotlib and python3-numpy", file=sys.stderr)
    sys.exit(1)

SEED = "train.seed"
# Keys that change no number worth a label.
BOOKKEEPING = ("name", "$schema", "log.", "eval.", "checkpoint.", "train.threads", "train.on_nonfinite")
# Keys whose default follows another key: named only where nothing else tells two runs apart.
DERIVED = ("model.final_norm", "model.norm_bias", "model.init.residual_scaling", "model.init.embed_std",
           "model.d_ff", "model.ffn_bias", "train.min_lr")
# How values are written; `None` stands for the value alone. Other keys: last part of the key, then the value.
WORDING = {"model.norm_placement": None, "model.norm": None, "model.n_layer": "L {}", "model.d_model": "C {}",
           "model.context": "T {}", "model.activation": None, "model.init.scheme": None, "train.optimizer": None,
           "train.precision": None, "data.path": None, "train.lr": "lr {}", "train.warmup_steps": "warm-up {}",
           "train.batch_size": "batch {}", "train.steps": "{} steps", SEED: "seed {}"}
# What runs may differ in and still be shown together unasked: placement and norm, and what follows from these.
KINDRED = ("model.norm_placement", "model.norm", "model.final_norm", "model.norm_bias", "model.init.residual_scaling")
NORMLESS = ("rezero", "none")  # placements without a norm, whatever model.norm was
# Marks that turn the direction of writing.
TURNING = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
WHOLE = {"step": 1e7, "layer": 1025}  # columns of whole numbers from 0, and the largest a run can write


class PlotError(Exception):
    """One line that says what is wrong. `code` is the exit code: 2 for usage, 1 for I/O."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def printable(text):
    """The text with control characters escaped, and those that break lines or turn the direction of writing: file names
    and samples may hold anything."""
    return "".join(_escaped(c) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or c in TURNING else c
                   for c in str(text))


def _escaped(character):
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def main(run):
    """Calls `run` and turns what goes wrong into one line on stderr and an exit code."""
    try:
        run()
    except PlotError as error:
        print(f"[plot] {error}", file=sys.stderr)
        sys.exit(error.code)
    except OSError as error:
        print(f"[plot] {printable(error.filename or 'output')}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)


# ---- reading --------------------------------------------------------------------------------------------------


class Run:
    """A run folder, or one seed of a probe folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.probe = self.folder.name.startswith("seed-") and not (self.folder / "metrics.csv").exists()
        self.home = self.folder.absolute().parent if self.probe else self.folder.absolute()
        self.config = self._json("config.json")
        for section in ("model", "data", "train"):
            if not isinstance(self.config.get(section, {}), dict):
                raise PlotError(f"{self}: damaged config.json: {section} is not an object")
        self.summary = self._json("summary.json") if (self.folder / "summary.json").exists() else {}
        self.keys = _meaningful_keys(self.config)
        self.seed = self.keys.pop(SEED, None)

    def __str__(self):
        return printable(self.folder)

    def _json(self, name):
        try:
            value = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PlotError(f"{self}: no {name}; not a run folder") from None
        except ValueError as error:
            raise PlotError(f"{self}: damaged {name}: {error}") from None
        if not isinstance(value, dict):
            raise PlotError(f"{self}: damaged {name}: not an object")
        return value

    def rows(self, name, columns, hint, keep=None, some=True):
        """The named columns as an array (rows, columns) of floats. `keep`: (column, names): only rows with one of these
        names there, and as a last column which of the names it is, counted from 0. `some`: none is an error."""
        try:
            file = open(self.folder / name, newline="", encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise PlotError(f"{self}: no {name}; {hint}") from None
        found = []
        with file:
            reader = csv.reader(line for line in file if line.endswith("\n"))  # a kill may have torn the last one
            header = next(reader, [])
            missing = [c for c in (*columns, *([keep[0]] if keep else [])) if c not in header]
            if missing:
                raise PlotError(f"{self}: {name} has no column {', '.join(missing)}")
            places = [header.index(c) for c in columns]
            filter_place = header.index(keep[0]) if keep else None
            numbers = {name: [i] for i, name in enumerate(keep[1])} if keep else {}
            for row in reader:
                try:
                    number = numbers.get(row[filter_place]) if keep else []
                    if number is not None:
                        found.append([float(row[p]) if row[p] else math.nan for p in places] + number)
                        whole = [(v, WHOLE[c]) for c, v in zip(columns, found[-1]) if c in WHOLE]
                        if not all(0 <= v <= largest and v == int(v) for v, largest in whole):
                            raise ValueError
                except (ValueError, IndexError):
                    raise PlotError(f"{self}: {name} line {reader.line_num}: damaged row") from None
        if some and not found:
            raise PlotError(f"{self}: {name} has no rows yet")
        return np.array(found).reshape(-1, len(columns) + (keep is not None))

    @property
    def diverged(self):
        return self.summary.get("status") == "diverged"

    def lost_at(self, otherwise=None):
        """The step at which the run diverged, as its summary has it."""
        culprit = self.summary.get("first_nonfinite")
        step = culprit.get("step") if isinstance(culprit, dict) else None
        return step if isinstance(step, int) else otherwise


def _meaningful_keys(config):
    """The config flattened to {"model.norm": value}, less what does not bear on the numbers."""
    flat = {}

    def walk(value, name):
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else key)
        elif not name.startswith(BOOKKEEPING):
            flat[name] = json.dumps(value)

    walk(config, "")
    if json.loads(flat.get("model.norm_placement", "null")) in NORMLESS:
        flat.pop("model.norm", None)
    return flat


def find_runs(paths, needed):
    """The runs that the paths name: run folders, probe folders, or folders of these (one or two levels down)."""
    runs, seen = [], set()
    for path in map(Path, paths):
        if not path.is_dir():
            raise PlotError(f"{printable(path)}: no such folder; name run folders, such as runs/quickstart/pre")
        folders = [path] if (path / "config.json").exists() else _folders_below(path, needed)
        if not folders:
            raise PlotError(f"{printable(path)}: no config.json, and no run with {needed} in the folders below")
        for folder in folders:
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                runs.append(Run(folder))
    return runs


def _folders_below(path, needed):
    """Run folders one or two levels below, and the seeds of probe folders there."""
    found = {f.parent for levels in ("*", "*/*", "*/*/seed-*") for f in path.glob(f"{levels}/config.json")}
    return sorted((f for f in found if (f / needed).exists()), key=_natural_order)


def _natural_order(path):
    """Sorts L=2 before L=12."""
    digits = "".join(c if c.isdigit() else " " for c in str(path)).split()
    letters = "".join("0" if c.isdigit() else c for c in str(path)).replace("00", "0")
    return letters, [int(d) for d in digits], str(path)


def newest_family(needed):
    """The newest run below runs/ and all that differ from it only in placement, norm or seed; says which."""
    root = Path("runs")
    folders = _folders_below(root, needed) if root.is_dir() else []
    if not folders:
        raise PlotError(f"runs: no run with {needed} here; name run folders, or train one first: "
                        "build/normscope train configs/quickstart.json")
    folders.sort(key=lambda f: (f / needed).stat().st_mtime_ns, reverse=True)
    newest = Run(folders[0])

    def kin(run):
        common = {k: v for k, v in run.keys.items() if k not in KINDRED}
        return common, run.probe  # a probe is no kin of a training run

    family, taken = [], set()
    for folder in folders:  # newest first: of two runs of one config, the newer is shown
        try:
            run = Run(folder)
        except PlotError:
            continue  # damaged, and nobody asked for it
        same = (json.dumps(run.keys, sort_keys=True), run.seed)
        if kin(run) == kin(newest) and same not in taken:
            taken.add(same)
            family.append(run)
    family.sort(key=lambda r: _natural_order(r.folder))
    others = [str(run) for run in family if run.folder != newest.folder]
    print(f"newest run: {newest}; " + (f"with it, differing only in placement, norm or seed: {', '.join(others)}"
                                       if others else "no other differs from it only in placement, norm or seed"))
    return family


# ---- labels ---------------------------------------------------------------------------------------------------


class Group:
    """Runs that differ only in their seed: one label, one colour; `runs` in the order of the command line."""

    def __init__(self, runs, label, color=None):
        self.runs, self.label, self.color = runs, label, color

    @property
    def diverged(self):
        return [run for run in self.runs if run.diverged]

    def legend(self):
        """The label with what a reader must know of the runs: how many seeds, which diverged."""
        notes = [f"mean and range of {len(self.runs)} seeds"] if len(self.runs) > 1 else []
        if self.diverged and len(self.runs) > 1:
            notes.append(f"{len(self.diverged)} diverged")
        elif self.diverged:
            step = self.runs[0].lost_at()
            notes.append("diverged" if step is None else f"diverged at step {step}")
        return shortened(self.label, 90) + (f" ({', '.join(notes)})" if notes else "")


def group_runs(runs):
    """Groups of runs that differ only in seed, labelled by what differs between the groups."""
    by_config = {}
    for run in runs:
        by_config.setdefault(json.dumps(run.keys, sort_keys=True), []).append(run)
    members, apart = [], set()
    for same in by_config.values():
        if len({run.seed for run in same}) == len(same):
            members.append(same)
            continue
        by_home = {}  # one config and seed twice (an older build, other weights): told apart by their folders
        for run in same:
            by_home.setdefault(run.home, []).append(run)
        apart.update(range(len(members), len(members) + len(by_home)))
        members += by_home.values()
    labels = _labels([same[0].keys for same in members])
    if apart:
        homes = [members[i][0].home for i in sorted(apart)]
        shared = Path(os.path.commonpath(homes)) if len(homes) > 1 else homes[0].parent
        distinct = len(set(labels)) > 1
        for i in apart:
            folder = printable(members[i][0].home.relative_to(shared))
            labels[i] = f"{labels[i]} · {folder}" if distinct else folder
    return [Group(same, label) for same, label in zip(members, labels)]


def _labels(configs):
    """A label each: the values of the keys in which the configs differ."""
    order = {key: i for i, key in enumerate(WORDING)}
    names = sorted({k for c in configs for k in c}, key=lambda k: (order.get(k, len(order)), k))
    differing = [k for k in names if len({c[k] for c in configs if k in c}) > 1]

    def rank(keys):
        seen = {}
        return [seen.setdefault(tuple(c.get(k) for k in keys), len(seen)) for c in configs]

    for key in [k for k in differing if k in DERIVED]:
        without = [k for k in differing if k != key]
        if rank(without) == rank(differing):
            differing = without
    if not differing:
        differing = ["model.norm_placement", "model.norm"]
    return [" · ".join(_wording(k, c[k]) for k in differing if k in c) or "run" for c in configs]


def _wording(key, text):
    """A key's value as a reader says it."""
    value = json.loads(text)
    if key == "data.path":
        value = " + ".join(Path(str(p)).stem for p in (value if isinstance(value, list) else [value]))
    elif isinstance(value, list):  # placements block by block: runs of equal ones as "pre ×6"
        pieces = []
        for item in value:
            if pieces and pieces[-1][0] == item:
                pieces[-1][1] += 1
            else:
                pieces.append([item, 1])
        value = ", ".join(f"{item} ×{n}" if n > 1 else str(item) for item, n in pieces)
    elif isinstance(value, bool):
        return f"{key.split('.')[-1]} {'on' if value else 'off'}"
    elif isinstance(value, float):
        value = f"{value:g}"
    if value == "none" and key in ("model.norm", "model.norm_placement"):
        return "no norm"
    form = WORDING.get(key, key.split(".")[-1] + " {}")
    return printable((form or "{}").format(value))


def shared_settings(groups):
    """What all runs have in common, as a subtitle."""
    runs = [run for group in groups for run in group.runs]

    def common(key):
        values = {run.keys.get(key) for run in runs}
        return _wording(key, values.pop()) if len(values) == 1 and None not in values else None

    def sized(size, unit):
        return size and unit.format(size.split()[1])

    layers, width, context = (common(f"model.{key}") for key in ("n_layer", "d_model", "context"))
    parts = [sized(layers, "{} block" if layers == "L 1" else "{} blocks"), sized(width, "width {}"),
             sized(context, "context {}")]
    if len(groups) > 1:  # of a single group the legend says it
        parts += [common("model.norm_placement"), common("model.norm")]
    training = () if all(run.probe for run in runs) else ("train.optimizer", "train.lr")
    parts += [common(key) for key in ("model.init.scheme", *training, "data.path")]
    seeds = {run.seed for run in runs}
    if len(seeds) == 1 and None not in seeds:
        parts.append(f"seed {seeds.pop()}")
    return shortened(" · ".join(part for part in parts if part), 112)


def shortened(text, length):
    return text if len(text) <= length else text[:length - 1] + "…"
