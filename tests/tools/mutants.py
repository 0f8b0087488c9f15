"""Programs with edits in their source: only the files that change are compiled anew, and linked before the library of
the build under test."""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from cli import BINARY, ROOT

BUILD = Path(os.path.dirname(BINARY))


def cache_entry(name):
    """A value of the build's CMakeCache.txt."""
    match = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert match, f"{name} is not in {BUILD}/CMakeCache.txt"
    return match[1]


def edit(root, edits):
    """Makes edits (file, text, what it becomes) in files under `root`; each text is there once, however its lines are
    broken."""
    for name, text, becomes in edits:
        code = (root / name).read_text(encoding="utf-8")
        pattern = r"\s+".join(map(re.escape, text.split()))
        code, count = re.subn(pattern, lambda _, becomes=becomes: becomes, code)
        assert count == 1, f"{name} holds this text {count} times, not once: {text}"
        (root / name).write_text(code, encoding="utf-8")


def source_path(name):
    """The path of a file of src by the name that includes have, as in ops/linear.h or train/step.h."""
    engine = Path(ROOT) / "src" / "engine" / name
    return engine if engine.exists() else Path(ROOT) / "src" / name


def commands():
    """{a file of src: [folder, words] of the command that compiles it in the build under test, without its input and
    output}, and the object files of the programs that are linked again, {name: [path]}."""
    entries = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    words_of, objects = {}, {"mutant": [], "mutant_tests": []}
    for entry in entries:
        words = shlex.split(entry["command"])
        made = words.index("-o")
        if "/sanitized_library.dir/" in "/" + words[made + 1]:
            continue  # a second copy of the library, which no program is linked with
        for name, place in (("mutant", "/normscope.dir/src/cli/"), ("mutant_tests", "/test_cases.dir/")):
            if place in "/" + words[made + 1] and words[made + 1].endswith(".o"):  # the others: precompiled headers
                objects[name].append(os.path.join(entry["directory"], words[made + 1]))
        del words[made:made + 4]  # -o OBJECT -c SOURCE
        if "-include" in words:  # a precompiled header, made with other options than those of a mutant
            header = words.index("-include")
            del words[header:header + 2]
        words_of[entry["file"]] = entry["directory"], words
    return words_of, objects


def compiled(folder, units, words, directory):
    """The objects of these units of folder/src, compiled as one file, which reads each header once; one by one if
    together they do not compile, as two units may have functions of one name."""
    together = folder / (units[0].replace("/", "-") + ".cpp")
    together.write_text("".join(f'#include "{folder / "src" / unit}"\n' for unit in units), encoding="utf-8")
    command = [*words, "-c", str(together), "-o", f"{together}.o"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [f"{together}.o"]
    assert len(units) > 1, f"{units[0]} with its edits does not compile:\n{done.stderr}"
    return [made for unit in units for made in compiled(folder, [unit], words, directory)]


def build(folder, units, edits, options=(), with_tests=False):
    """A program with edits of files of src, of which these units are compiled: the path of `mutant`, which stands for
    normscope. `with_tests`: with `mutant_tests` beside it, which stands for normscope_tests, if the build has them."""
    source = folder / "src"
    for name in {name for name, _, _ in edits} | set(units):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path(name), source / name)
    edit(source, edits)
    words_of, own_objects = commands()
    groups = {}  # {options of the compiler: units}
    for unit in units:
        directory, words = words_of[str(source_path(unit))]
        words = [words[0], f"-I{source}", *("-O0" if word == "-O3" else word for word in words[1:]), "-w", *options]
        groups.setdefault((directory, *words), []).append(unit)
    parts = [(of_group, words, directory) for (directory, *words), of_group in groups.items()]
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects = [made for part in pool.map(lambda part: compiled(folder, *part), parts) for made in part]
    blas = Path(cache_entry("OPENBLAS_LIBRARY"))
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    mpi = re.findall(r"^MPI_\w+_LIBRARY:FILEPATH=(/.+)$", cache, re.MULTILINE)  # where the build has one
    compiler, *words = parts[0][1]
    runtimes = [word for word in words if word.startswith(("-fopenmp", "-fsanitize="))]
    linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # twice as quick
    for name, own in own_objects.items():
        if (with_tests or name == "mutant") and own and all(map(os.path.exists, own)):
            subprocess.run([compiler, *linker, *runtimes, "-o", str(folder / name), *own, *objects,
                            *(str(BUILD / f"libnormscope_{part}.a") for part in ("laboratory", "engine")),
                            str(blas), *mpi, f"-Wl,-rpath,{blas.parent}"],
                           check=True)
    return folder / "mutant"


def build_all(folder, units, faults, also=()):
    """Builds one program with several faults, each a list of edits. A process plants the fault that PLANTED_FAULT
    names, counted from 1, or none: compiling a unit takes much longer than running it. The edited text, or the part of
    it in «», which must be an expression, is replaced by a choice: `planted(n) ? becomes : text`. A `becomes` that
    contains PLANTED is the choice itself and replaces the whole text. `also`: edits that are always made."""
    choices = {}
    for number, edits in enumerate(faults, start=1):
        for name, text, becomes in edits:
            whole, planted = text.replace("«", "").replace("»", ""), f"::planted({number})"
            before, expression, after = "", text, ""
            if "«" in text:
                before, expression, after = re.fullmatch("(?s)(.*)«(.*)»(.*)", text).groups()
            if "PLANTED" in becomes:
                assert (name, whole) not in choices, f"another fault edits this text too: {text}"
                choices[name, whole] = "", becomes.replace("PLANTED", planted), ""
            else:
                parts = choices.setdefault((name, whole), (before, expression, after))
                assert (parts[0], parts[2]) == (before, after), f"another fault edits another part of this text: {text}"
                choices[name, whole] = before, f"({planted} ? {becomes} : {parts[1]})", after
    header = folder / "planted.h"
    header.write_text("#include <cstdlib>\ninline bool planted(int fault) {\n"
                      '  static const char* chosen = std::getenv("PLANTED_FAULT");\n'
                      "  static const int number = chosen == nullptr ? 0 : std::atoi(chosen);\n"
                      "  return number == fault;\n}\n", encoding="utf-8")
    edits = [(name, text, "".join(parts)) for (name, text), parts in choices.items()]
    return build(folder, units, [*also, *edits], ("-include", str(header)), with_tests=True)
