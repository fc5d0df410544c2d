#!/usr/bin/env bash
# Builds levin, its GPU tests and its GPU benchmarks against the CUDA build of LibTorch on this machine, runs the
# checks of scripts/gpu_checks.txt one after the other, and writes gpu.json and gpu.txt. docs/gpu.md has more.
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

usage() {
  cat <<'TEXT'
usage: scripts/gpu_check.sh [OPTION...]   (make gpu-check ARGS='OPTION...')

Builds levin for the GPU of this machine, checks it and measures it, without network.

  --seconds N     stop after N seconds in all, building included; what is left is listed as not reached. Without
                  it the build takes what it takes, and the checks 480 seconds
  --only PATTERN  run the checks whose name matches the regular expression
  --list          print the checks and exit
  --skip-build    run what an earlier call has built
  --dry-run       run the checks on the CPU, to try the checks themselves
  --output DIR    write gpu.json, gpu.txt and logs/ there (build-gpu)
  --checks FILE   take the checks from FILE (scripts/gpu_checks.txt)
  --help          print this

Environment: LEVIN_LIBTORCH names a CUDA build of LibTorch; without it python3's torch is taken. CUDA_HOME and
NCCL_HOME name folders of headers. CXX names the compiler. .gpu_pack/, made by scripts/gpu_pack.sh, has the other
libraries' headers; without it the installed ones are taken.

Exit code: 0 when nothing failed, also without a GPU; 1 when the build or a check failed; 130 or 143 after a signal.
TEXT
}

folder=$ROOT/build-gpu output=$ROOT/build-gpu table=scripts/gpu_checks.txt
total_s="" checks_s=480 only="" list="" build=1 dry_run=""
while (($# > 0)); do
  case $1 in
    --seconds | --only | --output | --checks)
      (($# > 1)) || fail "got $1 without a value; --help lists the options"
      case $1 in
        --seconds) total_s=$2 ;;
        --only) only=$2 ;;
        --output) output=$2 ;;
        --checks) table=$2 ;;
      esac
      shift
      ;;
    --list) list=1 ;;
    --skip-build) build="" ;;
    --dry-run) dry_run=1 ;;
    --help)
      usage
      exit
      ;;
    *) fail "got '$1', which is no option; --help lists them" ;;
  esac
  shift
done
[[ -z $total_s || $total_s =~ ^[1-9][0-9]{0,5}$ ]] || fail "got --seconds $total_s, wanted a whole number from 1 to 999999"

