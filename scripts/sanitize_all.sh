#!/usr/bin/env bash
# The rooms that stand on LibTorch under the sanitizers, in a command of its own as it takes long:
#   sanitize_all.sh thread          comm, the loader's workers and the lanes, into build-tsan/
#   sanitize_all.sh address [ROOM]  the rooms up to ROOM (all of them by default), into build-asan/
# and both one after the other without an argument. LibTorch itself is not instrumented: what cannot be
# told because of that is left out by the options here and by tests/sanitize/thread.supp.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh all

# build PRESET FOLDER OPTION... -- TARGET...
build() {
  local preset=$1 folder=$2 options=("-DCMAKE_CXX_COMPILER=$(compiler)" "-DLEVIN_LIBTORCH=$(libtorch)")
  shift 2
  if command -v ccache >/dev/null; then
    options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ROOT/scripts/compile.sh")
    if ! "$(compiler)" --version | grep -q 'Free Software Foundation'; then
      options+=("-DCMAKE_CXX_FLAGS=-Xclang -fno-pch-timestamp")
    fi
  fi
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  cmake --preset "$preset" "${options[@]}" >"$ROOT/$folder.log" 2>&1 || {
    cat "$ROOT/$folder.log" >&2
    fail "CMake could not configure $folder/ (its message is above)"
  }
  mv "$ROOT/$folder.log" "$folder/configure.log"
  ninja -C "$folder" -j "$(cores)" "$@"
}

# run PROGRAM FILTER: a program that fails does not hide the next.
failed=()
run() {
  say "== $1 $2"
  "$1" --gtest_brief=1 --gtest_filter="$2" || failed+=("$1")
}

thread() {
  build tsan build-tsan -DLEVIN_UP_TO=graph -- comm_tests data_tests
  # LibTorch's own locks and counters are not seen, and what it writes is not looked at.
  export TSAN_OPTIONS="suppressions=$ROOT/tests/sanitize/thread.supp ignore_noninstrumented_modules=1 die_after_fork=0"
  # Threads within a process; what ranks of several processes share is not the thread sanitizer's. Left out
  # are tests that hold something to fractions of a second.
  run build-tsan/bin/comm_tests \
    'SerialQueue*:ShmGroup*:*Messages*:Store*:FlightRecorder*-*NamesTheRankThatNeverComes:*SendsToOneRankWithout*'
  run build-tsan/bin/data_tests '*Loader*:SampleRandom*'
}

address() {
  local up_to=${1:-trainer} room targets=()
  # Those before it, as CMakeLists.txt has them.
  for room in $(sed -n '/^set(LEVIN_ROOMS/,/)/p' CMakeLists.txt | tr -d '()' | sed 's/^set//; s/LEVIN_ROOMS//'); do
    if [[ -e tests/$room/CMakeLists.txt && ($room != launch || $up_to == trainer) ]]; then
      targets+=("${room}_tests")  # those of launch start the levin command, which stands on all rooms
    fi
    [[ $room != "$up_to" ]] || break
  done
  build asan build-asan "-DLEVIN_UP_TO=$([[ $up_to == trainer ]] || echo "$up_to")" -- "${targets[@]}"
  # LibTorch and GoogleTest do not mark what of a std::vector is in use, and LibTorch keeps what it makes.
  export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:allocator_may_return_null=1
  for room in "${targets[@]}"; do
    run "build-asan/bin/$room" "${GTEST_FILTER:-*}"
  done
}

case ${1:-all} in
  thread) thread ;;
  address) address "${@:2}" ;;
  all)
    thread
    address
    ;;
  *) fail "got '$1', wanted thread or address" ;;
esac
((${#failed[@]} == 0)) || fail "failed: ${failed[*]}"
