"""The runs of a sweep: the grid, cases and seeds of its file, or a config with --set KEY=A,B and --seeds N; and their
labels."""

import collections
import dataclasses
import hashlib
import itertools
import json
import math
import re
from pathlib import Path

from lib.base.command import ScriptError, argument, ask, printable, program
from lib.base.files import JSON, member, read_json, repeated, write_atomically

# The last columns of summary.csv, members of the runs' summary.json. With others, tables of earlier sweeps are refused.
METRICS = ("final_train_loss", "best_val_loss", "final_val_loss", "grad_first_last", "growth", "steps", "seconds",
           "tokens_per_s")
NAMED = {"small": {"train.batch_size": 2, "train.steps": 1200}}  # an example of named values of a grid entry
EXAMPLE = {"name": "pre_vs_post", "base": "CONFIG.json", "seeds": [1, 2, 3],
           "grid": {"model.norm_placement": ["pre", "post"]},
           "cases": [{"name": "warm", "set": {"train.warmup_steps": 200}}]}
MOST_RUNS = 100_000  # of a sweep
LABELS_FILE = "labels.json"
CASE = "case"  # the entry under which a case's name is stored


class Sweep(collections.namedtuple("Sweep", "name base columns runs named")):
    """A sweep.

    name     text
    base     the file of the config of all runs
    columns  the keys that vary, dotted, and the names of grid entries with named values
    runs     list of GridPoint
    named    {name of such an entry, or CASE: the keys that its names stand for}; for CASE they include those of the
             grid"""


@dataclasses.dataclass
class GridPoint:
    """A run of the sweep.

    settings  {key: value} of the keys that are set over the base, beside the run's name
    labels    {grid entry, or CASE: name of its value}
    config    the resolved config
    status    done, diverged or failed; "" until the run has ended
    summary   its summary.json; {} unless the run is done or diverged
    started   when this sweep started it, by time.monotonic(); None before"""
    name: str
    settings: dict
    labels: dict
    config: dict = None
    folder: Path = None
    status: str = ""
    summary: dict = dataclasses.field(default_factory=dict)
    started: float = None

    def value(self, column):
        """The cell of a column: a label, or the value of a key in the config; of a key that has no effect, the value
        that the sweep sets, if it does."""
        if column in self.labels or "." not in column:
            return self.labels.get(column)
        if column in self.config.get("$idle", ()):
            return self.settings.get(column)
        return member(self.config, column)


# A value of a grid entry, or a case: its part of the folder's name, such as "lr=0.1", with settings and labels as in
# GridPoint.
Choice = collections.namedtuple("Choice", "name settings labels")


def as_cell(value):
    """The text of a value in a folder's name or in a table: 1e3 is 1000, None is empty."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def values_of(text):
    """The values that a text "A,B" lists, each JSON or a word; commas inside JSON do not split: '1,"a,b",pre' has the
    values 1, "a,b" and "pre"."""
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
    """The text as the name of a folder: other characters than [A-Za-z0-9._=+-] become -, and more than 100 characters
    are cut to 83 and a hash."""
    name = re.sub(r"[^A-Za-z0-9._=+-]|^\.", "-", text)
    return name if len(name) <= 100 else f"{name[:83]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load_sweep(file, options=(), seeds=0):
    """The sweep of a file with the options --set and --seeds; a config is a sweep of itself. ScriptError: a mistake in
    the file."""
    spec, name = read_json(file), Path(file).stem
    if not isinstance(spec, dict):
        raise ScriptError(f"{printable(file)}: expected an object: a sweep")
    if not {"base", "grid", "cases", "seeds"} & spec.keys():  # a config
        spec = {"base": Path(file).name, "name": spec.get("name", name)}
    spec = {"name": name, "base": None, "grid": {}, "cases": [], "seeds": [], **spec}
    if problems := [f"{printable(file)}: {problem}" for problem in _problems(spec)]:
        raise ScriptError("\n".join(problems))
    in_same_folder = Path(file).parent / spec["base"]
    base = str(in_same_folder) if in_same_folder.is_file() else spec["base"]  # else in the working directory
    lists = [(key, values_of(text)) for key, _, text in (option.partition("=") for option in options)]
    return _expanded(spec, base, lists, [*range(1, seeds + 1)] or spec["seeds"])


def _problems(spec):
    """Yields a text for each part of a sweep's file that is unknown or unlike that of the example."""
    def unlike(part, value, expected):
        return f"{part}: got {printable(json.dumps(value, ensure_ascii=False))[:100]}; expected {expected}"

    for key, value in spec.items():
        if key not in EXAMPLE:
            yield f"{printable(key)}: unknown key; expected {', '.join(EXAMPLE)}"
        elif not isinstance(value, type(EXAMPLE[key])) or key == "cases" and not all(map(_is_case, value)):
            yield unlike(key, value, f"such as {json.dumps(EXAMPLE[key])}")
        elif key == "grid":
            for entry, values in value.items():
                part = f"grid: {printable(entry)}"
                if isinstance(values, dict) and ("." in entry or entry in ("name", "status", CASE, *METRICS)):
                    yield f"{part}: a key or column has this name; give named values a name of their own, without a dot"
                elif not values or not (isinstance(values, list) or _is_named(values)):
                    yield unlike(part, values, f"a list of values of a key, or named values: {json.dumps(NAMED)}")


