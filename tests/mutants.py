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
    found = re.search(rf"^{name}:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, f"{name} is not in {BUILD}/CMakeCache.txt"
    return found[1]


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
    """A program with edits of files of src, of which these units are compiled: its path."""
    source = folder / "src"
    for name in {name for name, _, _ in edits} | set(units):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(ROOT) / "src" / name, source / name)
    edit(source, edits)
    all_commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    commands = {c["file"]: c for c in all_commands}

    def compiled(unit):
        """(its object, the compiler's words)"""
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
    program = [str(BUILD / found[1]) for c in all_commands
               if (found := re.search(r" -o (CMakeFiles/normscope\.dir/src/cli/\S+)", c["command"]))]
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    mpi = re.findall(r"^MPI_\w+_LIBRARY:FILEPATH=(/.+)$", cache, re.MULTILINE)  # where the build has one
    runtimes = [w for w in words if w.startswith(("-fopenmp", "-fsanitize="))]
    linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # twice as quick
    subprocess.run([words[0], *linker, *runtimes, "-o", str(folder / "mutant"), *program, *objects,
                    str(BUILD / "libnormscope_core.a"), str(blas), *mpi, f"-Wl,-rpath,{blas.parent}"], check=True)
    return folder / "mutant"


def build_all(folder, units, faults, also=()):
    """One program with several faults, lists of edits, of which each process plants the one that PLANTED_FAULT names, counted
    from 1, or none: to compile a unit takes much longer than to run it. In place of the edited text, or of the part of it in
    «», which must be an expression, stands a choice: `planted(n) ? becomes : text`. Where `becomes` says PLANTED it is the
    choice itself and replaces the whole text. `also`: edits that are always made."""
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
