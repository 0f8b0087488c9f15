#!/usr/bin/env bash
# Installs what building, testing and plotting need, on Debian and Ubuntu; does nothing where all of it is there.
# Arguments are further packages.
set -euo pipefail

packages=(g++ cmake make libopenblas-openmp-dev libcxxopts-dev nlohmann-json3-dev doctest-dev
          python3 python3-numpy python3-matplotlib "$@")

missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "[install] not a Debian or Ubuntu system; install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "[install] missing packages, and neither root nor sudo; ask for: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
