#!/usr/bin/env bash
# Installs the packages for building, testing and plotting on Debian and Ubuntu, unless all are installed. On other
# systems it prints what to install, unless the tools are there.
# Arguments are further packages: scripts/install_packages.sh [PACKAGE...]
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

packages=(g++ cmake make libopenblas-openmp-dev libcxxopts-dev nlohmann-json3-dev doctest-dev
          python3 python3-numpy python3-matplotlib "$@")

if ! command -v apt-get >/dev/null; then  # CMake reports a missing library
  if type c++ cmake make python3 >/dev/null 2>&1 && python3 -c "import numpy, matplotlib" 2>/dev/null; then exit 0; fi
  echo "[install] no apt-get here; install a C++20 compiler, CMake, make, OpenBLAS, OpenMP, cxxopts, nlohmann_json," \
       "doctest, Python 3, numpy, matplotlib${*:+, $*}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "[install] missing packages, and neither root nor sudo; ask for: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing ${missing[*]}"

# Another apt, such as the nightly update, may hold a lock for minutes; apt itself waits for the lock of the packages
# only.
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
apt() {
  local tries=60
  until "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq "$@" 2>"$errors"; do
    if ! grep -q "Could not get lock" "$errors" || [ $((tries -= 1)) -eq 0 ]; then
      cat "$errors" >&2
      return 1
    fi
    [ $tries -lt 59 ] || echo "another program installs packages; waiting for it" >&2
    sleep "${NORMSCOPE_APT_WAIT:-10}"
  done
}
apt update
apt install -y --no-install-recommends "${missing[@]}"
