#!/usr/bin/env bash
# Redraws published results on this machine: runs configs/papers and compares what comes out with what is expected.
# scripts/reproduce.sh [NAME...] [--quick] [--write-page] [--out DIR]; stopped and given again, it goes on.
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
cd "$(dirname "$0")/.."

scripts/build.sh normscope
exec /usr/bin/python3 scripts/reproduce.py "$@"
