#!/usr/bin/env bash
# Makes the machine ready: compilers and libraries by apt-get where that may be done, LibTorch into
# .deps/libtorch. `setup.sh` for the library and the programs; `setup.sh all` also for tests and
# benchmarks; `setup.sh xla` for the library with XLA, `setup.sh libtpu` for a TPU's compiler beside it.
# Done already means done in an instant.
# LEVIN_APT=0 keeps it from installing packages, LEVIN_PJRT=DIR from fetching what XLA needs.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
what=${1:-programs}

headers=("${library_headers[@]}")
if [[ $what == all ]]; then
  headers+=("${test_headers[@]}" "benchmark/benchmark.h|libbenchmark-dev|Google Benchmark")
fi

packages=()  # Debian packages that are missing
names=()     # the same for people on other systems
missing() {
  packages+=("$1")
  names+=("$2")
}

check_commands() {
  [[ -n $(compiler) ]] || missing g++ "a C++20 compiler (g++ 11 or clang 14)"
  at_least 3.22 "$(cmake_version)" || missing cmake "CMake 3.22"
  command -v ninja >/dev/null || missing ninja-build Ninja
  if ! command -v python3 >/dev/null; then
    missing python3-venv "Python 3.10 with venv"
  elif ! python3 -c 'import ensurepip, venv'; then
    missing python3-venv "Python's venv"
  fi 2>/dev/null
}

check_headers() {
  local header package name
  while IFS='|' read -r header package name; do
    [[ -z $package ]] || missing "$package" "$name"
  done < <(absent_headers "${headers[@]}")
}

# What is good to have but not needed: a failure to install it is no failure.
wished() {
  command -v ccache >/dev/null || echo ccache
  absent_headers "${image_headers[@]}" | cut -d '|' -f 2
  [[ -n ${CXX:-} || $(compiler) == *clang* ]] || newest_clang
  if [[ $what == all ]]; then  # the mpi backend is tested with both
    command -v mpicc.openmpi >/dev/null || printf '%s\n' libopenmpi-dev openmpi-bin
    command -v mpicc.mpich >/dev/null || printf '%s\n' libmpich-dev mpich
  fi
  local place
  for place in "${LEVIN_DATA:-}" data data/fashion-mnist data/FashionMNIST/raw /usr/share/datasets/fashion-mnist; do
    [[ -n $place && -n $(compgen -G "$place/train-images-idx3-ubyte*") ]] && return
  done
  echo dataset-fashion-mnist
}

# With the runtime that its sanitizers need.
newest_clang() {
  local version
  for version in {22..16}; do
    if apt-cache show "clang-$version" >/dev/null 2>&1; then
      printf '%s\n' "clang-$version" "libclang-rt-$version-dev"
      return
    fi
  done
}

check() {
  packages=()
  names=()
  check_commands
  check_headers
}

apt() {
  local root=()
  ((EUID == 0)) || root=(sudo -n)
  ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null
}
may_install() {
  [[ ${LEVIN_APT:-1} != 0 ]] && command -v apt-get >/dev/null &&
    { ((EUID == 0)) || sudo -n true 2>/dev/null; }
}
refresh_lists() {
  say "refreshing the package lists"
  apt update >/dev/null || true
}
apt_install() {
  say "installing by apt-get: $*"
  apt install -y --no-install-recommends "$@" >/dev/null 2>&1 && return
  refresh_lists
  apt install -y --no-install-recommends "$@" >/dev/null
}

