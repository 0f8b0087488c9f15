"""Which runs a sweep has: the grid, cases and seeds of its file, or a config with --set KEY=A,B and --seeds N."""

import collections
import dataclasses
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from lib.command import ScriptError, argument, printable, program
from lib.files import fnv1a, parse_json, read_json

MAX_RUNS = 10_000
KEYS = ("$schema", "name", "base", "seeds", "grid", "cases")
FILE_NAME = re.compile(r"[^=]*\.(json|csv|txt|safetensors)")  # of the files in a run's or a sweep's folder


@dataclasses.dataclass
class Sweep:
    name: str
    base: str  # file of the config of all runs
    keys: list  # those that vary: the grid's, the cases', of --set lists, train.seed
    points: list  # a Point a run


@dataclasses.dataclass
class Point:
    name: str  # of the run's folder
    settings: dict  # {varied key: value}
    sets: list  # KEY=VALUE for --set
    config: dict = None  # resolved


def value_text(value):
    """A value in a folder's name or a cell: 1e3 is 1000, None is empty."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def values_of(text):
    """The values of "A,B", each JSON or a string; commas inside brackets, braces and quotes do not split."""
    words, depth = [""], 0
    for part in re.findall(r'"(?:\\.|[^"\\])*"|.', text, re.DOTALL):
        depth += (part in ("[", "{")) - (part in ("]", "}"))
        if part == "," and depth == 0:
            words.append("")
        else:
            words[-1] += part
    return [_json_or_text(word) for word in words]


def _json_or_text(word):
    try:
        return parse_json(word)
    except (ValueError, RecursionError):
        return word


def folder_name(text):
    """`text` with other characters than [A-Za-z0-9._=+-] replaced; over 100 characters: cut, plus a hash."""
    name = re.sub(r"[^A-Za-z0-9._=+-]", "-", text)
    name = "-" + name[1:] if name.startswith(".") else name
    return name if len(name) <= 100 else f"{name[:83]}-{fnv1a(text.encode()):016x}"


def load_sweep(file, sets=(), seeds=0):
    """The sweep of a file with the options --set and --seeds. All that is wrong is a line of one ScriptError."""
    spec = read_json(file)
    shown = printable(file)
    if not isinstance(spec, dict):
        raise ScriptError(f"{shown}: expected an object: a sweep")
    if "base" not in spec and {"model", "train", "data", "extends"} & set(spec):  # a config
        if not sets and not seeds:
            train = shlex.join([str(program()), "train", argument(file)])
            raise ScriptError(f"{shown}: is a config, not a sweep; run it with {printable(train)}, or say what shall vary: "
                              "--set KEY=A,B or --seeds N")
        spec = {key: spec[key] for key in ("name",) if key in spec} | {"base": os.path.abspath(file)}
    spec = {"name": Path(file).stem, **spec}
    places = [Path(file).parent / spec["base"], Path(spec["base"])] if isinstance(spec.get("base"), str) else []
    base = next((str(place) for place in places if place.is_file()), None)
    problems = [f"{shown}: {what}" for what in _problems(spec)]
    if places and not base:
        problems.append(f"{shown}: base: no such file: {' or '.join(dict.fromkeys(map(printable, places)))}")
    if problems:
        raise ScriptError("\n".join(problems))
    return _expanded(spec, base, sets, list(range(1, seeds + 1)) or spec.get("seeds"))


def _problems(spec):
    """What is wrong with the parts of a sweep file, a line each."""
    def is_case(case):
        return (isinstance(case, dict) and set(case) == {"name", "set"} and isinstance(case["set"], dict)
                and isinstance(case["name"], str) and case["name"] and not FILE_NAME.fullmatch(case["name"]))

    def is_list(value, is_item=lambda item: True):
        return isinstance(value, list) and value and all(map(is_item, value))

    expected = {
        "name": (lambda name: isinstance(name, str) and re.fullmatch(r"[^./][^/]*", name) and name == printable(name),
                 "text without slash, leading dot or control characters"),
        "base": (lambda base: isinstance(base, str), "the file of a config"),
        "seeds": (lambda seeds: is_list(seeds) and len(set(map(json.dumps, seeds))) == len(seeds),
                  "a list of different numbers, such as [1, 2, 3]"),
        "grid": (lambda grid: isinstance(grid, dict) and grid and all(map(is_list, grid.values())), "{KEY: [VALUE, ...], ...}"),
        "cases": (lambda cases: is_list(cases, is_case),
                  'a list of {"name": NAME, "set": {KEY: VALUE, ...}}, with no NAME like a file\'s'),
    }
    for key in spec.keys() - set(KEYS):
        yield f"{printable(key)}: unknown key; expected {', '.join(KEYS)}"
    if "base" not in spec:
        yield "base: missing; expected the file of a config"
    for key, (is_right, what) in expected.items():
        if key in spec and not is_right(spec[key]):
            yield f"{key}: got {printable(json.dumps(spec[key], ensure_ascii=False))[:100]}; expected {what}"


def _expanded(spec, base, sets, seeds):
    """The sweep: the grid's product, the last key fastest, then the cases; lists of --set and then seeds are innermost."""
    grid, cases = spec.get("grid", {}), spec.get("cases", [])
    keys = list(dict.fromkeys([*grid, *(key for case in cases for key in case["set"])]))
    common, inner, problems = [], {}, []
    for option in sets:
        key, _, text = option.partition("=")
        values = values_of(text)
        if key in keys or key in inner:
            problems.append(f"--set {printable(key)}: the sweep varies it already; leave out one of the two")
        elif len(values) > 1:
            inner[key] = values
        else:
            common.append(option)
    fixed_keys = [option.partition("=")[0] for option in common]
    if seeds and "train.seed" in [*keys, *inner, *fixed_keys]:
        problems.append("train.seed: `seeds` says which seeds there are; leave out one of the two")
    if "name" in [*keys, *inner, *fixed_keys]:
        problems.append("name: a run's name is made of what it varies")
    if seeds:
        inner["train.seed"] = seeds
    if problems:
        raise ScriptError("\n".join(problems))
    keys += inner
    last_parts = collections.Counter(key.rpartition(".")[2] for key in keys)

    def point(case, fixed, varied):
        """`case` stands in the name for what it sets."""
        words = [case] if case else []
        for key, value in varied.items():
            last = key.rpartition(".")[2]
            words.append(f"{last if last_parts[last] == 1 else key}={value_text(value)}")
        name = folder_name("_".join(words) or spec["name"])
        settings = {**fixed, **varied}
        own = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        return Point(name, settings, [f"name={json.dumps(name)}", *common, *own])

    starts = (("", {}, dict(zip(grid, values))) for values in itertools.product(*grid.values())) if grid or not cases else ()
    starts = itertools.chain(starts, ((case["name"], case["set"], {}) for case in cases))
    pairs = ((start, values) for start in starts for values in itertools.product(*inner.values()))
    points = [point(case, fixed, {**varied, **dict(zip(inner, values))}) for (case, fixed, varied), values
              in itertools.islice(pairs, MAX_RUNS + 1)]
    if len(points) > MAX_RUNS:
        raise ScriptError(f"more than {MAX_RUNS} runs; split the sweep in several")
    name, times = collections.Counter(point.name for point in points).most_common(1)[0]
    if times > 1:
        raise ScriptError(f"{times} runs would share the folder {name}; values and names of cases must differ in more than "
                          "special characters")
    return Sweep(spec["name"], base, keys, points)


def resolve(sweep):
    """Sets each point's config as the program resolves it. An error has each line once, with the first run that it is of."""
    errors, notes, code = {}, {}, 0
    for point in sweep.points:
        sets = [word for one in point.sets for word in ("--set", one)]
        done = subprocess.run([program(), "config", argument(sweep.base), *sets], capture_output=True, encoding="utf-8",
                              errors="replace", check=False)
        code = code or done.returncode
        for line in done.stderr.splitlines():
            (errors if done.returncode else notes).setdefault(line, point.name)
        if done.returncode == 0:
            point.config = json.loads(done.stdout)
    for line, name in notes.items():
        print(f"{line} in {name}", file=sys.stderr)
    if code:
        lines = [f"{line} in {name}" for line, name in errors.items()] or [f"normscope config ended with exit code {code}"]
        raise ScriptError("\n".join(lines), code if code == 2 else 1)
