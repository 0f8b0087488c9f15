#!/usr/bin/env bash
# Fuzzes the readers of files: libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, one target after the
# other, INPUTS (10^7) each. Prints inputs and findings; exit code 1 if anything was found. What was learnt stays in
# build-fuzz/corpus, and the next call begins with it; inputs that break something are left in build-fuzz/findings.
#   tests/fuzz/fuzz.sh [INPUTS]
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
CDPATH= cd "$(dirname "$0")/../.."

# Clang has libFuzzer; libomp is what the project asks of it.
scripts/install_packages.sh clang libomp-dev
cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DNORMSCOPE_FUZZ=ON >/dev/null
cmake --build build-fuzz --target fuzz --parallel "$(nproc)" -- --quiet

export ASAN_OPTIONS=quarantine_size_mb=4 # small, so that the memory in use stays in the caches
found=0
for source in tests/fuzz/fuzz_*.cpp; do
  target=$(basename "$source" .cpp)
  corpus=build-fuzz/corpus/${target#fuzz_}
  findings=build-fuzz/findings/$target-
  log=build-fuzz/$target.log
  mkdir -p "$corpus" build-fuzz/findings
  status=0
  NORMSCOPE_FUZZ_SEEDS=$corpus build-fuzz/tests/fuzz/"$target" -runs="${1:-10000000}" \
    -max_len=2048 -timeout=20 -malloc_limit_mb=64 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings" "$corpus" >"$log" 2>&1 || status=$?
  ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  printf '%-16s %12s inputs, %s\n' "$target" "${ran:-0}" \
    "$([ $status -eq 0 ] && echo "nothing found" || echo "FOUND, see $log and ${findings}*")"
  [ $status -eq 0 ] || found=1
done
exit $found
