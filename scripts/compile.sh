#!/usr/bin/env bash
# `compile.sh COMPILER ARGUMENT...`: the compiler by way of ccache, which takes up what another clone on
# this machine compiled.
#
# A precompiled header is put off by scripts/put_off_header.sh. scripts/precompile.sh, which ccache puts before
# the compiler, makes it.
#
# What -Werror makes of warnings is made here: the cache has the same object with it and without it, and says
# an object's warnings again.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
werror=""
for argument; do
  shift
  if [[ $argument == -Werror ]]; then werror=1; else set -- "$@" "$argument"; fi
done
if [[ " $* " == *" -emit-pch "* ]]; then exec "$root/scripts/put_off_header.sh" "$@"; fi
output=""
for ((i = 1; i < $#; i++)); do
  if [[ ${!i} == -o ]]; then output=${@:i+1:1}; fi
done

# run COMMAND...
run() {
  if [[ -z $werror ]]; then exec "$@"; fi
  local words status=0
  words=$("$@" 2>&1) || status=$?
  [[ -z $words ]] || printf '%s\n' "$words" >&2
  if ((status == 0)) && [[ $words == *"warning: "* ]]; then
    printf 'warnings are errors here\n' >&2
    rm -f "$output"
    status=1
  fi
  exit "$status"
}

# __TIME__ and the headers' times are of no account, and the build folder's name is in no object.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
export CCACHE_PREFIX=$root/scripts/precompile.sh CCACHE_PREFIX_CPP=$root/scripts/precompile.sh
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
run ccache "$@"
