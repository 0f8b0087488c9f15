#!/usr/bin/env bash
# Repeats published results on this machine: runs the experiments of configs/papers and compares their numbers with
# the values expected from papers and laws: scripts/reproduce.sh [NAME...] [--quick] [--write-page] [--out DIR]
# Without NAME it runs all. Given again, it uses what is there; delete runs/papers/NAME to repeat an experiment. All
# options, and what is used again: scripts/reproduce.py --help
set -euo pipefail
root=$(dirname "$0")/..
names=$(sed -n 's/^<!-- results:\(.*\) -->$/\1/p' "$root"/configs/papers/README.md)
if [[ ${1:-} = -h || ${1:-} = --help ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
  printf '\nNAMEs:\n'
  paste -sd' ' <<<"$names" | fold -sw 100
  exit
fi
before=
for word in "$@"; do  # a wrong name is an error before the build
  if [[ $word != -* && $before != --out ]] && ! grep -qxF -- "$word" <<<"$names"; then
    echo "[reproduce] no experiment '$word'; there are $(paste -sd, <<<"$names" | sed 's/,/, /g')" >&2
    exit 2
  fi
  before=$word
done

[[ " $* " = *" --redraw "* ]] || "$root"/scripts/build.sh normscope  # kept results need no program
exec /usr/bin/python3 "$root"/scripts/reproduce.py "$@"
