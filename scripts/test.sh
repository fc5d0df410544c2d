#!/usr/bin/env bash
# Everything CI checks: the whole build, sanitizers, lint, the golden files, then ctest. A part that
# fails does not hide the next; the exit code is 1 when any failed.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

failed=()
part() {
  local name=$1 start=$SECONDS
  shift
  say "== $name"
  if "$@"; then
    say "== $name: passed, $((SECONDS - start)) s"
  else
    failed+=("$name")
    say "== $name: FAILED, $((SECONDS - start)) s"
  fi
}

start=$SECONDS
scripts/setup.sh all
scripts/build.sh --all
say "== built, $((SECONDS - start)) s"
# The peers' Python takes one core, for long.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
scripts/oracle.sh check >"$log" 2>&1 &
oracle=$!
wait_for_oracle() {
  local code=0
  wait "$oracle" || code=$?
  cat "$log"
  return "$code"
}
part sanitize scripts/sanitize.sh
part lint scripts/lint.sh
part oracle wait_for_oracle
part tests ctest --test-dir "$BUILD" -j "$(cores)" --output-on-failure "$@"
skipped=$(grep -hs '^\[  SKIPPED \] .*)$' "$BUILD/Testing/Temporary/LastTest.log" || true)
[[ -z $skipped ]] || say "tests that this machine could not run:"$'\n'"$skipped"

((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
