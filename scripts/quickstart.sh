#!/usr/bin/env bash
# From a fresh machine to the picture: installs, builds, trains one deep model pre-norm and post-norm on the bundled
# corpus, compares the two and plots what happened in their layers. Run it again as often as you like.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
echo "building build/normscope"
cmake --build build --target normscope --parallel "$(nproc)" -- --quiet

pre=runs/quickstart/pre
post=runs/quickstart/post
build/normscope train configs/deep_pre.json --out "$pre" --overwrite
build/normscope train configs/deep_post.json --out "$post" --overwrite

echo
build/normscope compare "$pre" "$post"
echo
/usr/bin/python3 scripts/plot_layers.py "$pre" "$post" -o runs/quickstart/layers.png
/usr/bin/python3 scripts/plot_loss.py "$pre" "$post" -o runs/quickstart/loss.png
/usr/bin/python3 scripts/report.py "$pre" "$post" -o runs/quickstart/report.html
