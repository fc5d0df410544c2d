#!/usr/bin/env bash
# `precompile.sh COMPILER ARGUMENT...`: the compiler, after the precompiled headers that the arguments name were
# made. compile.sh leaves an empty file in the place of one, and beside it the command that makes it. A header
# keeps the time of that file: no object is older than it.
set -euo pipefail
before=("" "" "$@")  # -include-pch -Xclang FILE
for header; do
  is_included=${before[0]}
  before=("${before[@]:1}")
  [[ $is_included == -include-pch && -e $header.later ]] || continue
  exec 9>"$header.lock"
  flock 9
  if [[ -e $header.later ]]; then
    eval "'$0' $(cat "$header.later")" >&2
    touch -r "$header.later" "$header"
    rm "$header.later"
  fi
  exec 9>&-
done
exec "$@"
