#!/usr/bin/env bash
# Builds the fuzzers of tests/fuzz, and levin for them, by clang into build-fuzz/ and runs each for so many seconds
# (`fuzz.sh [SECONDS [NAME...]]`, 60 and all of them by default). What was found lies in build-fuzz/findings/;
# build-fuzz/corpus/ is kept, so that the next run goes on from there.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
length=${1:-60}
[[ $length =~ ^[1-9][0-9]*$ ]] || fail "got '$length' seconds, wanted a number: make fuzz SECONDS=60"
shift || true
folder=$ROOT/build-fuzz

# clang's libFuzzer is a package of its own on some systems: the one is taken that links.
clang() {
  local candidate
  for candidate in ${CXX:+"$CXX"} clang++ clang++-{20..14}; do
    command -v "$candidate" >/dev/null || continue
    if echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
      "$candidate" -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}
compiler=$(clang)
[[ -n $compiler ]] ||
  fail "no clang with libFuzzer; install clang and its runtime (Debian: clang-14 libclang-rt-14-dev), or name it by CXX="
scripts/setup.sh all

options=(-G Ninja "-DCMAKE_CXX_COMPILER=$compiler" "-DLEVIN_LIBTORCH=$(libtorch)" -DLEVIN_SANITIZE=fuzzer
  -DLEVIN_UP_TO=launch -DLEVIN_BUILD_TESTS=OFF -DCMAKE_BUILD_TYPE=Fuzzed "-DCMAKE_CXX_FLAGS_FUZZED=-O1"
  "-DCMAKE_CXX_FLAGS=-Xclang -fno-pch-timestamp")
if command -v ccache >/dev/null; then
  options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ROOT/scripts/compile.sh")
fi
if [[ ! -e $folder/build.ninja || $(cat "$folder/.levin-options" 2>/dev/null) != "${options[*]}" ]]; then
  mkdir -p "$folder"
  cmake -S . -B "$folder" "${options[@]}" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    fail "CMake could not configure build-fuzz/ (its message is above)"
  }
  echo "${options[*]}" >"$folder/.levin-options"
fi
names=("$@")
if ((${#names[@]} == 0)); then
  for file in tests/fuzz/fuzz_*.cpp; do
    name=${file##*/fuzz_}
    if [[ $name != seeds.cpp && $name != test.cpp ]]; then names+=("${name%.cpp}"); fi
  done
fi
ninja -C "$folder" -j "$(cores)" fuzz_seeds "${names[@]/#/fuzz_}"
"$folder/bin/fuzz_seeds" "$folder/corpus"

# LibTorch keeps what it makes; and an allocation that is too large is an error, not the end.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
mkdir -p "$folder/findings"
failed=()
for name in "${names[@]}"; do
  if "$folder/bin/fuzz_$name" "$folder/corpus/$name" -max_total_time="$length" -max_len=4096 -timeout=10 \
    -rss_limit_mb=2560 -artifact_prefix="$folder/findings/$name-" -print_final_stats=1 >"$folder/$name.log" 2>&1; then
    say "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$name.log") inputs, nothing found"
  else
    failed+=("$name")
    tail -n 40 "$folder/$name.log"
  fi
done
((${#failed[@]} == 0)) || fail "found something: ${failed[*]} (inputs in build-fuzz/findings/, words in build-fuzz/NAME.log)"
