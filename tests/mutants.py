"""Programs with edits in their source: only the files that change are compiled anew, and linked before the library of
the build under test."""

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


def build(folder, units, edits):
    """A program with edits of files of src, of which these units are compiled: its path."""
    source = folder / "src"
    for name in {name for name, _, _ in edits} | set(units):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(ROOT) / "src" / name, source / name)
    edit(source, edits)

    commands = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    objects = []
    for unit in units:
        command = next(c for c in commands if c["file"] == str(Path(ROOT) / "src" / unit))
        words = shlex.split(command["command"])
        objects.append(str(folder / unit.replace("/", "-")) + ".o")
        words = words[:words.index("-o")] + ["-o", objects[-1], "-c", str(source / unit)]
        # Without optimisation no precompiled header made with it can be used.
        optimised = "-O1" if "-include" in words else "-O0"
        words = [words[0], f"-I{source}", *(optimised if w == "-O3" else w for w in words[1:]), "-w"]
        subprocess.run(words, cwd=command["directory"], check=True)
    blas = Path(cache_entry("OPENBLAS_LIBRARY"))
    main = BUILD / "CMakeFiles/normscope.dir/src/cli/main.cpp.o"
    runtimes = [w for w in words if w.startswith(("-fopenmp", "-fsanitize="))]
    linker = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []  # twice as quick
    subprocess.run([words[0], *linker, *runtimes, "-o", str(folder / "mutant"), str(main), *objects,
                    str(BUILD / "libnormscope_core.a"), str(blas), f"-Wl,-rpath,{blas.parent}"], check=True)
    return folder / "mutant"
