"""The runs of a sweep: the grid, cases and seeds of its file, or a config with --set KEY=A,B and --seeds N; and their labels."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import re
import subprocess
from pathlib import Path

from lib.command import ScriptError, argument, printable, program
from lib.files import JSON, read_json, write_atomically

FIGURES = ("final_train_loss", "best_val_loss", "final_val_loss", "grad_first_last", "growth", "steps", "seconds", "tokens_per_s")
NAMED = {"small": {"train.batch_size": 2, "train.steps": 1200}}  # an example of named values of a grid entry
EXAMPLE = {"name": "pre_vs_post", "base": "CONFIG.json", "seeds": [1, 2, 3], "grid": {"model.norm_placement": ["pre", "post"]},
           "cases": [{"name": "warm", "set": {"train.warmup_steps": 200}}]}
LABELS_FILE = "labels.json"
CASE = "case"  # stands for the name of a grid entry in the labels of a case


class Sweep(collections.namedtuple("Sweep", "name base columns runs named")):
    """`base`: the file of the config of all runs. `columns`: the keys that vary, dotted, and the names of grid entries with named
    values. `named`: {name of such an entry, or CASE: the keys that its names stand for}; a case's, those of the grid too."""


@dataclasses.dataclass
class GridPoint:
    """A run of the sweep. `settings`: {key that varies: value}; `labels`: {grid entry, or CASE: name of its value}; `overrides`: a
    KEY=VALUE for each key that is set over the base; `config`: as resolved; `status`: done, diverged, failed or interrupted, empty
    until the run has ended; `summary`: its summary.json, empty unless it is done or diverged."""
    name: str
    settings: dict
    labels: dict
    overrides: list
    config: dict = None
    folder: Path = None
    status: str = ""
    summary: dict = dataclasses.field(default_factory=dict)

    def value(self, column):
        """The cell of a column: a label, or the value of a key in the config. A key without effect is not there: it has the value
        that the sweep sets."""
        if column in self.labels or "." not in column:
            return self.labels.get(column)
        *sections, name = column.split(".")
        section = functools.reduce(dict.get, sections, self.config)
        return section.get(name, self.settings.get(column))


class Choice(collections.namedtuple("Choice", "words settings labels")):
    """A value of a grid entry, a case, or a choice of several: `words` for the name of the folder, and as in GridPoint."""

    def __add__(self, other):
        return Choice(self.words + other.words, self.settings | other.settings, self.labels | other.labels)


NOTHING = Choice([], {}, {})


