#!/usr/bin/env bash
# From a fresh machine to the picture: installs, builds, trains one deep model pre-norm and post-norm on the bundled
# corpus, compares the two and plots their layers. It can be run again.
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
CDPATH= cd "$(dirname "$0")/.."

echo "building build/normscope"
scripts/build.sh normscope

pre=runs/quickstart/pre
post=runs/quickstart/post
build/normscope train configs/deep_pre.json --set checkpoint.keep_every=300 --out "$pre" --overwrite
build/normscope train configs/deep_post.json --set checkpoint.keep_every=300 --out "$post" --overwrite

echo
/usr/bin/python3 scripts/compare.py "$pre" "$post"
echo
/usr/bin/python3 scripts/plot.py layers "$pre" "$post"
/usr/bin/python3 scripts/plot.py loss "$pre" "$post"
/usr/bin/python3 scripts/report.py "$pre" "$post"
