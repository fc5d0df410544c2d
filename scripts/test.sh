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

# beside NAME COMMAND...: what needs no build; `part NAME wait_for NAME` shows its words once it has ended. In a
# process group of its own and no session: between sessions Linux divides the processor evenly, whatever nice says.
work=$(mktemp -d)
declare -A processes=()
beside() {
  set -m
  "${@:2}" >"$work/$1" 2>&1 </dev/null &
  set +m
  processes[$1]=$!
}
wait_for() {
  local code=0
  wait "${processes[$1]}" || code=$?
  unset "processes[$1]"
  cat "$work/$1"
  return "$code"
}
leave() {
  local process
  for process in ${processes[@]+"${processes[@]}"}; do kill -- "-$process" 2>/dev/null || true; done
  rm -rf "$work"
}
trap leave EXIT

start=$SECONDS
scripts/setup.sh all
# The tests wait for the oracle's Python, and nobody for the rest, which takes what others leave idle.
beside sanitize nice -n 19 scripts/sanitize.sh
beside oracle bash -c "scripts/oracle.sh prepare && touch '$work/prepared' && nice -n 19 scripts/oracle.sh check known"
scripts/build.sh --all
say "== built, $((SECONDS - start)) s"
part lint scripts/lint.sh
# Tests without their Python would be skipped.
while [[ ! -e $work/prepared ]] && kill -0 "${processes[oracle]}" 2>/dev/null; do sleep 1; done
# tests/CMakeLists.txt says how many of these places a test takes.
part tests ctest --test-dir "$BUILD" -j "$((2 * $(cores) + 1))" --output-on-failure "$@"
part sanitize wait_for sanitize
part oracle wait_for oracle
skipped=$(grep -hs '^\[  SKIPPED \] .*)$' "$BUILD/Testing/Temporary/LastTest.log" || true)
[[ -z $skipped ]] || say "tests that this machine could not run:"$'\n'"$skipped"

((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
