#!/usr/bin/env bash
# Builds the rooms without LibTorch, and their tests, with the address and undefined-behaviour
# sanitizers into build-sanitize/ and runs them.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh all
folder=$ROOT/build-sanitize

options=(-G Ninja "-DCMAKE_CXX_COMPILER=$(compiler)" "-DLEVIN_FMT_INCLUDE=$(libtorch)/include")
if command -v ccache >/dev/null; then
  options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ROOT/scripts/compile.sh")
fi
if [[ ! -e $folder/build.ninja || $(cat "$folder/.levin-options" 2>/dev/null) != "${options[*]}" ]]; then
  mkdir -p "$folder"
  rm -f "$folder/.levin-options"
  cmake -S tests/sanitize -B "$folder" "${options[@]}" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    fail "CMake could not configure build-sanitize/ (its message is above)"
  }
  echo "${options[*]}" >"$folder/.levin-options"
fi
ninja -C "$folder" -j "$(cores)"
ctest --test-dir "$folder" -j "$(cores)" --output-on-failure
