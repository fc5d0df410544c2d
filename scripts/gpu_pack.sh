#!/usr/bin/env bash
# Gathers what `make gpu-check` builds with and a GPU machine may lack into .gpu_pack/: headers of the libraries
# that levin uses, and GoogleTest's sources. With it in the checkout, that machine needs no package and no
# network: `gpu_pack.sh [FOLDER]`. `gpu_pack.sh --check [FOLDER]` says what is wrong with a pack that is there.
#
# .gpu_pack/include/      headers
# .gpu_pack/cuda/         CUDA's own headers, for a machine without a toolkit
# .gpu_pack/googletest/   GoogleTest's and GoogleMock's sources
# .gpu_pack/MANIFEST      a SHA-256 for each file, which make gpu-check holds the files against
# .gpu_pack/LIBRARIES     each library's checksum, as scripts/gpu_pack.sha256 has them
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
limit_mb=50 only_check=""
if [[ ${1:-} == --check ]]; then
  only_check=1
  shift
fi
pack=${1:-$ROOT/.gpu_pack}

# check FOLDER: whether its files are those of its manifest, no more, no fewer, unchanged.
check() {
  local folder=$1 listed there
  [[ -e $folder/MANIFEST ]] || fail "no pack in ${folder#"$ROOT"/}; run make gpu-pack on a machine that make setup has made ready"
  listed=$(sed 's/^[0-9a-f]*  //' "$folder/MANIFEST" | LC_ALL=C sort)
  there=$(cd "$folder" && find . -type f ! -name MANIFEST | LC_ALL=C sort)
  [[ $listed == "$there" ]] ||
    fail "the pack holds other files than its manifest lists; run make gpu-pack again. They differ in:"$'\n'"$(
      diff <(echo "$listed") <(echo "$there") | grep '^[<>]' | head -n 5)"
  (cd "$folder" && sha256sum --quiet -c MANIFEST) >&2 ||
    fail "files of the pack are not as they were packed (named above); run make gpu-pack again"
}

# headers_of INCLUDE...: the files that the compiler reads for these headers.
headers_of() {
  printf '#include <%s>\n' "$@" | "$(compiler)" -std=c++20 -DXXH_INLINE_ALL -M -x c++ - |
    tr -d '\\' | tr ' ' '\n' | grep '^/'
}
# folder_of HEADER: the include folder that it lies in.
folder_of() {
  local file
  file=$(headers_of "$1" | grep -F -m 1 "/$1")
  printf '%s' "${file%"/$1"}"
}

# pack_folder HEADER NAME: all headers of the library's own folder NAME.
pack_folder() {
  local from
  from=$(folder_of "$1")
  cp -rL "$from/$2" "$partial/include/$2"
}
# pack_read NAME HEADER...: of the include folder those files that HEADERs read and whose paths begin with NAME.
pack_read() {
  local from file name=$1
  shift
  from=$(folder_of "$1")
  while read -r file; do
    file=${file#"$from/"}
    if [[ $file == "$name"* ]]; then
      mkdir -p "$partial/include/$(dirname "$file")"
      cp -L "$from/$file" "$partial/include/$file"
    fi
  done < <(headers_of "$@")
}
# zlib's second header lies in a folder of the processor's on Debian.
pack_zlib() {
  local file
  for file in $(headers_of zlib.h | grep -E '/(zlib|zconf)\.h$'); do cp -L "$file" "$partial/include/"; done
}
# Beside pip's packages of torch; cccl's folders but nv/ are read by CUDA's own compiler alone.
pack_cuda() {
  if [[ -e $DEPS/cuda/include/nv/target ]]; then
    mkdir -p "$partial/cuda"
    cp -rL "$DEPS/cuda/include" "$partial/cuda/include"
    rm -rf "$partial/cuda/include/cccl"
    note CUDA cuda
  else
    say "warning: no CUDA headers in .deps/cuda, which make setup fetches: the GPU machine needs those of a toolkit"
  fi
}
pack_googletest() {
  local sources=${LEVIN_GOOGLETEST:-/usr/src/googletest} part
  [[ -e $sources/googlemock/src/gmock-all.cc ]] ||
    fail "no googlemock/src/gmock-all.cc in $sources; install googletest (Debian, Ubuntu), or give LEVIN_GOOGLETEST=DIR with GoogleTest's sources"
  for part in googletest googlemock; do
    mkdir -p "$partial/googletest/$part"
    cp -rL "$sources/$part/include" "$sources/$part/src" "$partial/googletest/$part/"
  done
}

# checksum PATH...: one of all files below the paths, by their names and contents.
checksum() { (cd "$partial" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -d' ' -f1; }
# note NAME PATH...: a line of LIBRARIES, and a word where scripts/gpu_pack.sha256 has another checksum.
note() {
  local name=$1 sum
  shift
  sum=$(cd "$partial" && checksum "$@")
  echo "$name $sum" >>"$partial/LIBRARIES"
  grep -qxF "$name $sum" scripts/gpu_pack.sha256 ||
    say "warning: $name is not the version that levin is tested with, that of Debian 12 (scripts/gpu_pack.sha256); it is packed as it is here"
}

if [[ -n $only_check ]]; then
  check "$pack"
  say "the pack is whole: $(wc -l <"$pack/MANIFEST") files, $(du -sm "$pack" | cut -f1) MB"
  exit
fi
absent=$(absent_headers "${library_headers[@]}" "${test_headers[@]}" | cut -d'|' -f3 | paste -sd ,)
[[ -z $absent ]] || fail "these are missing: $absent; run make setup"
partial=$pack.partial
rm -rf "$partial"
mkdir -p "$partial/include"
trap 'rm -rf "$partial"' EXIT
pack_folder CLI/CLI.hpp CLI
note CLI11 include/CLI
pack_folder nlohmann/json.hpp nlohmann
note nlohmann-json include/nlohmann
pack_folder toml++/toml.h toml++
note toml++ include/toml++
pack_folder protozero/pbf_writer.hpp protozero
note protozero include/protozero
# Boost is 160 MB: what its CRC reads, and all of config, which differs from compiler to compiler.
pack_read boost/ boost/crc.hpp
cp -rL "$(folder_of boost/crc.hpp)/boost/config" "$partial/include/boost/"
note Boost.CRC include/boost
pack_read xxh xxhash.h
note xxHash include/xxhash.h
pack_zlib
note zlib include/zlib.h include/zconf.h
pack_googletest
note GoogleTest googletest
pack_cuda

(cd "$partial" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$pack.manifest"
mv "$pack.manifest" "$partial/MANIFEST"
size_mb=$(du -sm "$partial" | cut -f1)
((size_mb <= limit_mb)) || fail "the pack takes $size_mb MB, more than $limit_mb"
check "$partial"
rm -rf "$pack"
mv "$partial" "$pack"
say "packed into ${pack#"$ROOT"/}: $(wc -l <"$pack/MANIFEST") files, $size_mb MB; carry it with the checkout to the GPU machine and run make gpu-check there"
