#!/usr/bin/env bash
# The golden files of tests/oracle, made by Python's peers: `oracle.sh make` writes them anew,
# `oracle.sh check` compares what they would be with what is there.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh all
WITH_TORCH=1 python_environment oracle tests/oracle/requirements.txt
scripts/kubernetes_schemas.sh
python=$DEPS/oracle/bin/python

case ${1:-check} in
  make) "$python" tests/oracle/make_golden.py ;;
  check)
    "$python" tests/oracle/make_golden.py --check
    say "the golden files are what Python's peers compute"
    ;;
  *) fail "oracle.sh got '$1', wanted make or check" ;;
esac
