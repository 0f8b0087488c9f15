#!/usr/bin/python3
"""The directions in which folders of src include each other, so that parts stay apart; and no two
files have one name."""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
# The folders that each folder may include, beside itself and the standard library.
ALLOWED = {
    "core": "", "kernels": "core", "autograd": "core", "io": "core", "data": "core io", "ops": "core kernels autograd",
    "model": "core kernels autograd ops", "config": "core kernels model io",
    "logs": "core kernels autograd model config io", "train": "core kernels autograd ops model config data io logs",
    "check": "core kernels autograd ops model config data logs train",
    "cli": "core kernels autograd ops model config data io logs train check"}
# The only headers of kernels for these folders: statistics of tensors, names, the ways to compute products.
KERNELS_FOR = {"logs": ("kernels/pointwise.h", "kernels/simd.h"),
               "config": ("kernels/gemm/gemm.h",)}
# Headers that are private to kernels.
PRIVATE = ("kernels/reference/", "kernels/simd/", "kernels/isa/", "kernels/gemm/kernel.h", "kernels/gemm/schedule.h",
           "kernels/gemm/microkernel.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def is_allowed(folder, header):
    """Whether a file of `folder` may include a header, which is named from src, as in core/types.h."""
    target = header.split("/")[0]
    if not (SOURCE / header).exists() or folder not in ALLOWED:
        return False
    return target == folder or (target in ALLOWED[folder].split() and not header.startswith(PRIVATE)
                                and (target != "kernels" or header in KERNELS_FOR.get(folder, (header,))))


def main():
    for folder, header in (("model", "logs/site_stats.h"), ("ops", "kernels/simd/norm_loops.h"),
                           ("logs", "kernels/attention.h"), ("autograd", "kernels/pointwise.h"),
                           ("train", "cli/commands.h"), ("core", "types.h")):
        assert not is_allowed(folder, header), (folder, header)  # the rules can fail
    files = [file for file in sorted(SOURCE.rglob("*")) if file.suffix in (".h", ".cpp")]
    includes = [(file.relative_to(SOURCE), header)
                for file in files for header in INCLUDE.findall(file.read_text(encoding="utf-8"))]
    bad = [f"src/{file}: {header}" for file, header in includes if not is_allowed(file.parts[0], header)]
    print("\n".join(bad))
    names = [file.name for file in files]
    twice = sorted({name for name in names if names.count(name) > 1})
    print("".join(f"two files of src are called {name}\n" for name in twice), end="")
    sys.exit(1 if bad or twice or len(includes) < 100 else 0)


if __name__ == "__main__":
    main()
