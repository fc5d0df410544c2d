#!/usr/bin/env bash
# `put_off_header.sh COMPILER ARGUMENT...`, arguments that precompile a header for clang: leaves an empty file in
# its place, the command that makes it (.later), and a sum of what goes into it (.sum).
#
# A precompiled header of clang names the files it was made of, so that each clone makes its own. ccache knows it by
# the sum (CCACHE_PCH_EXTSUM): where all objects are in the cache, nothing reads the header itself.
# scripts/precompile.sh makes it once something has to be compiled.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
output="" list=""
for ((i = 1; i < $#; i++)); do
  case ${!i} in
    -o) output=${@:i+1:1} ;;
    -MF) list=${@:i+1:1} ;;
  esac
done

# The header's files, by the preprocessor alone. Of one that continues another they are those of both.
arguments=()
for argument; do
  case $argument in
    -emit-pch) argument=-Eonly ;;
    -include-pch) argument=-include ;;
    "$output") ;;
    *.pch) argument=${argument%.pch} ;;
  esac
  arguments+=("$argument")
done
"${arguments[@]}"
read -ra files <<<"$(sed -e 's/^[^:]*: *//' -e 's/\\$//' "$list" | tr '\n' ' ')"
# The headers that CMake writes are lists of absolute paths.
for ((i = 0; i < ${#files[@]}; i++)); do
  if [[ ${files[i]} == *cmake_pch.hxx || ${files[i]} == *cmake_pch.hxx.cxx ]]; then
    sed "s|$root|.|g" "${files[i]}" >"$output.list.$i"
    files[i]=$output.list.$i
  fi
done
{
  echo "${*//$root/.}"
  printf '%s\0' "${files[@]}" | xargs -0 cat
} | sha256sum >"$output.sum"
rm -f "$output".list.*
printf '%q ' "$@" >"$output.later"
: >"$output"
touch -r "$output" "$output.later"