def as_cell(value):
    """The text of a value in a folder's name or in a table: 1e3 is 1000, None is empty."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def values_of(text):
    """The values that a text "A,B" lists, each JSON or a word; commas inside JSON do not split."""
    values, rest = [], text + ","
    while rest:
        try:
            value, end = JSON.raw_decode(rest)
        except ValueError:
            end = None
        if end is None or rest[end] != ",":
            end = rest.index(",")
            value = rest[:end]
        values.append(value)
        rest = rest[end + 1:].lstrip()
    return values


def folder_name(text):
    """The text as the name of a folder: other characters than [A-Za-z0-9._=+-] become -, and more than 100 characters are cut to 83
    and a hash."""
    name = re.sub(r"[^A-Za-z0-9._=+-]|^\.", "-", text)
    return name if len(name) <= 100 else f"{name[:83]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load_sweep(file, options=(), seeds=0):
    """The sweep of a file with the options --set and --seeds; a config is a sweep of itself. ScriptError: a mistake in the file."""
    spec, name = read_json(file), Path(file).stem
    if not isinstance(spec, dict):
        raise ScriptError(f"{printable(file)}: expected an object: a sweep")
    if not {"base", "grid", "cases", "seeds"} & spec.keys():  # a config
        spec = {"base": Path(file).name, "name": spec.get("name", name)}
    spec = {"name": name, "base": None, "grid": {}, "cases": [], "seeds": [], **spec}
    _check(spec, printable(file))
    beside = Path(file).parent / spec["base"]
    base = str(beside) if beside.is_file() else spec["base"]  # else in the working directory
    lists = {key: values_of(text) for key, _, text in (option.partition("=") for option in options)}
    return _expanded(spec, base, lists, [*range(1, seeds + 1)] or spec["seeds"])


def _check(spec, file):
    """Raises a ScriptError for parts of a sweep file that are unknown or unlike those of the example."""
    is_like = {key: isinstance(spec[key], type(example)) for key, example in EXAMPLE.items()}
    is_like["cases"] = is_like["cases"] and all(map(_is_case, spec["cases"]))
    problems = [f"{file}: {printable(key)}: unknown key; expected {', '.join(EXAMPLE)}" for key in spec if key not in EXAMPLE]
    expected = {key: f"such as {json.dumps(example)}" for key, example in EXAMPLE.items()}
    wrong = {key: spec[key] for key in EXAMPLE if not is_like[key]}
    for entry, values in spec["grid"].items() if is_like["grid"] else ():
        if isinstance(values, dict) and ("." in entry or entry in ("name", "status", CASE, *FIGURES)):
            problems.append(f"{file}: grid: {printable(entry)}: a key or column has this name; give named values a name "
                            "of their own, without a dot")
        elif not (values and (isinstance(values, list) or _is_named(values))):
            wrong[f"grid: {printable(entry)}"] = values
            expected[f"grid: {printable(entry)}"] = f"a list of values of a key, or named values: {json.dumps(NAMED)}"
    for key, value in wrong.items():
        got = printable(json.dumps(value, ensure_ascii=False))[:100]
        problems.append(f"{file}: {key}: got {got}; expected {expected[key]}")
    if problems:
        raise ScriptError("\n".join(problems))


def _is_case(value):
    return (isinstance(value, dict) and value.keys() == {"name", "set"} and isinstance(value["name"], str)
            and isinstance(value["set"], dict))


def _is_named(values):
    return isinstance(values, dict) and all(isinstance(settings, dict) and settings for settings in values.values())


def _keys_of(entry, values):
    """The keys that an entry of a grid sets: itself, or those of its named values."""
    return [entry] if isinstance(values, list) else [*dict.fromkeys(itertools.chain(*values.values()))]


def _choices(entry, values, title):
    """The choices of an entry of a grid; `title` stands for it in the names of folders."""
    if isinstance(values, list):
        return [Choice([f"{title}={as_cell(value)}"], {entry: value}, {}) for value in values]
    return [Choice([f"{title}={name}"], settings, {entry: name}) for name, settings in values.items()]


def _product(axes):
    """Every choice of one from each list of choices; the last changes fastest."""
    return [functools.reduce(Choice.__add__, choices, NOTHING) for choices in itertools.product(*axes)]


def _without_repeats(keys, together):
    """The keys. ScriptError if one is there twice; `together`: what sets them."""
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ScriptError(f"{printable(twice[0])}: set twice, by {together}; leave out one of them")
    return keys


def _expanded(spec, base, lists, seeds):
    """The sweep: the grid's product, then the cases, each with every choice of the values in `lists`, then with every
    seed."""
    grid, cases = spec["grid"], spec["cases"]
    keys = {entry: _keys_of(entry, values) for entry, values in grid.items()}
    in_grid = _without_repeats([*itertools.chain(*keys.values())], "two entries of the grid")
    in_cases = [key for case in cases for key in case["set"]]
    _without_repeats([*dict.fromkeys([*in_grid, *in_cases]), *lists, *(["train.seed"] if seeds else [])],
                     "a grid, case, --set or seeds")
    common = {key: values[0] for key, values in lists.items() if len(values) == 1}
    inner = {key: values for key, values in lists.items() if len(values) > 1} | ({"train.seed": seeds} if seeds else {})
    last_parts = collections.Counter(key.rpartition(".")[2] for key in dict.fromkeys([*grid, *in_cases, *inner]))

    def choices(axes):
        last = {entry: entry.rpartition(".")[2] for entry in axes}
        return _product(_choices(entry, values, last[entry] if last_parts[last[entry]] == 1 else entry)
                        for entry, values in axes.items())

    points = choices(grid) if grid or not cases else []
    points += [Choice([case["name"]], case["set"], {CASE: case["name"]}) for case in cases]
    runs = {}
    for point in (first + last for first, last in itertools.product(points, choices(inner))):
        name = folder_name("_".join(point.words) or spec["name"])
        if name in runs:
            raise ScriptError(f"two runs would share the folder {name}; values and names must differ in more than special "
                              "characters")
        settings = {"name": name, **common, **point.settings}
        overrides = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        runs[name] = GridPoint(name, point.settings, point.labels, overrides)
    columns = dict.fromkeys([*itertools.chain(*([entry, *keys[entry]] for entry in grid)), *in_cases, *inner])
    named = {entry: keys[entry] for entry, values in grid.items() if isinstance(values, dict)}
    named |= {CASE: [*dict.fromkeys([*in_grid, *in_cases])]} if cases else {}
    return Sweep(spec["name"], base, [*columns], [*runs.values()], named)


def resolve(sweep):
    """Sets the config of each run as the program resolves it, all in one process. ScriptError: a line for each problem,
    once, with the first run that has it."""
    lines = "".join(json.dumps(run.overrides) + "\n" for run in sweep.runs)
    done = subprocess.run([program(), "config", "--batch", argument(sweep.base)], input=lines, capture_output=True,
                          encoding="utf-8", errors="replace", check=False)
    results = [json.loads(line) for line in done.stdout.split("\n") if line]
    if len(results) < len(sweep.runs):
        raise ScriptError(printable(done.stderr.strip() or f"{program()} config: exit code {done.returncode}"), 1)
    problems = {}
    for run, result in zip(sweep.runs, results):
        run.config = result.get("config")
        for line in result["error"].split("\n") if "error" in result else ():
            problems.setdefault(printable(line), run.name)
    if problems:
        raise ScriptError("\n".join(f"{line} in {name}" for line, name in problems.items()))


# ---- labels ---------------------------------------------------------------------------------------------------


def write_labels(sweep, folder):
    """Adds the labels of a sweep to those in its folder: {"keys": Sweep.named, "runs": {folder's name: GridPoint.labels}}.
    A sweep without any writes no file. The caller keeps other sweeps from writing at the same time."""
    before = _read_labels(folder)
    runs = before["runs"] | {run.name: run.labels for run in sweep.runs}
    now = {"keys": before["keys"] | sweep.named, "runs": {name: labels for name, labels in runs.items() if labels}}
    if now != before:
        write_atomically(Path(folder) / LABELS_FILE, json.dumps(now, indent=2, ensure_ascii=False) + "\n")


def _read_labels(folder):
    """The contents of the labels' file. ScriptError: it is damaged."""
    path = Path(folder) / LABELS_FILE
    if not path.exists():
        return {"keys": {}, "runs": {}}
    content = read_json(path)
    try:
        texts = [text for labels in content["runs"].values() for text in labels.values()]
        texts += [key for keys in content["keys"].values() for key in keys]
        entries = set().union(*content["runs"].values())
        is_whole = all(isinstance(text, str) for text in texts) and entries <= content["keys"].keys()
    except (AttributeError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise ScriptError(f"{printable(path)}: is damaged; delete it, and the sweep writes it again", 1)
    return content


def labels_of(folder):
    """The labels of the runs in a sweep's folder: {path of the run: {name of a grid entry: name of its value}}, such as
    {Path("runs/grid/batch=small_seed=1"): {"batch": "small"}}; a case has {"case": its name}. Runs without labels are
    left out. ScriptError: the file is damaged."""
    return {Path(folder) / name: labels for name, labels in _read_labels(folder)["runs"].items()}


def labelled_keys(folder):
    """The keys that the labels of a sweep's folder stand for: {name of a grid entry, or "case": dotted keys}, such as
    {"batch": ["train.batch_size", "train.steps"]}. ScriptError: as in labels_of."""
    return _read_labels(folder)["keys"]
