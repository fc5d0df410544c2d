#!/usr/bin/env bash
# Runs the commands of the guides, as they are printed and in their order, each guide in a folder of its own:
#   run_commands.sh SOURCE BUILD FOLDER [GUIDE...]
# The folder looks like a checkout with a build/. `./train` and `./program` are examples/01_classifier, and
# programs train on a part of their data. A block under <!-- file: NAME --> is written to that file. What
# cannot be run here stands in not_run.txt, with the reason.
set -uo pipefail
SOURCE=$1 BUILD=$2 FOLDER=$3
shift 3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
guides=("$@")
if ((${#guides[@]} == 0)); then guides=("$SOURCE"/README.md "$SOURCE"/CONTRIBUTING.md "$SOURCE"/docs/*.md); fi

make=$(command -v make)
failures=0 run=0
complain() {
  printf '%s\n' "$*"
  failures=$((failures + 1))
}

patterns=() reasons=() used=()
while IFS='|' read -r pattern reason; do
  [[ -z $pattern || $pattern == '#'* ]] && continue
  patterns+=("${pattern% }") reasons+=("${reason# }") used+=(0)
done <"$here/not_run.txt"

# Whether the command stands in not_run.txt.
is_left_out() {
  local i
  for i in "${!patterns[@]}"; do
    # shellcheck disable=SC2053  # patterns are patterns
    if [[ $1 == ${patterns[i]} ]]; then
      used[i]=1
      return 0
    fi
  done
  return 1
}

# stand_in NAME COMMAND...: bin/NAME runs that with the words it is given in place of "$@".
stand_in() {
  local name=$1
  shift
  printf '#!/bin/sh\n%s\n' "$*" >"$name"
  chmod +x "$name"
}

# The folder of a guide: what its commands expect to find.
furnish() {
  rm -rf "$1"
  mkdir -p "$1/build/bin" "$1/stand_ins"
  cd "$1" || exit 2
  ln -s "$SOURCE/examples" examples
  local program
  for program in "$BUILD"/bin/[0-9][0-9]_*; do
    case $(basename "$program") in
      03_own_loop | 07_ddp) few='--limit 640' ;;
      09_fsdp_gpt) few='--max-steps 20 --limit-val-batches 2' ;;
      17_chat) few="--steps 4 --chat-steps 3 --text $SOURCE/levin/base" ;;
      06_cli | 08_* | 1*) few='' ;;
      *) few='--limit-train-batches 8 --limit-val-batches 2' ;;
    esac
    stand_in "build/bin/$(basename "$program")" "[ -n \"\$WHOLE\" ] || set -- \"\$@\" $few; exec '$program' \"\$@\""
  done
  ln -s "$BUILD/bin/levin" build/bin/levin
  if [[ -e $SOURCE/.deps/minilm ]]; then
    mkdir .deps
    ln -s "$SOURCE/.deps/minilm" .deps/minilm
  fi
  for program in train program; do stand_in "$program" "exec '$PWD/build/bin/01_classifier' \"\$@\""; done
  ln -s "$BUILD/bin/levin" stand_ins/levin
  # The targets are there; what they do is run by the tests beside this one and by CI.
  stand_in stand_ins/make "exec /usr/bin/env -u MAKEFLAGS $make -n -C '$SOURCE' \"\$@\""
  stand_in stand_ins/kubectl 'grep -q "^kind: "'
}

# Ctrl-C after a while: the run is saved, and ends with 130.
run_interrupted() {
  set -m
  WHOLE=1 eval "$1" &
  local process=$! waited=0
  until grep -q 'of them trainable' output || ((++waited == 6000)); do sleep 0.1; done
  sleep 1
  kill -INT -- "-$process"
  wait "$process"
  local code=$?
  set +m
  ((code == 130))
}

run_command() {
  local place=$1 command=$2
  if is_left_out "$command"; then return; fi
  run=$((run + 1))
  if [[ $command == *'# press ctrl-C'* ]]; then
    run_interrupted "${command%%#*}" >output 2>&1 </dev/null
  else
    eval "$command" >output 2>&1 </dev/null
  fi
  local code=$?
  if [[ $command == *--ckpt-path* ]] && ! grep -q 'trainer: resumed from\|mnist\.missing' output; then code=unresumed; fi
  if [[ $code != 0 ]]; then
    if [[ $command == *'--model .deps/minilm'* && ! -e .deps/minilm ]]; then
      echo "$place: skipped, the pretrained model is not here; scripts/minilm.sh fetches it: $command"
    elif grep -q 'data\.mnist\.missing' output; then
      echo "$place: skipped, Fashion-MNIST is not here: $command"
    else
      complain "$place: ended with $code: $command"$'\n'"$(tail -n 20 output)"
    fi
  fi
}

run_guide() {
  local guide=$1 line number=0 language='' file='' kept='' name
  name=${guide#"$SOURCE"/}
  furnish "$FOLDER/$(basename "$guide" .md)"
  while IFS= read -r line; do
    number=$((number + 1))
    if [[ $line == '```'* ]]; then
      if [[ -n $language ]]; then
        language='' file=''
      else
        language=${line#'```'}
        case $language in
          sh | cpp | diff | python | text) ;;  # tests/oracle runs Python's
          toml | cmake) [[ -n $file ]] || complain "$name:$number: wanted <!-- file: NAME --> above" ;;
          *) complain "$name:$number: got a block of '$language', wanted sh, cpp, diff, python, toml, cmake or text" ;;
        esac
        [[ -z $file ]] || : >"$file"
        [[ -n $language ]] || language=none
      fi
    elif [[ -n $language && -n $file ]]; then
      printf '%s\n' "$line" >>"$file"
    elif [[ $language == sh ]]; then
      if [[ $line == *\\ ]]; then
        kept+="${line%\\}"
      elif [[ -n $line && $line != '#'* ]]; then
        run_command "$name:$number" "$kept$line"
        kept=''
      fi
    elif [[ $line =~ ^'<!-- file: '([^ ]+)' -->'$ ]]; then
      file=${BASH_REMATCH[1]}
    elif [[ -z $language && $line == '    '* ]]; then
      complain "$name:$number: wanted a block with its language (\`\`\`sh), not one by indentation"
    fi
  done <"$guide"
}

mkdir -p "$FOLDER"
PATH=$FOLDER/path:$PATH
export LEVIN_XLA_CACHE=${LEVIN_XLA_CACHE:-$FOLDER/xla_cache}
for guide in "${guides[@]}"; do
  ln -sfn "$FOLDER/$(basename "$guide" .md)/stand_ins" "$FOLDER/path"
  run_guide "$guide"
done
if (($# == 0)); then
  for i in "${!patterns[@]}"; do
    ((used[i])) || complain "not_run.txt: no guide has a command like '${patterns[i]}'"
  done
fi
echo "$run commands were run, $failures failed"
((failures == 0 && run > 0))
