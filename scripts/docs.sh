#!/bin/sh
# The API reference of the public headers (those that levin/levin.h includes), by doxygen: docs/api/html/index.html.
# Another folder may be named. It fails where a class, a function, a member or an enum of theirs has no comment.
set -eu
out=${1:-docs/api}
cd "$(dirname "$0")/.."

if ! command -v doxygen >/dev/null; then
  echo "levin: make docs needs doxygen; on Debian and Ubuntu: sudo apt-get install doxygen" >&2
  exit 1
fi
headers=$(sed -n 's/^#include "\(levin\/[^"]*\)"$/\1/p' levin/levin.h)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# doxygen describes what is in no class only where the file is described too.
for header in $headers; do
  mkdir -p "$work/include/$(dirname "$header")"
  {
    printf '/// @file\n'
    cat "$header"
  } > "$work/include/$header"
done
printf '/// @namespace levin\n/// Training of deep-learning models on LibTorch.\n' > "$work/namespaces.h"
for name in comm data graph metrics models lora optim shard text xla log; do
  printf '/// @namespace levin::%s\n/// See the headers of levin/%s.\n' "$name" "$name" >> "$work/namespaces.h"
done
mkdir -p "$out"
cat > "$work/Doxyfile" << EOF
PROJECT_NAME = levin
PROJECT_BRIEF = "training of deep-learning models in C++ on LibTorch"
OUTPUT_DIRECTORY = $out
INPUT = $work/include $work/namespaces.h
STRIP_FROM_PATH = $work/include
STRIP_FROM_INC_PATH = $work/include
RECURSIVE = YES
GENERATE_LATEX = NO
JAVADOC_AUTOBRIEF = YES
DISTRIBUTE_GROUP_DOC = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = LEVIN_API= "TORCH_MODULE(name)="
EXCLUDE_SYMBOLS = levin::detail levin::*::detail
HAVE_DOT = NO
SORT_MEMBER_DOCS = NO
WARN_IF_UNDOCUMENTED = YES
WARN_LOGFILE = $work/warnings
QUIET = YES
EOF
doxygen "$work/Doxyfile"
# A function that only repeats its base class', copies or destroys needs no words. Nor does a constructor that only
# takes the class's options.
undocumented=$(sed "s#$work/include/##" "$work/warnings" | grep "is not documented" |
  grep -vE "operator=|Member ~| override |\(friend\)|file levin/" |
  grep -vE 'Member (\w+)\((double beta, )?\w*Options options.*\) \(function\) of class .*::\1 is' | sort -u || true)
if [ -n "$undocumented" ]; then
  printf '%s\n' "$undocumented"
  echo "levin: $(printf '%s\n' "$undocumented" | wc -l) names of the public headers have no comment" >&2
  exit 1
fi
echo "levin: $out/html/index.html"
