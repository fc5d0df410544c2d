#!/usr/bin/env bash
# Writes FOLDER/train.jsonl and FOLDER/test.jsonl: {"text": description, "label": section} of Debian's packages in 20
# sections, out of the package index of this machine (`debian_sections.sh [FOLDER [PACKAGES]]`, .deps/debian_sections; PACKAGES is what
# `apt-cache dumpavail` would print). The packages of one source are all in the one file or all in the other: their
# descriptions share words.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
folder=${1:-$DEPS/debian_sections}
packages() {
  if [[ -n ${1:-} ]]; then cat -- "$1"; else apt-cache dumpavail; fi
}
[[ -n ${2:-} ]] || command -v apt-cache >/dev/null || fail "no apt-cache here; name a list of packages as the second argument"
mkdir -p "$folder"
packages "${2:-}" | LC_ALL=C.UTF-8 awk -v train="$folder/train.jsonl.partial" -v test="$folder/test.jsonl.partial" '
  BEGIN {
    split("admin database editors education electronics fonts games gnome graphics hamradio kde mail math net science sound text utils video web", names, " ")
    for (i in names) wanted[names[i]] = 1
    for (i = 0; i < 256; i++) code[sprintf("%c", i)] = i
  }
  function put() {
    sub(/^.*\//, "", section)
    if (section in wanted && text != "" && !(text in seen)) {
      seen[text] = 1
      hash = 0
      for (i = 1; i <= length(source); i++) hash = (hash * 31 + code[substr(source, i, 1)]) % 1000003
      gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); gsub(/\t/, " ", text)
      printf "{\"text\": \"%s\", \"label\": \"%s\"}\n", text, section > (hash % 5 == 0 ? test : train)
    }
    source = text = section = ""
  }
  /^Package: / { source = $2 }
  /^Source: / { source = $2 }
  /^Section: / { section = $2 }
  /^Description(-en)?: / { text = $0; sub(/^[^:]*: /, "", text) }
  /^$/ { put() }
  END { put() }'
for part in train test; do
  [[ -s $folder/$part.jsonl.partial ]] || fail "the package index has no descriptions; run apt-get update"
  mv "$folder/$part.jsonl.partial" "$folder/$part.jsonl"
done
say "$(wc -l <"$folder/train.jsonl") rows to train on and $(wc -l <"$folder/test.jsonl") to test in $folder"
