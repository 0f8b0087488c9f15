#!/usr/bin/python3
"""The directions in which folders include each other, so that parts stay apart: src's, of which those in engine make a
library of their own. And no two files have one name."""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
# The folders that each folder may include, beside itself and the standard library. The first five are src/engine's.
ALLOWED = {
    "core": "", "kernels": "core", "autograd": "core", "ops": "core kernels autograd",
    "model": "core kernels autograd ops", "io": "core", "data": "core io", "config": "core model io",
    "logs": "core kernels autograd model io data config", "train": "core kernels autograd ops model config data io logs",
    "check": "core kernels autograd ops model config data logs",
    "cli": "core kernels autograd ops model config data io logs train check"}
# The only headers of kernels for these folders: statistics of tensors, names.
KERNELS_FOR = {"logs": ("kernels/pointwise.h", "kernels/simd.h")}
# Headers that are private to kernels.
PRIVATE = ("kernels/reference/", "kernels/simd/", "kernels/isa/", "kernels/gemm/kernel.h", "kernels/gemm/schedule.h",
           "kernels/gemm/microkernel.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FOLDERS = {folder: SOURCE / ("engine" if place < 5 else "") / folder for place, folder in enumerate(ALLOWED)}


def is_allowed(folder, header):
    """Whether a file of `folder` may include a header, which is named as in core/types.h."""
    target = header.split("/")[0]
    if target not in ALLOWED or not (FOLDERS[target].parent / header).exists():
        return False
    return target == folder or (target in ALLOWED[folder].split() and not header.startswith(PRIVATE)
                                and (target != "kernels" or header in KERNELS_FOR.get(folder, (header,))))


def main():
    for folder, header in (("model", "logs/site_stats.h"), ("ops", "kernels/simd/norm_loops.h"),
                           ("logs", "kernels/attention.h"), ("autograd", "kernels/pointwise.h"),
                           ("train", "cli/commands.h"), ("core", "types.h")):
        assert not is_allowed(folder, header), (folder, header)  # the rules can fail
    files = [file for file in sorted(SOURCE.rglob("*")) if file.suffix in (".h", ".cpp")]
    includes = [(folder, file, header) for folder, path in FOLDERS.items() for file in files if path in file.parents
                for header in INCLUDE.findall(file.read_text(encoding="utf-8"))]
    bad = [f"{file.relative_to(SOURCE.parent)}: {header}" for folder, file, header in includes
           if not is_allowed(folder, header)]
    bad += [f"{file} is in no folder of the list" for file in files
            if not any(path in file.parents for path in FOLDERS.values())]
    names = [file.name for file in files]
    bad += sorted({f"two files of src are called {name}" for name in names if names.count(name) > 1})
    print("\n".join(bad))
    sys.exit(1 if bad or len(includes) < 100 else 0)


if __name__ == "__main__":
    main()
