#!/usr/bin/env bash
# Fuzzes the readers of files: libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, one target after the
# other, 10^7 inputs each. Prints inputs and findings; exit code 1 if anything was found. What was learnt stays in
# build-fuzz/corpus, and the next call begins with it; inputs that break something are left in build-fuzz/findings.
#   tests/fuzz/fuzz.sh [-n INPUTS] [-t SECONDS] [TARGET...]      TARGET: config safetensors utf8
set -euo pipefail
case ${1:-} in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac
CDPATH= cd "$(dirname "$0")/../.."

inputs=10000000
seconds=0 # a target; 0: no limit
usage="usage: tests/fuzz/fuzz.sh [-n INPUTS] [-t SECONDS] [TARGET...]"
while getopts "n:t:h" option; do
  case $option in
    n) inputs=$OPTARG ;;
    t) seconds=$OPTARG ;;
    h) echo "$usage" && exit 0 ;;
    *) echo "$usage" >&2 && exit 2 ;;
  esac
done
shift $((OPTIND - 1))
targets=("$@")
if [ $# -eq 0 ]; then
  for source in tests/fuzz/fuzz_*.cpp; do
    name=$(basename "$source" .cpp)
    targets+=("${name#fuzz_}")
  done
fi

# Clang has libFuzzer; libomp is what the project asks of it.
scripts/install_packages.sh clang libomp-dev
cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DNORMSCOPE_FUZZ=ON >/dev/null
cmake --build build-fuzz --target fuzz --parallel "$(nproc)" -- --quiet

export ASAN_OPTIONS=quarantine_size_mb=4 # small, so that the memory in use stays in the caches
found=0
for target in "${targets[@]}"; do
  corpus=build-fuzz/corpus/$target
  findings=build-fuzz/findings/$target-
  log=build-fuzz/$target.log
  mkdir -p "$corpus" build-fuzz/findings
  status=0
  NORMSCOPE_FUZZ_SEEDS=$corpus build-fuzz/tests/fuzz/fuzz_"$target" -runs="$inputs" -max_total_time="$seconds" \
    -max_len=2048 -timeout=20 -malloc_limit_mb=64 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings" "$corpus" >"$log" 2>&1 || status=$?
  ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  printf '%-12s %12s inputs, %s\n' "$target" "${ran:-0}" \
    "$([ $status -eq 0 ] && echo "nothing found" || echo "FOUND, see $log and ${findings}*")"
  [ $status -eq 0 ] || found=1
done
exit $found
