#!/usr/bin/env bash
# The address sanitizer over what can be had under it:
#   sanitize.sh            the rooms without LibTorch and their tests, with the undefined-behaviour sanitizer
#                          too, into build-sanitize/
#   sanitize.sh embedded   all of liblevin, by the program of tests/embedded that embeds it, into
#                          build-embedded/; takes as long as a build
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

rooms_without_libtorch() {
  local folder=$ROOT/build-sanitize
  configure tests/sanitize "$folder" "-DLEVIN_FMT_INCLUDE=$(libtorch)/include"
  ninja -C "$folder" -j "$(cores)"
  ctest --test-dir "$folder" -j "$(cores)" --output-on-failure
}

embedded() {
  local folder=$ROOT/build-embedded name failed=() scratch flags="-fsanitize=address -fno-omit-frame-pointer"
  if ! "$(compiler)" --version | grep -q 'Free Software Foundation'; then flags+=" -Xclang -fno-pch-timestamp"; fi
  configure . "$folder" "-DLEVIN_LIBTORCH=$(libtorch)" -DLEVIN_BUILD_TESTS=ON -DLEVIN_BUILD_EXAMPLES=OFF \
    -DCMAKE_BUILD_TYPE=Sanitized "-DCMAKE_CXX_FLAGS_SANITIZED=-O1 -g1" "-DCMAKE_CXX_FLAGS=$flags"
  ninja -C "$folder" -j "$(cores)" levin_embedded
  # LibTorch is not instrumented: it keeps what it makes, and its vectors do not mark what of them is in use.
  export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0
  scratch=$(mktemp -d)
  for name in $("$folder/bin/levin_embedded" --list); do
    mkdir "$scratch/$name"
    if "$folder/bin/levin_embedded" "$name" "$scratch/$name" >"$folder/$name.log" 2>&1; then
      say "embedded, $name: nothing found"
    else
      failed+=("$name")
      tail -n 60 "$folder/$name.log" >&2
    fi
  done
  rm -rf "$scratch"
  ((${#failed[@]} == 0)) || fail "found something: ${failed[*]} (words in build-embedded/NAME.log)"
}

scripts/setup.sh all
case ${1:-rooms} in
  rooms) rooms_without_libtorch ;;
  embedded) embedded ;;
  *) fail "got '$1', wanted embedded or nothing" ;;
esac
