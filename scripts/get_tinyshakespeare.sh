#!/usr/bin/env bash
# Downloads the tiny Shakespeare corpus (1.1 MB) to data/tinyshakespeare.txt.
# Nothing is left there that does not have the right checksum.
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
CDPATH= cd "$(dirname "$0")/.."

target=data/tinyshakespeare.txt
url=https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
sum=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed

if sha256sum --check --status <<<"$sum  $target" 2>/dev/null; then
  echo "already there: $target"
  exit 0
fi
temporary=$(mktemp "$target.XXXXXX")
trap 'rm -f "$temporary"' EXIT
if ! curl --fail --silent --show-error --location --output "$temporary" "$url" &&
   ! wget --no-verbose --output-document="$temporary" "$url"; then
  echo "[get_tinyshakespeare] could not download $url with curl or wget; put that file at $target" >&2
  exit 1
fi
if ! sha256sum --check --status <<<"$sum  $temporary"; then
  echo "[get_tinyshakespeare] the download from $url is not the corpus (its sha256 differs); it is not kept" >&2
  exit 1
fi
chmod 644 "$temporary"
mv "$temporary" "$target"
echo "wrote $target"
