#!/usr/bin/env bash
# install.sh PREFIX: a package below PREFIX that find_package(levin) of other projects finds.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
[[ -n ${1:-} ]] || fail "no folder to install to; say make install PREFIX=DIR"
scripts/setup.sh
scripts/build.sh
cmake --install "$BUILD" --prefix "$1" >"$BUILD/install.log"
say "the installed levin finds LibTorch beside itself, or in $(libtorch)/lib, which has to stay there, or by LD_LIBRARY_PATH (LEVIN_CMAKE=-DLEVIN_INSTALL_TORCH_RUNPATH=OFF leaves that path out)"
say "installed to $1; give other projects -DCMAKE_PREFIX_PATH=$1 and -DLEVIN_LIBTORCH=$(libtorch)"
