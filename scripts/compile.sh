#!/usr/bin/env bash
# `compile.sh COMPILER ARGUMENT...`: the compiler by way of ccache, which takes up what another clone on
# this machine compiled. A precompiled header of clang names the files it was made of, so that each clone
# makes its own; beside it goes a sum of what is in them, by which ccache knows it (CCACHE_PCH_EXTSUM).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ " $* " != *" -emit-pch "* ]]; then
  # __TIME__ and the headers' times are of no account, and the build folder's name is in no object.
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
  export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  exec ccache "$@"
fi

"$@"
output="" list="" arguments=("$@")
for ((i = 0; i < $#; i++)); do
  case ${arguments[i]} in
    -o) output=${arguments[i + 1]} ;;
    -MF) list=${arguments[i + 1]} ;;
  esac
done
read -ra files <<<"$(sed -e 's/^[^:]*: *//' -e 's/\\$//' "$list" | tr '\n' ' ')"
{
  echo "${arguments[*]//$root/.}"
  # The header that CMake writes is a list of absolute paths.
  for file in "${files[@]}"; do
    if [[ $file == *cmake_pch.hxx ]]; then sed "s|$root|.|g" "$file"; else cat "$file"; fi
  done
} | sha256sum >"$output.sum"
