#!/usr/bin/env bash
# Puts the tiny Shakespeare corpus at data/tinyshakespeare.txt: a copy that is at hand, or a download (1.1 MB).
# Nothing is left there that does not have the right checksum.
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=$root/data/tinyshakespeare.txt
at_hand=$root/../shared/data/tinyshakespeare.txt
url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
sha256=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed

is_right() { [[ -f $1 && $(sha256sum <"$1") == "$sha256 "* ]]; }

download() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --connect-timeout 20 --max-time 300 --output "$1" "$url"
  elif command -v wget >/dev/null; then
    wget --no-verbose --timeout=20 --tries=2 --output-document="$1" "$url"
  elif command -v python3 >/dev/null; then
    python3 - "$url" "$1" <<'PYTHON'
import shutil
import sys
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
except OSError as error:
    sys.exit(f"python3: {error}")
PYTHON
  else
    echo "[get_tinyshakespeare] needs curl, wget or python3" >&2
    return 1
  fi
}

if is_right "$target"; then
  echo "already there: data/tinyshakespeare.txt"
  exit 0
fi

temporary=$(mktemp "$target.XXXXXX")
trap 'rm -f "$temporary"' EXIT

if is_right "$at_hand"; then
  cp "$at_hand" "$temporary"
elif ! download "$temporary"; then
  echo "[get_tinyshakespeare] could not download $url; without a network, put that file at $target" >&2
  exit 1
fi
if ! is_right "$temporary"; then
  echo "[get_tinyshakespeare] what came from $url is not the corpus (sha256 differs); nothing was kept" >&2
  exit 1
fi
chmod 644 "$temporary"
mv "$temporary" "$target"
echo "wrote data/tinyshakespeare.txt"
