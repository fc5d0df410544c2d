# Run by ctest with SOURCE and FOLDER: what scripts/gpu_check.sh makes of checks that pass, fail, are skipped and hang,
# with an nvidia-smi that pretends a card; and that scripts/gpu_pack.sh knows a pack that was changed.
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE "${FOLDER}")
set(failures "")
function(wants what condition_got wanted)
  if(NOT condition_got MATCHES "${wanted}")
    set(failures "${failures}\n${what}: wanted ${wanted}, got: ${condition_got}" PARENT_SCOPE)
  endif()
endfunction()

# One card; with NO_CARD in the environment, a driver that does not answer.
file(WRITE "${FOLDER}/bin/nvidia-smi" [=[#!/bin/sh
if [ -n "$NO_CARD" ]; then echo "has failed because it could not communicate with the driver" >&2; exit 9; fi
case "$*" in
  *query-gpu*) echo "NVIDIA Pretended 1, 580.00, 81559, 9.0" ;;
  *) echo "| NVIDIA-SMI 580.00   Driver Version: 580.00   CUDA Version: 13.0 |" ;;
esac
]=])
file(CHMOD "${FOLDER}/bin/nvidia-smi" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

# check(NAME ARGUMENT...): code, output, and gpu.json as json.
function(check name)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "PATH=${FOLDER}/bin:$ENV{PATH}"
      bash "${SOURCE}/scripts/gpu_check.sh" --skip-build --checks "${FOLDER}/checks.txt" --output "${FOLDER}/${name}" ${ARGN}
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(json "{}")
  if(EXISTS "${FOLDER}/${name}/gpu.json")
    file(READ "${FOLDER}/${name}/gpu.json" json)
  endif()
  foreach(result IN ITEMS code output json)
    set(${result} "${${result}}" PARENT_SCOPE)
  endforeach()
endfunction()
# field(PATH WANTED): of json.
function(field path wanted)
  string(REPLACE "." ";" keys "${path}")
  string(JSON got ERROR_VARIABLE trouble GET "${json}" ${keys})
  if(NOT got MATCHES "^(${wanted})$")
    set(failures "${failures}\n${path} of gpu.json: wanted ${wanted}, got: ${got} ${trouble}" PARENT_SCOPE)
  endif()
endfunction()
# ended(FILE): the process whose number is in the file. One that nobody has waited for has no environment any more.
function(ended file)
  file(STRINGS "${file}" process)
  execute_process(COMMAND cat "/proc/${process}/environ" OUTPUT_VARIABLE environment ERROR_QUIET)
  if(environment)
    set(failures "${failures}\nthe process in ${file} is still there" PARENT_SCOPE)
  endif()
endfunction()

# The order, each state, and what is written of them.
file(WRITE "${FOLDER}/checks.txt" [=[
# name | limit | command
passes  | 600 | echo passes >>"$FOLDER/order"; echo '{"name": "mlp", "tokens_s": 0.1, "note": "a;b [c]"}' >"$LEVIN_GPU_JSON"
fails   | 600 | echo fails >>"$FOLDER/order"; printf '{"name": "cut off' >"$LEVIN_GPU_JSON"; echo 'the "reason" \ it gave'; exit 3
skipped | 600 | echo skipped >>"$FOLDER/order"; echo words; echo 'skipped: no "NCCL" here'; exit 77
hangs   | 1 | echo hangs >>"$FOLDER/order"; setsid sleep 86400 & echo $! >"$FOLDER/left"; sleep 86400 & echo $! >"$FOLDER/hung"; wait
crashes | 600 | echo crashes >>"$FOLDER/order"; kill -SEGV $$
places  | 600 | echo places >>"$FOLDER/order"; test -d "$LEVIN_GPU_SCRATCH" && test -n "$LEVIN_GPU_BIN" && touch "$LEVIN_GPU_SCRATCH/x" && pwd
]=])
set(ENV{FOLDER} "${FOLDER}")
check(all)
wants("code" "${code}" "^1$")
wants("output" "${output}" "green +[0-9.]+ s  passes\nred +[0-9.]+ s  fails: exit code 3\nskipped .*no \"NCCL\" here\nran past +[0-9.]+ s  hangs: ran past 1 s\nred +[0-9.]+ s  crashes: ended by SIGSEGV\ngreen .* places\n")
wants("output" "${output}" "== the last lines of fails .*the \"reason\" . it gave")
wants("output" "${output}" "2 green, 2 red, 1 ran past, 1 skipped")
file(READ "${FOLDER}/order" order)
wants("the order" "${order}" "^passes\nfails\nskipped\nhangs\ncrashes\nplaces\n$")
field(state complete)
field(gpus.0.name "NVIDIA Pretended 1")
field(gpus.0.driver "580\\.00")
field(gpus.0.memory_mib 81559)
field(driver_cuda "13\\.0")
field(levin.sources_sha256 "[0-9a-f]+")
set(number 0)
foreach(entry IN ITEMS "passes green 0" "fails red 3" "skipped skipped 77" "hangs ran_past null" "crashes red 139" "places green 0")
  string(REPLACE " " ";" entry "${entry}")
  list(GET entry 0 name)
  list(GET entry 1 state)
  string(REPLACE "_" " " state "${state}")
  field(checks.${number}.name "${name}")
  field(checks.${number}.state "${state}")
  field(checks.${number}.seconds "[0-9.]+")
  list(GET entry 2 exit_code)
  if(exit_code STREQUAL "null")
    set(exit_code "")
  endif()
  field(checks.${number}.exit_code "${exit_code}")
  math(EXPR number "${number} + 1")
endforeach()
field(checks.2.reason "no \"NCCL\" here")
field(rows.0.check passes)
field(rows.0.tokens_s "0\\.1[0-9]*")
field(rows.0.note "a;b \\[c\\]")
field(rows.1.check fails)
field(rows.1.trouble ".*no JSON object")
foreach(file IN ITEMS left hung)
  ended("${FOLDER}/${file}")
endforeach()
if(NOT EXISTS "${FOLDER}/all/gpu.txt" OR NOT EXISTS "${FOLDER}/all/logs/crashes.log")
  set(failures "${failures}\nno gpu.txt or no logs")
endif()

# Some of them, and what is no table.
check(some --only "^p")
wants("some" "${code} ${output}" "^0 green .*passes\ngreen .*places\nlevin: 2 green,")
check(none --only "^z")
wants("none" "${code} ${output}" "^1 levin: no check in .* matches --only \\^z")
file(WRITE "${FOLDER}/checks.txt" "a | 5 | true\na | 5 | true\n")
check(twice)
wants("twice" "${code} ${output}" "^1 .*checks\\.txt:2: got a second check of the name a")
file(WRITE "${FOLDER}/checks.txt" "a | soon | true\n")
check(limitless)
wants("limitless" "${code} ${output}" "^1 .*checks\\.txt:1: got 'a | soon")
check(unknown --faster)
wants("unknown" "${code} ${output}" "^1 levin: got '--faster', which is no option")

# The time in all: what is under way is cut, and the rest is not reached. On a busy machine it is over before.
file(WRITE "${FOLDER}/checks.txt" "long | 3600 | sleep 86400\nlater | 5 | true\n")
check(short --seconds 6)
wants("the time in all" "${output}" "(cut .* long: 6 s in all were over|not reached .* long)\nnot reached .* later\n.*not reached")
field(state "out of time")
field(checks.1.state "not reached")

# SIGTERM, once the check has begun: its processes end, and gpu.json is written.
file(WRITE "${FOLDER}/checks.txt" "waits | 86400 | sleep 86400 & echo $! >\"$FOLDER/begun.new\"; mv \"$FOLDER/begun.new\" \"$FOLDER/begun\"; wait\nlater | 5 | true\n")
execute_process(COMMAND ${CMAKE_COMMAND} -E env "PATH=${FOLDER}/bin:$ENV{PATH}" bash -c
    "bash '${SOURCE}/scripts/gpu_check.sh' --skip-build --checks '${FOLDER}/checks.txt' --output '${FOLDER}/ended' & process=$!
     until [[ -e '${FOLDER}/begun' ]]; do sleep 0.1; done
     kill -TERM $process; wait $process"
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
wants("SIGTERM" "${code} ${output}" "^143 levin: ended by SIGTERM")
file(READ "${FOLDER}/ended/gpu.json" json)
field(state stopped)
field(checks.0.state stopped)
field(checks.0.reason "by SIGTERM")
field(checks.1.state "not reached")
ended("${FOLDER}/begun")

# No card.
set(ENV{NO_CARD} 1)
check(without)
wants("without a card" "${code} ${output}" "^0 levin: no GPU: nothing run\n$")
field(state "no GPU")
field(checks.0.state "not run")
field(checks.0.reason "no GPU")
file(WRITE "${FOLDER}/checks.txt" "on-the-cpu | 600 | test \"$LEVIN_GPU_TESTS_DEVICE\" = cpu\n")
check(dry --dry-run)
wants("a dry run" "${code} ${output}" "^0 green .* on-the-cpu\n")
field(dry_run "ON|true")
unset(ENV{NO_CARD})

# What is missing is named before anything is built.
file(WRITE "${FOLDER}/cpu/torch/include/torch/csrc/api/include/torch/torch.h" "")
execute_process(COMMAND ${CMAKE_COMMAND} -E env "LEVIN_LIBTORCH=${FOLDER}/cpu" bash "${SOURCE}/scripts/gpu_check.sh"
    --output "${FOLDER}/missing"
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
wants("a LibTorch for CPUs" "${code} ${output}"
  "^1 .*these are missing:.*\n  a CUDA build of LibTorch: the one in ${FOLDER}/cpu/torch is for CPUs\n")
if(EXISTS "${FOLDER}/missing")
  set(failures "${failures}\nsomething was written although something was missing")
endif()

# What gpu_tests says, as an exit code.
file(WRITE "${FOLDER}/programs/gpu_tests" [=[#!/bin/sh
for argument; do
  case $argument in
    --gtest_output=json:*) report=${argument#--gtest_output=json:} ;;
    --gtest_filter=*) filter=${argument#--gtest_filter=} ;;
  esac
done
case $filter in
  Run*) echo '"result": "COMPLETED"' >"$report" ;;
  Skipped*) echo '"result": "SKIPPED"' >"$report"; echo 'file.cpp:3: Skipped'; echo 'no GPU' ;;
  None*) echo '{}' >"$report" ;;
  Red*) exit 1 ;;
esac
]=])
file(CHMOD "${FOLDER}/programs/gpu_tests" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
foreach(entry IN ITEMS "Run:0 1 tests passed, 0 skipped" "Skipped:77 file.*skipped: no GPU" "None:1 no test of gpu_tests matches None" "Red:1 ")
  string(REGEX MATCH "^([A-Za-z]+):(.*)$" entry "${entry}")
  set(wanted "${CMAKE_MATCH_2}")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "LEVIN_GPU_BIN=${FOLDER}/programs" "LEVIN_GPU_SCRATCH=${FOLDER}"
      bash "${SOURCE}/scripts/gpu_tests.sh" "${CMAKE_MATCH_1}"
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  wants("gpu_tests.sh" "${code} ${output}" "^${wanted}")
endforeach()

# A pack is whole, and a byte of it changed is seen.
execute_process(COMMAND bash "${SOURCE}/scripts/gpu_pack.sh" "${FOLDER}/pack"
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
wants("the pack" "${code} ${output}" "^0 .*packed into")
execute_process(COMMAND bash "${SOURCE}/scripts/gpu_pack.sh" --check "${FOLDER}/pack"
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
wants("the pack, looked at" "${code} ${output}" "^0 .*the pack is whole")
file(APPEND "${FOLDER}/pack/include/xxhash.h" "\n")
execute_process(COMMAND bash "${SOURCE}/scripts/gpu_pack.sh" --check "${FOLDER}/pack"
  RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
wants("the changed pack" "${code} ${output}" "^1 .*xxhash\\.h.*not as they were packed")

if(failures)
  message(FATAL_ERROR "${failures}")
endif()
