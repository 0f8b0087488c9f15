#!/usr/bin/env bash
# Installs, builds, runs every test. Ends with ctest's summary; exit code 0 only if all passed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build --parallel "$(nproc)" -- --quiet
cd build
ctest --output-on-failure --no-tests=error "$@"
