"""Which runs a sweep has: the grid, cases and seeds of its file, or a config with --set KEY=A,B and --seeds N."""

import collections
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

from lib.command import ScriptError, argument, printable, program
from lib.files import JSON, fnv1a, read_json
from lib.sweep_runs import Run, value_text

Sweep = collections.namedtuple("Sweep", "name base keys runs")  # `base`: file of the config of all runs; `keys`: those that vary


def _is_list(value):
    return isinstance(value, list)


def _is_case(case):
    return (isinstance(case, dict) and set(case) == {"name", "set"} and isinstance(case["name"], str) and case["name"]
            and isinstance(case["set"], dict))


PARTS = {  # of a sweep file: whether a value is right, and what is
    "base": (lambda base: isinstance(base, str), "the file of a config"),
    "name": (lambda name: isinstance(name, str) and name, "text"),
    "seeds": (_is_list, "a list of numbers, such as [1, 2, 3]"),
    "grid": (lambda grid: isinstance(grid, dict) and all(_is_list(values) and values for values in grid.values()),
             "{KEY: [VALUE, ...], ...}"),
    "cases": (lambda cases: _is_list(cases) and all(map(_is_case, cases)), 'a list of {"name": NAME, "set": {KEY: VALUE, ...}}'),
}


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
    return name if len(name) <= 100 else f"{name[:83]}-{fnv1a(text.encode()):016x}"


def load_sweep(file, sets=(), seeds=0):
    """The sweep of a file with the options --set and --seeds; a config is a sweep of itself."""
    spec, shown = read_json(file), printable(file)
    if not isinstance(spec, dict):
        raise ScriptError(f"{shown}: expected an object: a sweep")
    if not {"base", "grid", "cases", "seeds"} & set(spec):  # a config
        spec = {"base": Path(file).name, "name": spec.get("name", Path(file).stem)}
    spec = {"name": Path(file).stem, "base": None, "grid": {}, "cases": [], "seeds": [], **spec}
    problems = [f"{shown}: {printable(key)}: unknown key; expected {', '.join(PARTS)}" for key in spec.keys() - PARTS.keys()]
    problems += [f"{shown}: {key}: got {printable(json.dumps(spec[key], ensure_ascii=False))[:100]}; expected {what}"
                 for key, (is_right, what) in PARTS.items() if not is_right(spec[key])]
    if problems:
        raise ScriptError("\n".join(problems))
    beside = Path(file).parent / spec["base"]
    base = str(beside) if beside.is_file() else spec["base"]  # else in the working directory
    return _expanded(spec, base, sets, list(range(1, seeds + 1)) or spec["seeds"])


def _expanded(spec, base, sets, seeds):
    """The sweep: the grid's product, the last key fastest, then the cases; lists of --set and then seeds are innermost."""
    grid, cases = spec["grid"], spec["cases"]
    keys = list(dict.fromkeys([*grid, *(key for case in cases for key in case["set"])]))
    common, inner = {}, {}  # {key: value} of all runs, {key: values}
    for option in sets:
        key, _, text = option.partition("=")
        values = values_of(text)
        if key in (*keys, *common, *inner):
            raise ScriptError(f"--set {printable(key)}: the sweep sets it already; leave out one of the two")
        if len(values) > 1:
            inner[key] = values
        else:
            common[key] = values[0]
    if seeds:
        if "train.seed" in (*keys, *common, *inner):
            raise ScriptError("train.seed: `seeds` says which seeds there are; leave out one of the two")
        inner["train.seed"] = seeds
    keys += inner
    starts = [("", dict(zip(grid, values))) for values in itertools.product(*grid.values())] if grid or not cases else []
    starts += [(case["name"], case["set"]) for case in cases]
    last_parts = collections.Counter(key.rpartition(".")[2] for key in keys)
    runs = {}
    for (case, start), values in itertools.product(starts, itertools.product(*inner.values())):
        settings = {**start, **dict(zip(inner, values))}
        words = [case] if case else []  # which stands for what it sets
        for key in inner if case else settings:
            last = key.rpartition(".")[2]
            words.append(f"{last if last_parts[last] == 1 else key}={value_text(settings[key])}")
        name = folder_name("_".join(words) or spec["name"])
        if name in runs:
            raise ScriptError(f"two runs would share the folder {name}; values and names of cases must differ in more than "
                              "special characters")
        runs[name] = Run(name, settings, {"name": name, **common, **settings})
    return Sweep(spec["name"], base, keys, list(runs.values()))


def resolve(sweep):
    """Sets each run's config as the program resolves it. What it says of them is a line once, with the first run that it is of."""
    said, code = {}, 0
    for run in sweep.runs:
        done = subprocess.run([program(), "config", argument(sweep.base), *run.options()], capture_output=True, encoding="utf-8",
                              errors="replace", check=False)
        code = code or done.returncode
        for line in done.stderr.splitlines():
            said.setdefault(line, run.name)
        if done.returncode == 0:
            run.config = json.loads(done.stdout)
    lines = [f"{line} in {name}" for line, name in said.items()]
    if code:
        raise ScriptError("\n".join(lines), 2)
    print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr)