# Milliseconds of the clock, and as seconds.
now() { echo $((${EPOCHREALTIME//[.,]/} / 1000)); }
as_seconds() { printf '%d.%d' $(($1 / 1000)) $(($1 % 1000 / 100)); }
began=$(now)
elapsed() { echo $(($(now) - began)); }

# The checks: name | limit in seconds | command.
names=() limits=() commands=()
read_checks() {
  local name limit command number=0
  [[ -r $table ]] || fail "no file $table to take checks from"
  while IFS='|' read -r name limit command || [[ -n $name ]]; do
    number=$((number + 1))
    name=${name//[[:space:]]/} limit=${limit//[[:space:]]/}
    [[ -n $name && $name != \#* ]] || continue
    [[ $name =~ ^[a-z0-9_.-]+$ && $limit =~ ^[1-9][0-9]*$ && -n ${command//[[:space:]]/} ]] ||
      fail "$table:$number: got '$name | $limit | $command', wanted name | seconds | command"
    [[ " ${names[*]-} " != *" $name "* ]] || fail "$table:$number: got a second check of the name $name"
    [[ -z $only || $name =~ $only ]] || continue
    names+=("$name") limits+=("$limit") commands+=("$command")
  done <"$table"
  ((${#names[@]} > 0)) || fail "no check in $table${only:+ matches --only $only}"
}
read_checks
if [[ -n $list ]]; then
  for i in "${!names[@]}"; do printf '%-32s %5s s %s\n' "${names[i]}" "${limits[i]}" "${commands[i]}"; done
  exit
fi

# What became of each check: green, red, skipped, ran past, cut, not reached, not run.
states=() spent=() reasons=() codes=()
for i in "${!names[@]}"; do states[i]="not reached" spent[i]=0 reasons[i]="" codes[i]=""; done
build_state="not run" build_ms=0 state="stopped" stopped="" group="" cards="" torch="" python=python3

# What is run goes into a process group of its own, which ends as a whole: at its limit, at ctrl-C and at SIGTERM.
trap 'stopped=INT' INT
trap 'stopped=TERM' TERM
trap 'stopped=HUP' HUP
end_group() {
  local tenth
  kill -TERM -- "-$1" 2>/dev/null || return 0
  for ((tenth = 0; tenth < 50; ++tenth)); do
    kill -0 -- "-$1" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL -- "-$1" 2>/dev/null || true
}
# Processes that have left the group are known by a variable of their environment. A process that holds the card's
# memory would disturb all later checks.
end_others() {
  local files pids tenth
  for ((tenth = 0; tenth < 50; ++tenth)); do
    files=$(grep -lsxz "LEVIN_GPU_CHECK_RUN=$1" /proc/[0-9]*/environ 2>/dev/null || true)
    [[ -n $files ]] || return 0
    mapfile -t pids < <(sed 's|/proc/||; s|/environ||' <<<"$files")
    kill -KILL "${pids[@]}" 2>/dev/null || true
    sleep 0.1
  done
}

# run_limited SECONDS LOG COMMAND...: sets code to its exit code and ended to exited, limit or stopped.
run_limited() {
  local limit=$1 log=$2 watcher run=$$.$RANDOM
  shift 2
  code=0 ended=exited
  rm -f "$log.limit"
  set -m
  LEVIN_GPU_CHECK_RUN=$run "$@" >"$log" 2>&1 </dev/null &
  group=$!
  (
    sleep "$limit"
    : >"$log.limit"
    end_group "$group"
  ) </dev/null >/dev/null 2>&1 &
  watcher=$!
  set +m
  [[ -n $stopped ]] || { wait "$group" || code=$?; } 2>/dev/null
  if [[ -n $stopped ]]; then
    ended=stopped
    end_group "$group"
  elif [[ -e $log.limit ]]; then
    ended=limit
  fi
  kill -KILL -- "-$watcher" 2>/dev/null || true
  kill -KILL -- "-$group" 2>/dev/null || true
  wait "$watcher" "$group" 2>/dev/null || true
  end_others "$run"
  rm -f "$log.limit"
  group=""
}

# The machine.
find_cards() { # name, driver, MiB, compute capability: a card a line
  cards=$(timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader,nounits 2>/dev/null) ||
    cards=""
}
# LEVIN_LIBTORCH, then python3's torch, then .deps/libtorch; of these the first that is a CUDA build.
find_torch() {
  local candidate
  if [[ -n ${LEVIN_LIBTORCH:-} ]]; then
    torch=$(libtorch)
  else
    for candidate in "$(installed_torch)" "$DEPS/libtorch/torch"; do
      if has_libtorch "$candidate" && [[ -n $dry_run || -e $candidate/lib/libtorch_cuda.so ]]; then
        torch=$candidate
        break
      fi
    done
  fi
  # The Python that the torch package belongs to, where it belongs to one.
  if [[ -n $torch && $(installed_torch 2>/dev/null) == "$torch" ]]; then
    python=$(command -v python3)
  elif [[ -n $torch && -x $torch/../../../../bin/python3 ]]; then
    python=$(cd "$torch/../../../../bin" && pwd)/python3
  fi
}
# absent_cuda_headers FILE...: prints those that are in no folder of headers that LevinCuda.cmake looks into.
absent_cuda_headers() {
  local header folders=("$torch"/../nvidia/*/include "${CUDA_HOME:-/usr/local/cuda}"/include{,/cccl} "${NCCL_HOME:-/usr}/include" /usr/include
    .gpu_pack/cuda/include)
  for header; do
    local folder="" found=""
    for folder in "${folders[@]}"; do
      if [[ -e $folder/$header ]]; then found=1; fi
    done
    [[ -n $found ]] || echo "$header"
  done
}
say_what_is_missing() {
  local missing=() header package name pack=""
  [[ -n $(compiler) ]] || missing+=("a C++20 compiler: g++ 11 or clang 14 or newer")
  at_least 3.22 "$(cmake_version)" || missing+=("CMake 3.22 or newer")
  command -v ninja >/dev/null || missing+=("Ninja")
  if [[ -z $torch ]]; then
    missing+=("a CUDA build of LibTorch $TORCH_OLDEST to $TORCH_NEWEST: LEVIN_LIBTORCH=DIR, or a python3 that has it as torch")
  elif [[ ! -e $torch/lib/libtorch_cuda.so && -z $dry_run ]]; then
    missing+=("a CUDA build of LibTorch: the one in $torch is for CPUs")
  elif [[ -e $torch/lib/libtorch_cuda.so ]]; then
    name=$(absent_cuda_headers cuda_runtime_api.h crt/host_config.h nv/target | paste -sd ' ')
    [[ -z $name ]] || missing+=("CUDA's headers $name: a CUDA toolkit in CUDA_HOME, or pip's nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl")
    name=$(absent_cuda_headers nccl.h cublas_v2.h cusparse.h cusolverDn.h | paste -sd ' ')
    [[ -z $name ]] || say "warning: no $name, so that NCCL is not checked; pip's nvidia-nccl, nvidia-cublas, nvidia-cusparse and nvidia-cusolver have them"
  fi
  if [[ -e .gpu_pack/MANIFEST ]]; then
    scripts/gpu_pack.sh --check
  elif [[ -n $(compiler) ]]; then
    while IFS='|' read -r header package name; do
      missing+=("$name ($header; Debian, Ubuntu: $package)")
      pack=$'\n'"make gpu-pack, on a machine that has the headers, gathers them in .gpu_pack/: carry that here"
    done < <(absent_headers "${library_headers[@]}" "${test_headers[@]}")
  fi
  ((${#missing[@]} == 0)) || fail "these are missing:$(printf '\n  %s' "${missing[@]}")$pack"
}

# Runs in the group that run_limited makes.
build_all() {
  local pack="" flags="" more options
  [[ ! -e .gpu_pack/MANIFEST ]] || pack=$ROOT/.gpu_pack
  # As in build.sh: what ccache wants to be told of precompiled headers.
  if command -v ccache >/dev/null; then
    flags="-Xclang -fno-pch-timestamp"
    if "$(compiler)" --version | grep -q 'Free Software Foundation'; then flags=-fpch-preprocess; fi
  fi
  options=("-DLEVIN_LIBTORCH=$torch" "-DLEVIN_PACK=$pack" -DLEVIN_GPU_CHECK=ON -DLEVIN_WITH_XLA=OFF -DLEVIN_WITH_MPI=OFF
    "-DCMAKE_CXX_FLAGS=$flags")
  read -ra more <<<"${LEVIN_CMAKE:-}"
  # A process that loads CUDA's libraries reads gigabytes. They come from the disk while the compiler works.
  [[ -z $cards ]] || cat "$torch"/lib/*.so "$torch"/../nvidia/*/lib/*.so* >/dev/null 2>&1 &
  configure . "$folder" "${options[@]}" ${more[@]+"${more[@]}"}
  NINJA_STATUS='[%f/%t, %es] ' ninja -C "$folder" -k 0 -j "$(cores)" gpu_tests gpu_bench
}
# What a failed build has left of earlier ones would be checked in place of this checkout.
remove_stale() {
  local program
  for program in gpu_tests gpu_bench; do
    if ! ninja -C "$folder" -n "$program" 2>/dev/null | grep -q 'no work to do'; then rm -f "$folder/bin/$program"; fi
  done
}
build_it() {
  local start
  start=$(now)
  say "building into build-gpu/ with $(compiler), LibTorch $(torch_version) in $torch; the log is $output/logs/build.log"
  run_limited $((${total_s:-86400} - $(elapsed) / 1000)) "$output/logs/build.log" build_all
  build_ms=$(($(now) - start))
  grep -h -e '^-- levin: ' -e 'levin: no ' "$folder/configure.log" 2>/dev/null | sed 's/^-- //' || true
  case $ended in
    exited) if ((code == 0)); then build_state=green; else build_state=red; fi ;;
    limit) build_state='cut' ;;
    stopped) build_state=stopped ;;
  esac
  if [[ $build_state == green ]]; then
    say "built, $(as_seconds $build_ms) s"
  elif [[ $build_state != stopped ]]; then
    tail -n 40 "$output/logs/build.log" >&2
    say "the build: $build_state after $(as_seconds $build_ms) s (its last lines are above, all of it in $output/logs/build.log)"
    remove_stale
  fi
}

# run_check NUMBER: in what is left of the time.
run_check() {
  local i=$1 left start log=$output/logs/${names[$1]} limit=${limits[$1]} last
  left=$((total_s - $(elapsed) / 1000))
  ((left > 0)) || return 0
  if ((left < limit)); then limit=$left; fi
  rm -rf "$log.json" "$output/scratch"
  mkdir -p "$output/scratch"
  start=$(now)
  LEVIN_GPU_JSON=$log.json LEVIN_GPU_SCRATCH=$output/scratch run_limited "$limit" "$log.log" bash -c "${commands[i]}"
  spent[i]=$(($(now) - start))
  codes[i]=$code
  last=$(grep -v '^[[:space:]]*$' "$log.log" | tail -n 1 || true)
  if [[ $ended == stopped ]]; then
    states[i]=stopped reasons[i]="by SIG$stopped" codes[i]=""
  elif [[ $ended == limit && $code != 0 ]]; then
    codes[i]=""
    if ((limit < limits[i])); then
      states[i]=cut reasons[i]="$total_s s in all were over"
    else
      states[i]="ran past" reasons[i]="ran past $limit s"
    fi
  elif ((code == 0)); then
    states[i]=green
  elif ((code == 77)); then
    states[i]=skipped reasons[i]=${last#skipped: }
  else
    states[i]=red reasons[i]="exit code $code"
    if ((code > 128)); then reasons[i]="ended by SIG$(kill -l $((code - 128)) 2>/dev/null || echo "$code")"; fi
  fi
  rm -rf "$output/scratch"
}
line_of() {
  printf '%-11s %7s s  %s%s\n' "${states[$1]}" "$(as_seconds "${spent[$1]}")" "${names[$1]}" "${reasons[$1]:+: ${reasons[$1]}}"
}
has_failed() { [[ ${states[$1]} == red || ${states[$1]} == "ran past" ]]; }

# What is written. Logs may hold anything: what is no printable ASCII is left out.
quoted() {
  local text
  text=$(printf '%s' "$1" | LC_ALL=C tr -cd '\040-\176')
  text=${text//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}
digits() { printf '%s' "$(tr -cd 0-9 <<<"$1" | grep . || echo null)"; }
torch_version() {
  sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$torch/version.py" 2>/dev/null | grep . ||
    sed -n 's/.*define TORCH_VERSION_[A-Z]* \([0-9]*\)$/\1/p' "$torch/include/torch/headeronly/version.h" 2>/dev/null | paste -sd . || true
}
cuda_version() { sed -n "s/^cuda.* = '\(.*\)'.*/\1/p" "$torch/version.py" 2>/dev/null || true; }
# A copy without .git has no commit: which one it is of, this tells.
sources_sha256() {
  find CMakeLists.txt cmake levin tests bench -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1
}
has() { if grep -qs "^LEVIN_HAS_$1:INTERNAL=1" "$folder/CMakeCache.txt"; then echo true; else echo false; fi; }
json_of_cards() {
  local name driver memory capability
  while IFS=, read -r name driver memory capability; do
    [[ -z $name ]] || printf '{"name": %s, "driver": %s, "memory_mib": %s, "compute_capability": %s}\n' "$(quoted "$name")" \
      "$(quoted "${driver# }")" "$(digits "$memory")" "$(quoted "${capability# }")"
  done <<<"$cards"
}
json_of_checks() {
  local i
  for i in "${!names[@]}"; do
    printf '{"name": %s, "state": %s, "seconds": %s, "limit_s": %s, "exit_code": %s, "reason": %s}\n' "$(quoted "${names[i]}")" \
      "$(quoted "${states[i]}")" "$(as_seconds "${spent[i]}")" "${limits[i]}" "${codes[i]:-null}" "$(quoted "${reasons[i]}")"
  done
}
# The rows of benchmarks, each with its check's name. A check that was ended may have left half a row.
json_of_rows() {
  local i
  for i in "${!names[@]}"; do
    if [[ -s $output/logs/${names[i]}.json ]]; then
      cmake "-DCHECK=${names[i]}" "-DROWS=$output/logs/${names[i]}.json" -P scripts/gpu_rows.cmake 2>&1
    fi
  done
}
list_of() { printf '[\n'; sed -e 's/^/    /' -e '$!s/$/,/'; printf '  ]'; }
write_json() {
  local compiler_line="" driver_cuda=""
  [[ -z $(compiler) ]] || compiler_line=$("$(compiler)" --version | sed -n 1p)
  [[ -z $cards ]] || driver_cuda=$(timeout 30 nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Z a-z]* Version: *\([0-9.]*\).*/\1/p')
  {
    printf '{\n  "format": 1,\n  "date": "%s",\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '  "state": %s,\n  "seconds": %s,\n  "dry_run": %s,\n' "$(quoted "$state")" "$(as_seconds "$(elapsed)")" "$([[ -n $dry_run ]] && echo true || echo false)"
    printf '  "levin": {"version": %s, "commit": %s, "changed": %s, "sources_sha256": %s},\n' \
      "$(quoted "$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' levin/trainer/trainer.h)")" \
      "$(quoted "$(git -c safe.directory='*' rev-parse HEAD 2>/dev/null || echo unknown)")" \
      "$([[ -z $(git -c safe.directory='*' status --porcelain 2>/dev/null) ]] && echo false || echo true)" "$(quoted "$(sources_sha256)")"
    printf '  "torch": {"version": %s, "cuda": %s},\n' "$(quoted "$(torch_version)")" "$(quoted "$(cuda_version)")"
    printf '  "driver_cuda": %s,\n' "$(quoted "$driver_cuda")"
    printf '  "machine": {"system": %s, "cores": %s, "memory_mib": %s, "compiler": %s},\n' \
      "$(quoted "$(uname -srm)")" "$(nproc)" "$(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo)" "$(quoted "$compiler_line")"
    printf '  "build": {"state": %s, "seconds": %s, "cuda_graphs": %s, "nccl": %s},\n' "$(quoted "$build_state")" \
      "$(as_seconds $build_ms)" "$(has CUDA_GRAPHS)" "$(has NCCL)"
    printf '  "gpus": '
    json_of_cards | list_of
    printf ',\n  "checks": '
    json_of_checks | list_of
    printf ',\n  "rows": '
    json_of_rows | list_of
    printf '\n}\n'
  } >"$output/gpu.json.partial"
  mv "$output/gpu.json.partial" "$output/gpu.json"
}
write_table() {
  local i version
  {
    version=$(torch_version)
    echo "levin $(git -c safe.directory='*' describe --always --dirty 2>/dev/null || true), LibTorch ${version:-none}, $(cut -d, -f1,2 <<<"${cards:-no GPU}" | paste -sd ';')"
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ): $state, $(as_seconds "$(elapsed)") s in all; the build: $build_state, $(as_seconds $build_ms) s"
    for i in "${!names[@]}"; do line_of "$i"; done
    for i in "${!names[@]}"; do
      if has_failed "$i"; then
        printf '\n== the last lines of %s (%s)\n' "${names[i]}" "$output/logs/${names[i]}.log"
        tail -n 25 "$output/logs/${names[i]}.log" | cut -c1-400
      fi
    done
  } >"$output/gpu.txt"
}
finish() {
  local status=$?
  trap - EXIT
  [[ -z $group ]] || end_group "$group"
  rm -rf "$output/scratch"
  write_table
  write_json
  if [[ -n $stopped ]]; then
    say "ended by SIG$stopped; $output/gpu.json says what had been done"
    exit $((128 + $(kill -l "$stopped")))
  fi
  exit $status
}

find_cards
find_torch
# clang 18 and newer gives at::TensorBase::const_data_ptr<T> another name than the g++ that made LibTorch before 2.13, so
# that its programs do not link.
if [[ -z ${CXX:-} && -n $torch ]] && ! at_least 2.13 "$(torch_version)" && command -v g++ >/dev/null; then export CXX=g++; fi
if [[ -n $build ]]; then say_what_is_missing; fi
mkdir -p "$output/logs"
output=$(cd "$output" && pwd)
rm -f "$output"/logs/* "$output/gpu.json" "$output/gpu.txt"
trap finish EXIT
if [[ -n $build ]]; then build_it; fi
[[ -z $stopped ]] || exit
: "${total_s:=$(($(elapsed) / 1000 + checks_s))}"

export LEVIN_GPU_BIN=$folder/bin LEVIN_GPU_PYTHON=$python
if [[ $python == /* ]]; then export PATH=${python%/*}:$PATH; fi  # python3 is that one for whatever a check starts
unset PYTHONPYCACHEPREFIX  # so that Python takes what lies compiled beside torch
if [[ -z $cards && -z $dry_run ]]; then
  state="no GPU"
  for i in "${!names[@]}"; do states[i]="not run" reasons[i]="no GPU"; done
  if [[ $build_state == red || $build_state == cut ]]; then exit 1; fi
  if [[ -n $build ]]; then say "no GPU: built, nothing run"; else say "no GPU: nothing run"; fi
  exit
fi
if [[ -n $dry_run ]]; then export LEVIN_GPU_TESTS_DEVICE=cpu; fi
for i in "${!names[@]}"; do
  [[ $build_state != cut ]] || break
  run_check "$i"
  [[ -z $stopped ]] || exit
  line_of "$i"
done

failed=() counts=""
for i in "${!names[@]}"; do
  if has_failed "$i"; then failed+=("${names[i]}"); fi
done
for i in green red "ran past" cut skipped "not reached"; do
  number=$(printf '%s\n' "${states[@]}" | grep -cxF "$i" || true)
  if ((number > 0)); then counts+=", $number $i"; fi
done
state=complete
if [[ $counts == *cut* || $counts == *"not reached"* ]]; then state="out of time"; fi
write_table
sed -n '/^== /,$p' "$output/gpu.txt"
say "${counts#, }, $(as_seconds "$(elapsed)") s; $output/gpu.json and gpu.txt have all of it"
[[ $build_state != red && $build_state != cut ]] && ((${#failed[@]} == 0)) || exit 1
