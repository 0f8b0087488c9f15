#!/usr/bin/env bash
# Installs, builds, runs every test: scripts/test.sh [CTEST OPTION...]. Ends with ctest's summary; exit code 0 only if
# all passed.
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
CDPATH= cd "$(dirname "$0")/.."

scripts/build.sh
cores=$(python3 scripts/lib/base/processors.py)
# One test more than cores: some tests are idle while a process ends.
ctest --test-dir build -C Release --output-on-failure --no-tests=error --parallel "$((cores + 1))" "$@"
