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


def build(folder, units, edits, options=()):
    """Programs with edits of files of src, of which these units are compiled: the path of `mutant`, which stands for
    normscope; `mutant_tests` beside it stands for normscope_tests if the build has them."""
    source = folder / "src"
    for name in {name for name, _, _ in edits} | set(units):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(ROOT) / "src" / name, source / name)
    edit(source, edits)
    all_commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    commands = {c["file"]: c for c in all_commands}

    def compiled(unit):
        """(the path of the unit's object, the words of the command that made it)"""
        command = commands[str(Path(ROOT) / "src" / unit)]
        words = shlex.split(command["command"])
        made = str(folder / unit.replace("/", "-")) + ".o"
        words = words[:words.index("-o")] + ["-o", made, "-c", str(source / unit)]
        # Without optimisation no precompiled header made with it can be used.
        optimised = "-O1" if "-include" in words else "-O0"
        words = [words[0], f"-I{source}", *(optimised if w == "-O3" else w for w in words[1:]), "-w", *options]
        subprocess.run(words, cwd=command["directory"], check=True)
        return made, words

    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        objects, all_words = zip(*pool.map(compiled, units))
    words = all_words[0]
    blas = Path(cache_entry("OPENBLAS_LIBRARY"))
    programs = {"mutant": r"CMakeFiles/normscope\.dir/src/cli/", "mutant_tests": r"CMakeFiles/test_cases\.dir/"}
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    mpi = re.findall(r"^MPI_\w+_LIBRARY:FILEPATH=(/.+)$", cache, re.MULTILINE)  # where the build has one
    runtimes = [w for w in words if w.startswith(("-fopenmp", "-fsanitize="))]
    linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # twice as quick
    for name, place in programs.items():
        own = [os.path.join(c["directory"], match[1]) for c in all_commands
               if (match := re.search(rf" -o ({place}\S+\.o)\b", c["command"]))]
        if not own or not all(map(os.path.exists, own)):
            continue  # a build without the tests
        subprocess.run([words[0], *linker, *runtimes, "-o", str(folder / name), *own, *objects,
                        str(BUILD / "libnormscope_core.a"), str(blas), *mpi, f"-Wl,-rpath,{blas.parent}"], check=True)
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
            before, expression, after = re.fullmatch("(?s)(.*)«(.*)»(.*)", text).groups() if "«" in text else ("", text, "")
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
    return build(folder, units, [*also, *edits], ("-include", str(header)))
