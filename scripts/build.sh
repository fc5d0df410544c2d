#!/usr/bin/env bash
# Configures build/ when that is needed and builds targets: `build.sh [--all|--bench] [target...]`. --all
# turns the tests on and --bench the benchmarks, and they stay on. LEVIN_CMAKE holds more options for CMake.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

all=OFF bench=OFF
if [[ ${1:-} == --bench ]] || grep -qs -- -DLEVIN_BUILD_BENCH=ON "$BUILD/.levin-options"; then bench=ON; fi
if [[ ${1:-} == --all ]] || grep -qs -- -DLEVIN_BUILD_TESTS=ON "$BUILD/.levin-options"; then all=ON; fi
if [[ ${1:-} == --all || ${1:-} == --bench ]]; then shift; fi

torch=$(libtorch)
[[ -n $torch ]] || fail "LibTorch is not here yet; run make setup"
options=(-G Ninja "-DCMAKE_CXX_COMPILER=$(compiler)" "-DLEVIN_LIBTORCH=$torch"
  -DLEVIN_BUILD_TESTS=$all -DLEVIN_BUILD_BENCH=$bench -DLEVIN_WERROR="$([[ -n ${CI:-} ]] && echo ON || echo OFF)")
# Named, so that a build/ from before it was fetched is configured again.
pjrt=${LEVIN_PJRT:-$DEPS/pjrt}
if [[ -n ${LEVIN_PJRT:-} || -e $pjrt/include/pjrt_c_api.h ]]; then options+=("-DLEVIN_PJRT=$pjrt"); fi

# With precompiled headers ccache wants to be told by g++ which one it took, and by clang that the time
# at which it was made does not matter.
if command -v ccache >/dev/null; then
  options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ROOT/scripts/compile.sh")
  if "$(compiler)" --version | grep -q 'Free Software Foundation'; then
    options+=(-DCMAKE_CXX_FLAGS=-fpch-preprocess)
  else
    options+=("-DCMAKE_CXX_FLAGS=-Xclang -fno-pch-timestamp")
  fi
fi
read -ra more <<<"${LEVIN_CMAKE:-}"
options+=(${more[@]+"${more[@]}"})

if [[ ! -e $BUILD/build.ninja || $(cat "$BUILD/.levin-options" 2>/dev/null) != "${options[*]}" ]]; then
  mkdir -p "$BUILD"
  rm -f "$BUILD/.levin-options"
  say "configuring build/"
  cmake -S . -B "$BUILD" "${options[@]}" >"$BUILD/configure.log" 2>&1 || {
    cat "$BUILD/configure.log" >&2
    fail "CMake could not configure build/ (its message is above)"
  }
  sed -n -e '/^-- levin:/p' -e '/^CMake Warning/,/^$/p' "$BUILD/configure.log"
  echo "${options[*]}" >"$BUILD/.levin-options"
fi
NINJA_STATUS=${NINJA_STATUS:-'[%f/%t, %es] '} ninja -C "$BUILD" -j "$(cores)" "$@"
