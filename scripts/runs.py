"""What the plots share of reading: finding run folders, their tables, groups of seeds, labels from their configs."""

import csv
import functools
import json
import logging
import math
import os
import sys
from pathlib import Path

from keys import fault, flattened, used_keys
from labels import NORM, PLACEMENT, label_all, printable, wording

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
# What runs may differ in and still be shown together unasked: placement and norm, and what follows from these.
KINDRED = (PLACEMENT, NORM, "model.final_norm", "model.norm_bias", "model.init.residual_scaling")
DEEPEST = 64  # levels of a JSON file, as the program has it
WHOLE = {"step": 1e7, "layer": 1025}  # columns of whole numbers from 0, and the largest a run can write


class PlotError(Exception):
    """One line that says what is wrong. `code` is the exit code: 2 for usage, 1 for I/O."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


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
        self.config = self._json("config.json")
        keys = flattened(self.config)
        if fault(keys):
            raise PlotError(f"{self}: damaged config.json: {fault(keys)}")
        self.summary = self._json("summary.json") if (self.folder / "summary.json").exists() else {}
        self.probe = (self.summary.get("status") == "probe" or  # older ones have no summary
                      self.folder.name.startswith("seed-") and not (self.folder / "metrics.csv").exists())
        self.home = self.folder.absolute().parent if self.probe else self.folder.absolute()
        self.keys = used_keys(keys)
        self.seed = self.keys.pop(SEED, None)
        if self.probe:
            self.keys.pop("train.steps", None)  # it takes none

    def __str__(self):
        return printable(self.folder)

    def _json(self, name):
        try:
            value = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PlotError(f"{self}: no {name}; not a run folder") from None
        except (ValueError, RecursionError) as error:
            raise PlotError(f"{self}: damaged {name}: {error}") from None
        if not isinstance(value, dict):
            raise PlotError(f"{self}: damaged {name}: not an object")
        layer = [value]
        for _ in range(DEEPEST):
            layer = [inner for outer in layer if isinstance(outer, (dict, list))
                     for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if layer:
            raise PlotError(f"{self}: damaged {name}: more than {DEEPEST} levels deep")
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
    """Run folders one or two levels below, and the seeds of probe folders there; a sweep's in its own order."""
    found = {f.parent for levels in ("*", "*/*", "*/*/seed-*") for f in path.glob(f"{levels}/config.json")}

    @functools.cache
    def rank(sweep):
        try:
            lines = (sweep / "summary.csv").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return {}
        return {line.split(",")[0]: i for i, line in enumerate(lines)}

    def order(folder):
        ranks = rank(folder.parent)
        return _natural_order(folder.parent), ranks.get(folder.name, len(ranks)), _natural_order(folder)

    return sorted((f for f in found if (f / needed).exists()), key=order)


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

    def is_kin(run):
        shared = (run.keys.keys() & newest.keys.keys()).difference(KINDRED)
        return run.probe == newest.probe and all(run.keys[k] == newest.keys[k] for k in shared)

    family, taken = [], set()
    for folder in folders:  # newest first: of two runs of one config, the newer is shown
        try:
            run = Run(folder)
        except PlotError:
            continue  # damaged, and nobody asked for it
        same = (json.dumps(run.keys, sort_keys=True), run.seed)
        if is_kin(run) and same not in taken:
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
    """Groups of runs that differ only in seed, labelled by what differs between the groups, as `normscope compare` has
    it."""
    members = [seeds for same in _sorted_by(runs, lambda run: (json.dumps(run.keys, sort_keys=True), run.probe))
               for seeds in _without_repeats(same)]
    labels = label_all([same[0].keys for same in members])
    if len({same[0].probe for same in members}) > 1:
        labels = [label + " · probe" * same[0].probe for label, same in zip(labels, members)]
    for label in {label for label in labels if labels.count(label) > 1}:
        alike = [i for i, other in enumerate(labels) if other == label]
        homes = [members[i][0].folder.absolute() for i in alike]
        homes = [home.parent if len(members[i]) > 1 else home for i, home in zip(alike, homes)]
        shared = Path(os.path.commonpath([home.parent for home in homes]))
        distinct = len(set(labels)) > 1
        for i, home in zip(alike, homes):
            folder = printable(home.relative_to(shared))
            labels[i] = f"{label} · {folder}" if distinct else folder
    return [Group(same, label) for same, label in zip(members, labels)]


def _sorted_by(runs, name):
    """Lists of the runs of one name each."""
    lists = {}
    for run in runs:
        lists.setdefault(name(run), []).append(run)
    return list(lists.values())


def _without_repeats(runs):
    """The runs of one config, apart by their folders where a seed is there twice: an older build, other weights."""
    def once(some):
        return len({run.seed for run in some}) == len(some)

    by_parent = _sorted_by(runs, lambda run: run.folder.absolute().parent)
    return [runs] if once(runs) else by_parent if all(map(once, by_parent)) else [[run] for run in runs]


def shared_settings(groups):
    """What all runs have in common, as a subtitle."""
    runs = [run for group in groups for run in group.runs]

    def common(key):
        values = {run.keys.get(key) for run in runs}
        return wording(key, values.pop()) if len(values) == 1 and None not in values else None

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
