#!/usr/bin/env bash
# Installs what is missing and builds build/: scripts/build.sh [TARGET...]
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
CDPATH= cd "$(dirname "$0")/.."

scripts/install_packages.sh
# CMake's own message explains little if a tree was moved or copied with its build folder.
made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' build/CMakeCache.txt 2>/dev/null || true)
if [ -n "$made_for" ] && [ "$made_for" != "$(pwd -P)" ]; then
  echo "[build] build/ was made for the tree at $made_for and cannot serve this one; remove it: rm -r build" >&2
  exit 1
fi
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build --parallel "$(python3 scripts/lib/base/processors.py)" ${1:+--target "$@"} -- --quiet