install_packages() {
  check
  if ((${#packages[@]} > 0)) && may_install; then
    # A container's image comes without lists: what is only wished for would not be found in them.
    apt-cache show cmake >/dev/null 2>&1 || refresh_lists
    apt_install "${packages[@]}" || true
    check
  fi
  if ((${#packages[@]} == 0)); then return; fi
  local list
  list=$(printf ', %s' "${names[@]}")
  fail "these are missing: ${list:2}
  Debian, Ubuntu:  sudo apt-get install ${packages[*]} $(wished | tr '\n' ' ')
  other systems:   the packages of these names from your distribution; then run the same make again"
}

install_wished() {
  local extra
  mapfile -t extra < <(wished)
  if ((${#extra[@]} == 0)) || ! may_install; then return; fi
  apt_install "${extra[@]}" || say "went on without: ${extra[*]}"
}

check_compiler() {
  local test='#include <span>
#include <version>
struct Options { int a = 1; int b = 2; };
int main() { return Options{.b = 3}.a - std::span<const int>().size() - 1; }'
  "$(compiler)" -std=c++20 -fsyntax-only -x c++ - <<<"$test" 2>/dev/null ||
    fail "$(compiler) does not compile C++20; install g++ 11 or clang 14 or newer, or name one by CXX="
}
check_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$(python3 --version) is too old for torch $TORCH_VERSION; wanted Python 3.10 or newer, or LEVIN_LIBTORCH=DIR"
}

# A CUDA build where a GPU answers, unless LEVIN_TORCH_BUILD=cpu. A half-done fetch stays in
# .deps/libtorch.partial and counts for nothing.
#
# For CUDA: == would take a +cpu wheel that lies on this machine, and torch asks for CUDA's headers
# but not for the packages crt and cccl, which they include. pip makes their versions fit torch's.
fetch_libtorch() {
  local python=$DEPS/pip/bin/python partial=$DEPS/libtorch.partial build=${LEVIN_TORCH_BUILD:-}
  if [[ -z $build ]]; then
    build=cpu
    nvidia-smi >/dev/null 2>&1 && build=cuda
  fi
  python_with_pip
  rm -rf "$partial"
  if [[ $build == cuda ]]; then
    say "a GPU is here: fetching LibTorch $TORCH_VERSION for CUDA into .deps/libtorch (about 3 GB to download, 7 GB on disk; LEVIN_TORCH_BUILD=cpu takes the small one)"
    say "warning: the CUDA build has no known checksum: it is taken by its version alone"
    "$python" -m pip install --target "$partial" "torch===$TORCH_VERSION" "cuda-toolkit[crt,cccl]" || fetch_failed
    [[ -e $partial/torch/lib/libtorch_cuda.so ]] || fetch_failed
  elif pip_install_torch "$python" "$(torch_sha256 "$python")" -q --no-index --target "$partial" 2>/dev/null; then
    say "LibTorch $TORCH_VERSION unpacked from a wheel on this machine into .deps/libtorch"
  else
    say "fetching LibTorch $TORCH_VERSION, CPU build, into .deps/libtorch (about 190 MB to download, 790 MB on disk)"
    rm -rf "$partial"
    install_torch_wheel "$python" --target "$partial" || fetch_failed
  fi
  has_libtorch "$partial/torch" || fetch_failed
  rm -rf "$DEPS/libtorch"
  mv "$partial" "$DEPS/libtorch"
}
fetch_failed() {
  rm -rf "$DEPS/libtorch.partial"
  fail "LibTorch $TORCH_VERSION could not be fetched (pip's message is above); fetch it by hand and set LEVIN_LIBTORCH=DIR, the folder that holds include/ and lib/"
}

check_libtorch() {
  local found
  found=$(libtorch)
  if [[ -z $found ]]; then
    fetch_libtorch
  elif [[ $found != "$DEPS/libtorch/torch" ]]; then
    say "LibTorch is the one in $found"
  fi
}

# unpack_wheel TARGET NAME==VERSION SHA256: pip refuses a file with another checksum.
unpack_wheel() {
  "$DEPS/pip/bin/python" -m pip install -q --no-deps --only-binary :all: --require-hashes --target "$1" \
    -r <(printf '%s --hash=sha256:%s\n' "$2" "$3")
}

# XLA's C interface and a plugin for CPUs into .deps/pjrt. Without them levin is built without XLA, so
# that a failure to fetch them is no failure.
fetch_pjrt() {
  local partial=$DEPS/pjrt.partial wanted="$PJRT_HEADER_SHA256 $PJRT_CPU_SHA256"
  [[ -z ${LEVIN_PJRT:-} && $(cat "$DEPS/pjrt/.levin-complete" 2>/dev/null) != "$wanted" ]] || return 0
  say "fetching what XLA needs into .deps/pjrt (about 130 MB to download, 210 MB on disk)"
  rm -rf "$partial"
  mkdir -p "$partial/include" "$partial/lib"
  if python_with_pip &&
    unpack_wheel "$partial/wheels" "$PJRT_HEADER_WHEEL" "$PJRT_HEADER_SHA256" &&
    unpack_wheel "$partial/wheels" "$PJRT_CPU_WHEEL" "$PJRT_CPU_SHA256" &&
    mv "$partial/wheels/xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h" "$partial/include/" &&
    mv "$partial/wheels/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so" "$partial/lib/"; then
    rm -rf "$partial/wheels" "$DEPS/pjrt"
    printf '%s' "$wanted" >"$partial/.levin-complete"
    mv "$partial" "$DEPS/pjrt"
  else
    rm -rf "$partial"
    say "went on without XLA: its parts could not be fetched (pip's message is above); make xla tries again"
  fi
}

# libtpu beside the other plugins: levin xla check compiles by it. Google's licence lets nobody hand it
# on, so that it is fetched for who asks for it, and by nothing else here. Its wheels hold the same
# library for each Python: one is named, whatever Python fetches it.
fetch_libtpu() {
  local partial=$DEPS/libtpu.partial
  [[ -z ${LEVIN_PJRT:-} ]] || fail "LEVIN_PJRT=$LEVIN_PJRT names the plugins; pip install libtpu and name libtpu.so by LEVIN_LIBTPU"
  [[ -d $DEPS/pjrt/lib ]] || fail "no .deps/pjrt to put libtpu into; run make xla"
  [[ $(cat "$DEPS/pjrt/.libtpu-complete" 2>/dev/null) != "$LIBTPU_SHA256" ]] || return 0
  say "fetching ${LIBTPU_WHEEL%%==*} ${LIBTPU_WHEEL##*==} of Google into .deps/pjrt (213 MB to download, 693 MB on disk)"
  say "its licence: https://pypi.org/project/libtpu"
  rm -rf "$partial"
  if ! python_with_pip || ! "$DEPS/pip/bin/python" -m pip install -q --no-deps --only-binary :all: --require-hashes \
    --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_31_x86_64 --target "$partial" \
    -r <(printf '%s --hash=sha256:%s\n' "$LIBTPU_WHEEL" "$LIBTPU_SHA256"); then
    rm -rf "$partial"
    fail "libtpu could not be fetched (pip's message is above); fetch it by hand and name libtpu.so by LEVIN_LIBTPU"
  fi
  mv "$partial/libtpu/libtpu.so" "$DEPS/pjrt/lib/"
  rm -rf "$partial"
  printf '%s' "$LIBTPU_SHA256" >"$DEPS/pjrt/.libtpu-complete"
}

# CUDA's own headers into .deps/cuda, by which tests/cuda reads the sources of a CUDA build on a machine without
# one, and which make gpu-pack packs. Without them those tests are skipped, so that a failure to fetch them is no failure.
fetch_cuda_headers() {
  local partial=$DEPS/cuda.partial wanted="$CUDA_RUNTIME_SHA256 $CUDA_CRT_SHA256 $CUDA_CCCL_SHA256"
  [[ $(uname -sm) == "Linux x86_64" ]] || return 0
  [[ $(cat "$DEPS/cuda/.levin-complete" 2>/dev/null) != "$wanted" ]] || return 0
  say "fetching CUDA's headers into .deps/cuda (5 MB to download, 20 MB on disk)"
  rm -rf "$partial"
  mkdir -p "$partial"
  if python_with_pip &&
    unpack_wheel "$partial/wheels" "$CUDA_RUNTIME_WHEEL" "$CUDA_RUNTIME_SHA256" &&
    unpack_wheel "$partial/crt" "$CUDA_CRT_WHEEL" "$CUDA_CRT_SHA256" &&
    unpack_wheel "$partial/cccl" "$CUDA_CCCL_WHEEL" "$CUDA_CCCL_SHA256" &&
    mv "$partial/wheels/nvidia/cu13/include" "$partial/include" &&
    cp -r "$partial"/{crt,cccl}/nvidia/cu13/include/. "$partial/include/"; then
    rm -rf "$partial"/{wheels,crt,cccl} "$DEPS/cuda"
    printf '%s' "$wanted" >"$partial/.levin-complete"
    mv "$partial" "$DEPS/cuda"
  else
    rm -rf "$partial"
    say "went on without CUDA's headers: they could not be fetched (pip's message is above); make test tries again"
  fi
}

install_packages
install_wished &
trap wait EXIT
[[ -e $BUILD/.levin-options ]] || check_python
check_libtorch
if [[ $what == all || $what == xla || $what == libtpu ]]; then fetch_pjrt; fi
if [[ $what == all ]]; then fetch_cuda_headers; fi
if [[ $what == libtpu ]]; then fetch_libtpu; fi
wait
[[ -e $BUILD/.levin-options ]] || check_compiler
