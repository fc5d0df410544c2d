#!/usr/bin/env bash
# clang-format on every source, clang-tidy on what changed since LINT_BASE (a revision; default:
# where this branch left origin/main, else the commit before). `lint.sh --fix` formats instead.
# clang-tidy stops beginning new files after LINT_SECONDS (170; 0: never) and names those left out.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
scripts/setup.sh all
python_environment lint scripts/lint_requirements.txt
bin=$DEPS/lint/bin

mapfile -t sources < <(find levin tools tests examples bench cmake \( -name '*.cpp' -o -name '*.h' \) | sort)
if [[ ${1:-} == --fix ]]; then
  "$bin/clang-format" -i "${sources[@]}"
  exit
fi
status=0
if unformatted=$(printf '%s\0' "${sources[@]}" |
  xargs -0 -n 40 -P "$(cores)" "$bin/clang-format" --dry-run -Werror 2>&1); then
  say "clang-format: ${#sources[@]} files are fine"
else
  status=1
  say "clang-format would write these otherwise (places, file); run make format:"
  sed -nE 's/^([^ :]+):[0-9]+:.*/\1/p' <<<"$unformatted" | sort | uniq -c
fi

# The revision to compare with; nothing: every file counts as changed.
base() {
  local head merge
  head=$(git rev-parse -q --verify HEAD 2>/dev/null) || return 0
  if [[ -n ${LINT_BASE:-} ]]; then
    git rev-parse -q --verify "$LINT_BASE^{commit}" || fail "no revision LINT_BASE=$LINT_BASE"
    return
  fi
  merge=$(git merge-base origin/main HEAD 2>/dev/null) || merge=$head
  [[ $merge != "$head" ]] || merge=$(git rev-parse -q --verify HEAD~1) || return 0
  echo "$merge"
}

changed() {
  local from
  from=$(base)
  if [[ -z $from ]]; then
    printf '%s\n' "${sources[@]}"
  else
    { git diff --name-only --diff-filter=d "$from"; git ls-files --others --exclude-standard; } |
      grep -E '\.(cpp|h)$' || true
  fi
}

# Each source is read by itself and without the precompiled header, so that it includes what it uses.
database=$BUILD/tidy
make_database() {
  cmake -S . -B "$database" -G Ninja "-DCMAKE_CXX_COMPILER=$(compiler)" "-DLEVIN_LIBTORCH=$(libtorch)" \
    -DLEVIN_BUILD_TESTS=ON -DLEVIN_BUILD_BENCH=ON -DLEVIN_UNITY=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    >"$BUILD/tidy.log" 2>&1 || {
    cat "$BUILD/tidy.log" >&2
    fail "CMake could not list what is compiled (its message is above)"
  }
}

# The sources to read: a changed header stands for the source beside it, else for one including it.
source_for() {
  if [[ $1 == *.cpp ]]; then
    echo "$1"
  elif [[ -e ${1%.h}.cpp ]]; then
    echo "${1%.h}.cpp"
  else
    grep -rlF --include='*.cpp' "#include \"$1\"" levin tools tests examples bench | sort | sed -n 1p
  fi
}
units() {
  local file source
  while read -r file; do
    source=$(source_for "$file") || true
    if [[ -n $source ]] && grep -qF "/$source\"" "$database/compile_commands.json"; then
      echo "$source"
    else
      say "clang-tidy: nothing in build/ compiles $file, so it is not read" >&2
    fi
  done < <(changed) | sort -u
}

# tidy_one FILE: its name and clang-tidy's words when it finds something.
tidy_one() {
  if ((LINT_SECONDS > 0 && $(date +%s) - LINT_START > LINT_SECONDS)); then
    echo "$1" >>"$LINT_SKIPPED"
    return
  fi
  local words
  if ! words=$("$LINT_TIDY" --quiet -p "$LINT_DATABASE" --warnings-as-errors='*' "$1" 2>/dev/null); then
    printf '%s\n' "clang-tidy: $1" "$words"
    return 1
  fi
}
export -f tidy_one
LINT_SECONDS=${LINT_SECONDS:-170} LINT_START=$(date +%s) LINT_SKIPPED=$(mktemp)
LINT_TIDY=$bin/clang-tidy LINT_DATABASE=$database
export LINT_SECONDS LINT_START LINT_SKIPPED LINT_TIDY LINT_DATABASE
trap 'rm -f "$LINT_SKIPPED"' EXIT

mkdir -p "$BUILD"
make_database
mapfile -t files < <(units)
if ((${#files[@]} == 0)); then
  say "clang-tidy: no source changed"
  exit $status
fi
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(cores)" bash -c 'tidy_one "$1"' tidy || status=1
left=$(wc -l <"$LINT_SKIPPED")
say "clang-tidy: $((${#files[@]} - left)) of ${#files[@]} changed sources read in $(($(date +%s) - LINT_START)) s"
if ((left > 0)); then
  say "left out, no time (LINT_SECONDS=0 reads them too): $(sort "$LINT_SKIPPED" | paste -sd ' ')"
fi
exit $status
