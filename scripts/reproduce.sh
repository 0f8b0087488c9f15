#!/usr/bin/env bash
# Redraws published results on this machine: runs configs/papers and compares what comes out with what is expected.
# scripts/reproduce.sh [NAME...] [--quick] [--write-page] [--out DIR]; stopped and given again, it goes on.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build --target normscope --parallel "$(nproc)" >/dev/null
exec /usr/bin/python3 scripts/reproduce.py "$@"
