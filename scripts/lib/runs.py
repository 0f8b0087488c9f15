"""What the plots share of reading: finding run folders and their tables; their groups and labels, which are those of
`normscope compare`."""

import copy
import csv
import functools
import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

from lib.command import ScriptError as PlotError, printable, program, run_command
from lib.system_python import restart

# matplotlib inverts matrices of 3x3, after each of which threads of numpy's BLAS would spin for a while.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
try:
    import matplotlib
    import numpy as np
except ImportError as import_error:
    restart(import_error, "plot", "install python3-matplotlib and python3-numpy")

MEAN = "mean and range of"  # seeds
PLACEMENT, NORM = "model.norm_placement", "model.norm"
WHOLE = {"step": 1e7, "layer": 1025}  # columns of whole numbers from 0, and the largest a run can write


def main(run, topic="plot"):
    """Calls `run` and turns what goes wrong into one line on stderr and an exit code."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no word about its caches on a first start
    if code := run_command(run, topic):
        sys.exit(code)


def shortened(text, length):
    return text if len(text) <= length else text[:length - 1] + "…"


# ---- reading --------------------------------------------------------------------------------------------------


class Run:
    """A run folder, or one seed of a probe folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = self._json("config.json")
        self.summary = self._json("summary.json") if (self.folder / "summary.json").exists() else {}
        self.probe = (self.summary.get("status") == "probe" or  # older ones have no summary
                      self.folder.name.startswith("seed-") and not (self.folder / "metrics.csv").exists())
        folder = Path(os.path.abspath(self.folder))  # without ".."
        self.home = folder.parent if self.probe else folder

    def value(self, key):
        """The value of a dotted key of the config; None where it has none."""
        return functools.reduce(lambda part, name: part.get(name) if isinstance(part, dict) else None, key.split("."),
                                self.config)

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
        return np.array(found).reshape(len(found), len(columns) + (keep is not None))

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
    newest, *others = map(Run, folders[:1])
    for folder in folders[1:]:
        try:
            others.append(Run(folder))
        except PlotError:
            continue  # damaged, and nobody asked for it
    family = {}
    for entry in comparison([newest, *others], str(newest.folder))["runs"]:
        for seed, run in zip(entry["seeds"], entry["group"].runs):
            if {PLACEMENT, NORM}.issuperset(entry["choices"]):  # newest first: of one config, the newer is shown
                family.setdefault((entry["placement"], entry["norm"], seed), run)
    family = sorted(family.values(), key=lambda run: _natural_order(run.folder))
    others = [str(run) for run in family if run.folder != newest.folder]
    print(f"newest run: {newest}; " + (f"with it, differing only in placement, norm or seed: {', '.join(others)}"
                                       if others else "no other differs from it only in placement, norm or seed"))
    return family


# ---- groups ---------------------------------------------------------------------------------------------------


class Group:
    """Runs that differ only in their seed: one label; `runs` in the order of the command line; `keys`: what tells the
    group apart from others. Its style (`color`, `dash`, `marker`) comes of figures.styled, and so does its `name` at a line."""

    def __init__(self, runs, label, keys=None):
        self.runs, self.label, self.name = runs, label, label
        self.placement = runs[0].value(PLACEMENT)
        if not isinstance(self.placement, str):
            self.placement = json.dumps(self.placement)
        self.variant = json.dumps({key: value for key, value in (keys or {}).items() if key != PLACEMENT})

    def called(self, name):
        """Whether that is the group's label or the folder of one of its runs."""
        return name == self.label or os.path.normpath(name) in [os.path.normpath(run.folder) for run in self.runs]

    def of(self, runs):
        """The group with these of its runs alone."""
        part = copy.copy(self)
        part.runs = runs
        return part

    @property
    def diverged(self):
        return [run for run in self.runs if run.diverged]

    def legend(self, of=MEAN):
        """The label with what a reader must know of the runs: what is drawn `of` how many seeds (None: not said), which diverged."""
        notes = [f"{of} {len(self.runs)} seeds"] if of and len(self.runs) > 1 else []
        if self.diverged and len(self.runs) > 1:
            notes.append(f"{len(self.diverged)} diverged")
        elif self.diverged:
            step = self.runs[0].lost_at()
            notes.append("diverged" if step is None else f"diverged at step {step}")
        return shortened(self.label, 90) + (f" ({', '.join(notes)})" if notes else "")


