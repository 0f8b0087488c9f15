"""Which runs a sweep has: the grid, cases and seeds of its file, or a config with --set KEY=A,B and --seeds N."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

from lib.command import ScriptError, argument, printable, program
from lib.files import JSON, read_json

EXAMPLE = {"name": "pre_vs_post", "base": "CONFIG.json", "seeds": [1, 2, 3], "grid": {"model.norm_placement": ["pre", "post"]},
           "cases": [{"name": "warm", "set": {"train.warmup_steps": 200}}]}
Sweep = collections.namedtuple("Sweep", "name base keys runs")  # `base`: file of the config of all runs; `keys`: those that vary


@dataclasses.dataclass
class Run:
    """A run of the sweep. `settings`: {key that varies: value}; `options`: of the program, for its config; `config`: resolved; `status`:
    done, diverged or failed; empty while it has not ended."""
    name: str
    settings: dict
    options: list
    config: dict = None
    folder: Path = None
    status: str = ""

    def value(self, key):
        """The value of a dotted key in the config; of one without effect, which is not there, what the sweep sets."""
        *sections, name = key.split(".")
        section = functools.reduce(dict.get, sections, self.config)
        return section.get(name, self.settings.get(key))

    @functools.cached_property
    def summary(self):
        """The summary.json of a run that has ended; of a failed one {}."""
        return {} if self.status == "failed" else read_json(self.folder / "summary.json")


def value_text(value):
    """A value in a folder's name or a cell: 1e3 is 1000, None is empty."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def values_of(text):
    """The values of "A,B", each JSON or a word; commas inside JSON do not split."""
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
    """`text` with other characters than [A-Za-z0-9._=+-] replaced; over 100 characters: cut, plus a hash."""
    name = re.sub(r"[^A-Za-z0-9._=+-]|^\.", "-", text)
    return name if len(name) <= 100 else f"{name[:83]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load_sweep(file, options=(), seeds=0):
    """The sweep of a file with the options --set and --seeds; a config is a sweep of itself."""
    spec, name = read_json(file), Path(file).stem
    if not isinstance(spec, dict):
        raise ScriptError(f"{printable(file)}: expected an object: a sweep")
    if not {"base", "grid", "cases", "seeds"} & spec.keys():  # a config
        spec = {"base": Path(file).name, "name": spec.get("name", name)}
    spec = {"name": name, "base": None, "grid": {}, "cases": [], "seeds": [], **spec}
    _check(spec, printable(file))
    beside = Path(file).parent / spec["base"]
    base = str(beside) if beside.is_file() else spec["base"]  # else in the working directory
    sets = {key: values_of(text) for key, _, text in (option.partition("=") for option in options)}
    return _expanded(spec, base, sets, [*range(1, seeds + 1)] or spec["seeds"])


def _check(spec, file):
    """An error for parts of a sweep file that are unknown or not like those of the example."""
    is_like = {key: isinstance(spec[key], type(example)) for key, example in EXAMPLE.items()}
    is_like["grid"] = is_like["grid"] and all(isinstance(values, list) and values for values in spec["grid"].values())
    is_like["cases"] = is_like["cases"] and all(map(_is_case, spec["cases"]))
    problems = [f"{file}: {printable(key)}: unknown key; expected {', '.join(EXAMPLE)}" for key in spec if key not in EXAMPLE]
    for key in (key for key in EXAMPLE if not is_like[key]):
        got = printable(json.dumps(spec[key], ensure_ascii=False))[:100]
        problems.append(f"{file}: {key}: got {got}; expected such as {json.dumps(EXAMPLE[key])}")
    if problems:
        raise ScriptError("\n".join(problems))


def _is_case(value):
    return (isinstance(value, dict) and value.keys() == {"name", "set"} and isinstance(value["name"], str)
            and isinstance(value["set"], dict))


def _product(axes):
    """Every choice of a value for each key, as {key: value}; the last key changes fastest."""
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def _expanded(spec, base, options, seeds):
    """The sweep: the grid's product, then the cases, each with every choice of the lists in `options`, then with every seed."""
    grid, cases = spec["grid"], spec["cases"]
    outer = [*dict.fromkeys([*grid, *(key for case in cases for key in case["set"])])]
    every = [*outer, *options, *(["train.seed"] if seeds else [])]
    if twice := [key for key in every if every.count(key) > 1]:
        raise ScriptError(f"{printable(twice[0])}: set twice, by a grid, case, --set or seeds; leave out one of them")
    common = {key: values[0] for key, values in options.items() if len(values) == 1}
    inner = {key: values for key, values in options.items() if len(values) > 1} | ({"train.seed": seeds} if seeds else {})
    keys = [*outer, *inner]
    last_parts = collections.Counter(key.rpartition(".")[2] for key in keys)

    def words(settings):
        last = {key: key.rpartition(".")[2] for key in settings}
        return [f"{last[key] if last_parts[last[key]] == 1 else key}={value_text(value)}" for key, value in settings.items()]

    points = [(words(point), point) for point in _product(grid)] if grid or not cases else []
    points += [([case["name"]], case["set"]) for case in cases]  # its name stands for what it sets
    runs = {}
    for (first, point), last in itertools.product(points, _product(inner)):
        name, settings = folder_name("_".join([*first, *words(last)]) or spec["name"]), {**point, **last}
        if name in runs:
            raise ScriptError(f"two runs would share the folder {name}; values and names of cases must differ in more than "
                              "special characters")
        options = [f"--set={key}={json.dumps(value)}" for key, value in {"name": name, **common, **settings}.items()]
        runs[name] = Run(name, settings, options)
    return Sweep(spec["name"], base, keys, list(runs.values()))


def resolve(sweep):
    """Sets each run's config as the program resolves it. What it says of them is a line once, with the first run that it is of."""
    said, code = {}, 0
    for run in sweep.runs:
        done = subprocess.run([program(), "config", argument(sweep.base), *run.options], capture_output=True, encoding="utf-8",
                              errors="replace", check=False)
        code = code or done.returncode
        for line in done.stderr.splitlines():
            said.setdefault(line, run.name)
        run.config = json.loads(done.stdout or "{}")
    lines = [f"{line} in {name}" for line, name in said.items()]
    if code:
        raise ScriptError("\n".join(lines), 2)
    print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr)
