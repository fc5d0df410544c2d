#!/usr/bin/env bash
# `gpu_tests.sh FILTER [TOOL...]`: runs those tests of gpu_tests that GoogleTest's FILTER matches, under a tool where
# one is named (compute-sanitizer ...), for a row of scripts/gpu_checks.txt. Exit code 77: all of them were skipped,
# or the tool is not here. A filter that matches no test is a failure.
set -euo pipefail
filter=$1
shift
if (($# > 0)) && ! command -v "$1" >/dev/null; then
  echo "skipped: no $1 on this machine"
  exit 77
fi
report=$LEVIN_GPU_SCRATCH/gtest.json
code=0
"$@" "$LEVIN_GPU_BIN/gpu_tests" --gtest_filter="$filter" --gtest_brief=1 --gtest_output="json:$report" 2>&1 |
  tee "$LEVIN_GPU_SCRATCH/words" || code=$?
((code == 0)) || exit "$code"
count() { grep -c "\"result\": \"$1\"" "$report" || true; }
run=$(count COMPLETED) skipped=$(count SKIPPED)
if ((run + skipped == 0)); then
  echo "no test of gpu_tests matches $filter"
  exit 1
elif ((run == 0)); then
  reason=$(grep -m 1 -A 1 ': Skipped$' "$LEVIN_GPU_SCRATCH/words" | sed -n 2p)
  echo "skipped: ${reason:-all of its tests}"
  exit 77
fi
echo "$run tests passed, $skipped skipped"
