#!/usr/bin/python3
"""Holds the directions in which folders of src include each other, so that parts stay apart."""

import os
import re
import sys

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")

# folder: what it may include, beside itself and the standard library.
ALLOWED = {
    "core": set(),
    "kernels": {"core"},
    "autograd": {"core"},
    "io": {"core"},
    "data": {"core", "io"},
    "ops": {"core", "kernels", "autograd"},
    "model": {"core", "kernels", "autograd", "ops"},
    "config": {"core", "kernels", "model", "io"},
    "logs": {"core", "kernels", "autograd", "model", "config", "io"},
    "train": {"core", "kernels", "autograd", "ops", "model", "config", "data", "io", "logs"},
    "check": {"core", "kernels", "autograd", "ops", "model", "config", "data", "logs", "train"},
    "cli": {"core", "kernels", "autograd", "ops", "model", "config", "data", "io", "logs", "train", "check"},
}
# Of kernels, these include nothing else: statistics of tensors, and their names; how products are computed.
KERNELS_FOR = {"logs": {"kernels/pointwise.h", "kernels/simd.h", "kernels/gemm/gemm.h"}, "config": {"kernels/gemm/gemm.h"}}
INNER = ("kernels/reference/", "kernels/simd/", "kernels/isa/", "kernels/gemm/kernel.h", "kernels/gemm/schedule.h",
         "kernels/gemm/microkernel.h")  # nobody's business outside kernels
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')


def problem(folder, header, exists):
    """What is wrong with a file of `folder` including `header`; None if nothing is."""
    target = header.split("/")[0]
    if "/" not in header or not exists:
        return "name headers from src, as in core/types.h"
    if folder not in ALLOWED:
        return f"src/{folder} is not in the table of {os.path.basename(__file__)}"
    if target == folder:
        return None
    if target not in ALLOWED[folder]:
        return f"{folder} may include {', '.join(sorted(ALLOWED[folder])) or 'nothing but itself'}"
    if header.startswith(INNER):
        return "the insides of kernels stay inside"
    if target == "kernels" and header not in KERNELS_FOR.get(folder, {header}):
        return f"{folder} may include of kernels only {', '.join(sorted(KERNELS_FOR[folder]))}"
    return None


def check(source):
    """(lines that break the rules, number of includes seen)."""
    bad, seen = [], 0
    for root, folders, files in os.walk(source):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(root, name)
            folder = os.path.relpath(path, source).split(os.sep)[0]
            if not name.endswith((".h", ".cpp")):
                continue
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, start=1):
                    match = INCLUDE.match(line)
                    if not match:
                        continue
                    seen += 1
                    wrong = problem(folder, match[1], os.path.exists(os.path.join(source, match[1])))
                    if wrong:
                        bad.append(f"{os.path.relpath(path, os.path.dirname(source))}:{number}: {line.strip()}  ({wrong})")
    return bad, seen


def main():
    # The rules can fail: a model that reads logs, an op that uses a kernel's insides.
    assert problem("model", "logs/sites.h", True)
    assert problem("ops", "kernels/simd/rows.h", True)
    assert problem("logs", "kernels/attention.h", True)
    assert problem("autograd", "kernels/pointwise.h", True)
    assert problem("train", "cli/commands.h", True)
    assert problem("kernels", "autograd/tape.h", True)
    assert problem("ops", "kernels/rows.h", True) is None
    bad, seen = check(SOURCE)
    print("\n".join(bad))
    if seen < 100:
        sys.exit(f"only {seen} includes found in {SOURCE}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
