# Sourced by the scripts beside it: where things are, how they speak, which LibTorch is used.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
DEPS=$ROOT/.deps
BUILD=$ROOT/build
# shellcheck source=scripts/versions.env
source "$ROOT/scripts/versions.env"

# Nothing is written outside the checkout but what all clones share: ccache's folder (CCACHE_DIR), and
# levin/ in the user's folder of caches (XDG_CACHE_HOME). Python compiles what it imports, not all that pip
# brings: `make demo` imports nothing.
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_COMPILE=0
export PYTHONPYCACHEPREFIX=$DEPS/pycache
export PIP_ROOT_USER_ACTION=ignore

say() { printf 'levin: %s\n' "$*"; }
fail() {
  printf 'levin: %s\n' "$*" >&2
  exit 1
}

# As many compilers at once as there are cores, and no more than memory feeds (1.5 GB each).
cores() {
  local count memory
  count=$(nproc 2>/dev/null || echo 2)
  memory=$(awk '/MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || echo "$count")
  ((memory < count)) && count=$memory
  echo $((count > 0 ? count : 1))
}

# CXX where it is set; else clang of version 16 or newer, which makes templates once, in the precompiled
# header (levin is built in 60 % of g++'s time); else g++.
compiler() {
  local candidate
  if [[ -n ${CXX:-} ]]; then
    command -v "$CXX" && return
  fi
  for candidate in clang++-{22..16} clang++; do
    if command -v "$candidate" >/dev/null && (($("$candidate" -dumpversion | cut -d. -f1) >= 16)); then
      command -v "$candidate" && return
    fi
  done
  command -v g++ || command -v clang++ || command -v c++ || true
}

at_least() { printf '%s\n' "$1" "$2" | sort -CV; }  # version $1 <= version $2
cmake_version() { cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p'; }

# What levin's sources include of other libraries, and its tests: header, Debian's package, what it is.
# shellcheck disable=SC2034
library_headers=(
  "zlib.h|zlib1g-dev|zlib"
  "CLI/CLI.hpp|libcli11-dev|CLI11"
  "nlohmann/json.hpp|nlohmann-json3-dev|nlohmann-json"
  "toml++/toml.h|libtomlplusplus-dev|toml++"
  "protozero/pbf_writer.hpp|libprotozero-dev|protozero"
  "boost/crc.hpp|libboost-dev|Boost headers"
  "xxhash.h|libxxhash-dev|xxHash"
)
# For image files. Without them levin is built without these formats.
# shellcheck disable=SC2034
image_headers=(
  "png.h|libpng-dev|libpng"
  "jpeglib.h|libjpeg-dev|libjpeg-turbo"
)
# shellcheck disable=SC2034
test_headers=(
  "gtest/gtest.h|libgtest-dev|GoogleTest"
  "gmock/gmock.h|libgmock-dev|GoogleMock"
)

# absent_headers ROW...: prints those of the rows whose header is not there. The compiler is asked, so that any
# place it searches counts.
absent_headers() {
  local row header source="" absent=""
  for row; do
    header=${row%%|*}
    source+="#if !__has_include(<$header>)"$'\n'"\"missing:$row\""$'\n'"#endif"$'\n'
    [[ -e /usr/include/$header || -e /usr/local/include/$header ]] || absent+="\"missing:$row\""$'\n'
  done
  [[ -z $(compiler) ]] || absent=$("$(compiler)" -E -P -x c++ - <<<"$source")
  sed -n 's/^"missing:\(.*\)"$/\1/p' <<<"$absent"
}

# configure SOURCE FOLDER OPTION...: by CMake, where that is needed, with ccache where it is installed.
configure() {
  local source=$1 folder=$2 options=(-G Ninja "-DCMAKE_CXX_COMPILER=$(compiler)" "${@:3}")
  if command -v ccache >/dev/null; then
    options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$ROOT/scripts/compile.sh")
  fi
  if [[ -e $folder/build.ninja && $(cat "$folder/.levin-options" 2>/dev/null) == "${options[*]}" ]]; then return; fi
  mkdir -p "$folder"
  rm -f "$folder/.levin-options"
  cmake -S "$source" -B "$folder" "${options[@]}" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    fail "CMake could not configure ${folder##*/}/ (its message is above)"
  }
  echo "${options[*]}" >"$folder/.levin-options"
}

has_libtorch() { [[ -n $1 && -e $1/include/torch/csrc/api/include/torch/torch.h ]]; }

# The folder of a torch package that python3 can import, of a series that levin was tested with. One of
# another series is named and left alone: only LEVIN_LIBTORCH takes it.
installed_torch() {
  command -v python3 >/dev/null || return 0
  python3 - "$TORCH_OLDEST" "$TORCH_NEWEST" <<'PY' || true
import importlib.metadata, importlib.util, re, sys
spec = importlib.util.find_spec("torch")
try:
    version = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    sys.exit()
if not spec or not spec.submodule_search_locations:
    sys.exit()
oldest, newest = sys.argv[1:]
folder = spec.submodule_search_locations[0]
series = lambda text: [int(number) for number in re.match(r"(\d+)\.(\d+)", text).groups()]
if series(oldest) <= series(version) <= series(newest):
    print(folder)
else:
    print(f"levin: python3's torch {version} is left alone, as levin was tested with {oldest} to {newest}; "
          f"LEVIN_LIBTORCH={folder} takes it", file=sys.stderr)
PY
}

# The LibTorch to build against, nothing when it must be fetched first: LEVIN_LIBTORCH, then
# .deps/libtorch, then an installed torch.
libtorch() {
  local candidate
  if [[ -n ${LEVIN_LIBTORCH:-} ]]; then
    for candidate in "$LEVIN_LIBTORCH" "$LEVIN_LIBTORCH/torch" "$LEVIN_LIBTORCH/libtorch"; do
      if has_libtorch "$candidate"; then
        (cd "$candidate" && pwd)
        return
      fi
    done
    fail "no LibTorch in LEVIN_LIBTORCH=$LEVIN_LIBTORCH; wanted the folder that holds include/ and lib/"
  fi
  if has_libtorch "$DEPS/libtorch/torch"; then
    echo "$DEPS/libtorch/torch"
  else
    candidate=$(installed_torch)
    if has_libtorch "$candidate"; then echo "$candidate"; fi
  fi
}

# .deps/pip/bin/python has pip, whatever this machine's Python has.
python_with_pip() {
  [[ -x $DEPS/pip/bin/python ]] && "$DEPS/pip/bin/python" -m pip --version >/dev/null 2>&1 ||
    python3 -m venv --clear "$DEPS/pip"
}

# python_environment NAME REQUIREMENTS: .deps/NAME is a virtual environment with what the file lists.
# With WITH_TORCH=1 it sees the LibTorch in use as its torch, so that none is fetched twice.
python_environment() {
  local folder=$DEPS/$1 requirements=$2 torch="" wanted
  # Where it lies, so that clones whose .deps/ is one folder do not make the environment anew in turn.
  [[ -z ${WITH_TORCH:-} ]] || torch=$(libtorch)
  [[ -z $torch ]] || torch=$(cd "$torch" && pwd -P)
  wanted="$torch"$'\n'"$(cat "$requirements")"
  if [[ $(cat "$folder/.levin-complete" 2>/dev/null) == "$wanted" ]]; then return; fi
  say "making the Python environment .deps/$1 from $requirements"
  rm -rf "$folder"
  python3 -m venv "$folder"
  if [[ -n $torch ]]; then share_torch "$folder/bin/python" "$torch"; fi
  # torch is named again, so that what it imports comes too.
  "$folder/bin/python" -m pip install -qq -r "$requirements" ${torch:+torch} ||
    fail "pip could not install what $requirements lists (its message is above)"
  printf '%s' "$wanted" >"$folder/.levin-complete"
}

# A LibTorch without its Python part is no torch package: then torch is fetched for PYTHON.
share_torch() {
  local python=$1 torch=$2 site
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  dirname "$torch" >"$site/levin-torch.pth"
  if "$python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then return; fi
  say "$torch has no Python part: fetching torch $TORCH_VERSION for Python (about 190 MB)"
  rm "$site/levin-torch.pth"
  install_torch_wheel "$python" || fail "torch $TORCH_VERSION could not be fetched (pip's message is above)"
}

# install_torch_wheel PYTHON PIP-OPTION...: the pinned CPU build, from what pip finds by itself, else from
# PyTorch's own index of CPU builds. Where its checksum is known pip refuses a file with another one.
install_torch_wheel() {
  local python=$1 hash
  shift
  hash=$(torch_sha256 "$python")
  [[ -n $hash ]] || say "warning: torch $TORCH_VERSION+cpu has no known checksum for $("$python" --version) on $(uname -m): it is taken by its version alone"
  pip_install_torch "$python" "$hash" "$@" 2>/dev/null ||
    pip_install_torch "$python" "$hash" --index-url "$TORCH_CPU_INDEX" "$@"
}

# pip_install_torch PYTHON SHA256 PIP-OPTION...
pip_install_torch() {
  local python=$1 hash=$2
  shift 2
  "$python" -m pip install --no-deps ${hash:+--require-hashes} "$@" \
    -r <(printf 'torch==%s+cpu %s\n' "$TORCH_VERSION" "${hash:+--hash=sha256:$hash}")
}

# Of the CPU build's wheel for that Python on this machine; nothing where it is not known.
torch_sha256() {
  local tag
  tag=$("$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')_$(uname -m)
  tag=TORCH_CPU_SHA256_$tag
  [[ $(uname -s) == Linux ]] || tag=none
  printf '%s' "${LEVIN_TORCH_SHA256:-${!tag-}}"
}
