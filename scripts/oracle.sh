#!/usr/bin/env bash
# The golden files of tests/oracle, made by Python's peers: `oracle.sh make` writes them anew,
# `oracle.sh check` compares what they would be with what is there. `check known` does so where that did
# not go well before on this machine with the same files, peers and processor (make oracle-check does it
# anyway). `prepare` fetches what these and the tests need.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh all
WITH_TORCH=1 python_environment oracle tests/oracle/requirements.txt
scripts/kubernetes_schemas.sh
scripts/minilm.sh if-possible
scripts/chat_templates.sh
python=$DEPS/oracle/bin/python
[[ ${1:-check} != prepare ]] || exit 0

# Of all that decides what a check finds.
sum_of_check() {
  {
    find tests/oracle \( -name '*.py' -o -path '*/golden/*' \) -type f -print0 | sort -z | xargs -0 sha256sum
    "$python" -m pip freeze --all
    "$python" -VV
    grep -m 1 '^flags' /proc/cpuinfo || uname -m
  } | sha256sum | cut -d ' ' -f 1
}
check() {
  "$python" tests/oracle/make_golden.py --check
  "$python" tests/oracle/case_table.py --check
  "$python" tests/oracle/template_cases.py --check
  "$python" tests/oracle/tokenizer_classes.py --check
  say "the golden files are what Python's peers compute"
}

case ${1:-check} in
  make) "$python" tests/oracle/make_golden.py ;;
  check)
    known=${XDG_CACHE_HOME:-${HOME:-$BUILD}/.cache}/levin/oracle/$(sum_of_check)
    if [[ ${2:-} == known && -e $known ]]; then
      say "the golden files are those that Python's peers computed here on $(date -r "$known" +%F)"
    else
      check
      mkdir -p "${known%/*}" && touch "$known"
    fi
    ;;
  *) fail "oracle.sh got '$1', wanted make, check or prepare" ;;
esac