def ask(*arguments, purpose):
    """The program run with these arguments, as subprocess has it; `purpose`: what it is needed for, in words."""
    try:
        return subprocess.run([program(), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise PlotError(f"{printable(program())}: {error.strerror}; it {purpose}: build it, or name it in NORMSCOPE",
                        1) from None


def comparison(runs, base=None):
    """What `normscope compare --json` says of the runs, set against the base (a label, or the folder of a run), else the
    first; each of its groups has its runs as `group`."""
    by_folder = {os.path.join(".", run.folder): run for run in runs}  # which is no option's name
    named = [f"--base={os.path.join('.', base) if os.path.isdir(base) else base}"] if base else []
    done = ask("compare", "--json", *named, *by_folder, purpose="says what runs have in common")
    try:
        said = json.loads(done.stdout)
        for entry in said["runs"]:
            alike = sum(other["keys"] == entry["keys"] for other in said["runs"]) > 1  # told apart by their folders alone
            keys = {**entry["keys"], **({"folder": entry["folders"][0]} if alike else {})}
            entry["group"] = Group([by_folder[folder] for folder in entry["folders"]], entry["label"], keys)
    except (KeyError, TypeError, ValueError):
        why = done.stderr.decode("utf-8", "replace").splitlines() or ["no comparison came of it"]
        raise PlotError(f"{printable(program())} compare: {printable(why[-1])}", 2 if "--base" in why[-1] else 1) from None
    return said


def group_runs(runs, base=None):
    """The groups of runs that differ only in seed, labelled by what differs between the groups; the base comes first. All must
    be readable."""
    said = comparison(runs, base)
    for remark in said["remarks"]:
        if remark["kind"] == "unreadable":
            raise PlotError(remark["text"], 1)
    groups = [entry["group"] for entry in said["runs"]]
    return sorted(groups, key=lambda group: not group.called(base)) if base else groups


def shared_seeds(groups):
    """How many seeds each of many groups has, to be said once; 0 where they are few or differ."""
    seeds = {len(group.runs) for group in groups}
    return seeds.pop() if len(groups) > 4 and len(seeds) == 1 and seeds != {1} else 0


def shared_settings(groups, of=MEAN):
    """What all runs have in common, as a subtitle; `of`: as in Group.legend."""
    runs = [run for group in groups for run in group.runs]

    def common(key, form="{}"):
        values = {json.dumps(run.value(key)) for run in runs}
        value = json.loads(values.pop()) if len(values) == 1 else None
        return None if value is None or isinstance(value, (list, dict)) else form.format(value)

    layers = common("model.n_layer")
    parts = ["1 block" if layers == "1" else layers and f"{layers} blocks", common("model.d_model", "width {}"),
             common("model.context", "context {}")]
    if len(groups) > 1:  # of a single group the legend says it
        parts += [common(PLACEMENT), common(NORM)]
    parts.append(common("model.init.scheme"))
    if not all(run.probe for run in runs):
        parts += [common("train.optimizer"), common("train.lr", "lr {:g}")]
    texts = {tuple(Path(path).stem for path in np.atleast_1d(run.value("data.path") or [])) for run in runs}
    parts += [" + ".join(names) for names in texts if len(texts) == 1]
    parts += [common("train.seed", "seed {}"), shared_seeds(groups) and f"{of} {shared_seeds(groups)} seeds"]
    return shortened(" · ".join(part for part in parts if part), 112)
