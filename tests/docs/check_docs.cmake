# Run by ctest with SOURCE and the programs LEVIN, TRAINER, LOOP and CLI.
cmake_minimum_required(VERSION 3.22)

set(known "")
foreach(command IN ITEMS "${TRAINER}" "${LOOP}" "${CLI};fit" "${CLI};predict" "${CLI};lr-find" "${LEVIN}" "${LEVIN};run" "${LEVIN};env" "${LEVIN};plan" "${LEVIN};export"
    "${LEVIN};generate" "${LEVIN};finetune;classify" "${LEVIN};graph" "${LEVIN};help" "${LEVIN};config" "${LEVIN};test" "${LEVIN};tokenize" "${LEVIN};xla;check" "${LEVIN};ckpt"
    "${LEVIN};ckpt;inspect" "${LEVIN};ckpt;verify" "${LEVIN};ckpt;diff" "${LEVIN};ckpt;convert" "${LEVIN};ckpt;merge"
    "${SOURCE}/scripts/gpu_check.sh")
  execute_process(COMMAND ${command} --help OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${command} --help ended with ${code}:\n${output}")
  endif()
  string(APPEND known " ${output}")
endforeach()
string(REGEX MATCHALL "--[a-z][a-z0-9_-]*" known "${known}")
# Of other programs (CMake, torchrun, srun, the benchmarks' scripts), or stand-ins for the reader's own.
list(APPEND known --its-flags --folder --levin-bin --times --tokenizers --query --out --results --build --gtest_filter --prefix --nodes --ntasks-per-node --allow-run-as-root --no-python --build-arg --preset)
# Of a program whose module leaves its optimizer to the flags; tests/trainer/cli_flags_test.cpp has one.
list(APPEND known --optimizer --lr-scheduler)

set(wrong "")
file(GLOB guides "${SOURCE}/README.md" "${SOURCE}/CONTRIBUTING.md" "${SOURCE}/docs/*.md")
foreach(guide IN LISTS guides)
  file(READ "${guide}" text)
  string(REGEX REPLACE "[][;]" " " plain "${text}")  # what separates CMake's lists
  file(RELATIVE_PATH name "${SOURCE}" "${guide}")

  string(REGEX MATCHALL "[ \n`(|]--[a-z][a-z0-9_-]*" flags "${plain}")
  foreach(flag IN LISTS flags)
    string(SUBSTRING "${flag}" 1 -1 flag)
    if(NOT flag IN_LIST known)
      string(APPEND wrong "${name}: no program takes ${flag}\n")
    endif()
  endforeach()

  string(REGEX MATCHALL "`(levin|examples|bench|tests|docs|tools|cmake|scripts)/[A-Za-z0-9_./*]*`" paths "${plain}")
  foreach(path IN LISTS paths)
    string(REPLACE "`" "" path "${path}")
    string(REGEX REPLACE "/$" "" path "${path}")
    # A source may be named without its ending.
    file(GLOB found "${SOURCE}/${path}" "${SOURCE}/${path}.*" "${SOURCE}/levin/${path}")
    if(NOT found)
      string(APPEND wrong "${name}: there is no ${path}\n")
    endif()
  endforeach()
endforeach()

# Flags that error texts and warnings name. The exceptions are hidden flags and lines for sbatch.
list(APPEND known --in-rank --token-from-input --signals-from-input --print_config --help_all --job-name --requeue --open-mode --signal --gpus-per-node)
file(GLOB_RECURSE sources "${SOURCE}/levin/*.cpp" "${SOURCE}/levin/*.h" "${SOURCE}/tools/*.cpp" "${SOURCE}/tools/*.h")
foreach(source IN LISTS sources)
  file(READ "${source}" text)
  string(REGEX REPLACE "[][;]" " " text "${text}")  # what separates CMake's lists
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  file(RELATIVE_PATH name "${SOURCE}" "${source}")
  string(REGEX MATCHALL "\"[^\"\n]*--[a-z][^\"\n]*\"" texts "${text}")
  string(REGEX MATCHALL "--[a-z][a-z0-9_-]*" flags "${texts}")
  foreach(flag IN LISTS flags)
    if(NOT flag IN_LIST known)
      string(APPEND wrong "${name}: no program takes ${flag}\n")
    endif()
  endforeach()
endforeach()

# levin's own variables that the scripts read; tests/layers looks for those of the sources.
file(READ "${SOURCE}/docs/environment.md" documented)
file(GLOB scripts "${SOURCE}/scripts/*.sh")
foreach(script IN LISTS scripts)
  file(READ "${script}" text)
  string(REGEX MATCHALL "\\$\\{?LEVIN_[A-Z0-9_]+" variables "${text}")
  foreach(variable IN LISTS variables)
    string(REGEX REPLACE "[\${]" "" variable "${variable}")
    if(NOT documented MATCHES "`${variable}`")
      string(APPEND wrong "docs/environment.md: ${variable} of ${script} is not there\n")
    endif()
  endforeach()
endforeach()
if(wrong)
  message(FATAL_ERROR "${wrong}")
endif()
