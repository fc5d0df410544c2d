#!/usr/bin/env bash
# The benchmarks of hot paths, then the same work in levin and in its Python peers.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh all
scripts/build.sh --bench

for program in "$BUILD"/bin/bench_*; do
  if [[ -x $program ]]; then
    say "== $(basename "$program")"
    "$program"
  fi
done

WITH_TORCH=1 python_environment bench bench/peers/requirements.txt
"$DEPS/bench/bin/python" bench/peers/run.py --levin-bin "$BUILD/bin" "$@"