def _is_case(value):
    return (isinstance(value, dict) and value.keys() == {"name", "set"} and isinstance(value["name"], str)
            and value["name"].strip() and isinstance(value["set"], dict))


def _is_named(values):
    return isinstance(values, dict) and all(name.strip() and settings and isinstance(settings, dict)
                                            for name, settings in values.items())


def _keys_of(entry, values):
    """The keys that an entry of a grid sets: itself, or those of its named values."""
    return [entry] if isinstance(values, list) else [*dict.fromkeys(itertools.chain(*values.values()))]


def _product(grid, titles):
    """A tuple of Choices for every point of a grid, one of each of its entries; the last entry changes fastest."""
    return itertools.product(*(
        [Choice(f"{titles[entry]}={as_cell(value)}", {entry: value}, {}) for value in values]
        if isinstance(values, list) else
        [Choice(f"{titles[entry]}={name}", settings, {entry: name}) for name, settings in values.items()]
        for entry, values in grid.items()))


def _titles(entries):
    """{entry: its title in the names of folders}: the last part of a key, or the whole key if two keys end alike."""
    last_parts = {entry: entry.rpartition(".")[2] for entry in entries}
    counts = collections.Counter(last_parts.values())
    return {entry: part if counts[part] == 1 else entry for entry, part in last_parts.items()}


