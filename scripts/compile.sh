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
  # CMake includes the sources of a unity source by absolute paths, because of which ccache would have to
  # preprocess it in every clone: it is given one that names them from the root.
  source=${!#}
  if [[ $source == "$root"/*/Unity/unity_*.cxx && " $* " == *" -I$root "* ]]; then
    from_root=${source%.cxx}.from_root.cxx
    sed "s|^#include \"$root/|#include \"|" "$source" >"$from_root.$$"
    mv "$from_root.$$" "$from_root"
    set -- "${@:1:$#-1}" "$from_root"
  fi
  # ccache makes paths relative to the build folder. In objects they begin at the root.
  if [[ $PWD == "$root"/* ]]; then
    up=../ below=${PWD#"$root"/}
    while [[ $below == */* ]]; do up+=../ below=${below#*/}; done
    set -- "$1" "-ffile-prefix-map=$up=" "${@:2}"
  fi
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
  for file in "${files[@]}"; do
    case $file in
      # The header that CMake writes is a list of absolute paths.
      *cmake_pch.hxx | *cmake_pch.hxx.cxx) sed "s|$root|.|g" "$file" ;;
      *.pch) cat "$file.sum" ;;  # which this one continues
      *) cat "$file" ;;
    esac
  done
} | sha256sum >"$output.sum"