def _expanded(spec, base, lists, seeds):
    """The Sweep of a sweep file: every point of the grid, then every case, each crossed with the values of --set
    (`lists`: [(key, values)]; a single value is common to all runs) and with the seeds. A grid of model.n_layer 6 and
    12, a case "warm" and --seeds 2 are the runs

        n_layer=6_seed=1, n_layer=6_seed=2, n_layer=12_seed=1, n_layer=12_seed=2, warm_seed=1, warm_seed=2

    ScriptError: a key is set twice, or two runs would share a folder, as those of equal values."""
    grid, cases = spec["grid"], spec["cases"]
    by_seed = {"train.seed": seeds} if seeds else {}
    keys_by_entry = {entry: _keys_of(entry, values) for entry, values in grid.items()}
    keys_of_grid = [*itertools.chain(*keys_by_entry.values())]
    keys_of_cases = [key for case in cases for key in case["set"]]
    keys_of_both = [*dict.fromkeys([*keys_of_grid, *keys_of_cases])]
    if twice := repeated(keys_of_grid) or repeated([*keys_of_both, *(key for key, _ in lists), *by_seed]):
        raise ScriptError(f"{printable(twice[0])}: set twice, by the grid, a case, --set or seeds; leave out one of "
                          "them")
    common = {key: values[0] for key, values in lists if len(values) == 1}
    crossed = {key: values for key, values in lists if len(values) > 1} | by_seed
    of_grid = math.prod(map(len, grid.values())) if grid or not cases else 0
    if (count := (of_grid + len(cases)) * math.prod(map(len, crossed.values()))) > MOST_RUNS:
        raise ScriptError(f"{count:,} runs; expected at most {MOST_RUNS:,}: take fewer values or seeds")

    titles, runs = _titles([*grid, *keys_of_cases, *crossed]), {}
    points = [*_product(grid, titles)] if grid or not cases else []
    points += [(Choice(case["name"], case["set"], {CASE: case["name"]}),) for case in cases]
    for choices in (point + crossing for point in points for crossing in _product(crossed, titles)):
        name = folder_name("_".join(choice.name for choice in choices) or spec["name"])
        if name in runs:
            raise ScriptError(f"two runs would share the folder {name}; values and names must differ, and in more than "
                              "special characters")
        runs[name] = GridPoint(name, dict(common), {})
        for choice in choices:
            runs[name].settings.update(choice.settings)
            runs[name].labels.update(choice.labels)
    columns = [*itertools.chain(*([entry, *keys] for entry, keys in keys_by_entry.items())), *keys_of_cases, *crossed]
    named = {entry: keys for entry, keys in keys_by_entry.items() if isinstance(grid[entry], dict)}
    if cases:
        named[CASE] = keys_of_both
    return Sweep(spec["name"], base, [*dict.fromkeys(columns)], [*runs.values()], named)


def resolve(sweep):
    """Sets the config of each run as the program resolves it, all in one process. ScriptError: a line for each problem,
    once, with the first run that has it."""
    overrides = [[f"{key}={json.dumps(value)}" for key, value in {"name": run.name, **run.settings}.items()]
                 for run in sweep.runs]
    lines = "".join(json.dumps(words) + "\n" for words in overrides)
    process = ask("config", "--batch", argument(sweep.base), purpose="resolves configs", input=lines, encoding="utf-8",
                  errors="replace")
    results = [json.loads(line) for line in process.stdout.split("\n") if line]
    if len(results) < len(sweep.runs):
        raise ScriptError(printable(process.stderr.strip() or f"{program()} config: exit code {process.returncode}"), 1)
    problems = {}
    for run, result in zip(sweep.runs, results):
        run.config = result.get("config")
        for line in result["error"].split("\n") if "error" in result else ():
            problems.setdefault(printable(line), run.name)
    if problems:
        raise ScriptError("\n".join(f"{line} in {name}" for line, name in problems.items()))


# ---- labels ---------------------------------------------------------------------------------------------------


def write_labels(sweep, folder):
    """Adds the labels of a sweep to those in its folder. A sweep without any writes no file. The caller keeps other
    sweeps from writing at the same time."""
    before = read_labels(folder)
    runs = before["runs"] | {run.name: run.labels for run in sweep.runs}
    now = {"keys": before["keys"] | sweep.named, "runs": {name: labels for name, labels in runs.items() if labels}}
    if now != before:
        write_atomically(Path(folder) / LABELS_FILE, json.dumps(now, indent=2, ensure_ascii=False) + "\n")


def read_labels(folder):
    """The labels of a sweep's folder: {"keys": Sweep.named, "runs": {name of a run: GridPoint.labels}}, such as
    {"keys": {"batch": ["train.batch_size", "train.steps"]}, "runs": {"batch=small_seed=1": {"batch": "small"}}}. Runs
    without labels are left out. ScriptError: the file is damaged."""
    path = Path(folder) / LABELS_FILE
    if not path.exists():
        return {"keys": {}, "runs": {}}
    content = read_json(path)
    try:
        entries = {entry for labels in content["runs"].values() for entry in labels.keys()}
        is_whole = entries <= content["keys"].keys()
    except (AttributeError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise ScriptError(f"{printable(path)}: is damaged, or no file of a sweep; move it away, and the sweep "
                          "writes it again", 1)
    return content
