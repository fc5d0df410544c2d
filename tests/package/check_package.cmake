# Run by ctest with BUILD, SOURCE, TORCH, COMPILER and FOLDER.
cmake_minimum_required(VERSION 3.22)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(first "${FOLDER}/installed")
set(prefix "${FOLDER}/moved")
file(REMOVE_RECURSE "${first}" "${prefix}" "${FOLDER}/consumer")
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${first})
file(RENAME "${first}" "${prefix}")

file(GLOB_RECURSE package "${prefix}/lib*/cmake/levin/*.cmake")
list(LENGTH package files)
if(files LESS 4)
  message(FATAL_ERROR "wanted levinConfig, levinConfigVersion, levinTargets and LevinTorch, got: ${package}")
endif()
foreach(file IN LISTS package)
  file(READ "${file}" text)
  foreach(path IN ITEMS "${SOURCE}" "${BUILD}" "${TORCH}" "${first}")
    string(FIND "${text}" "${path}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} holds the absolute path ${path}")
    endif()
  endforeach()
endforeach()

# The folder of LibTorch is the one path that a binary holds, in its RUNPATH and behind its own place.
file(GLOB library "${prefix}/lib*/liblevin.so")
file(STRINGS "${library}" runpath REGEX "^[$]ORIGIN")
if(NOT runpath STREQUAL "$ORIGIN:${TORCH}/lib")
  message(FATAL_ERROR "${library} looks for LibTorch in '${runpath}', wanted $ORIGIN:${TORCH}/lib")
endif()
file(GLOB binaries "${prefix}/lib*/*.so*" "${prefix}/bin/*")
foreach(file IN LISTS binaries)
  file(STRINGS "${file}" paths REGEX "${SOURCE}/(levin|tools|cmake|build)|${BUILD}|/\\.deps/pjrt")
  if(paths)
    message(FATAL_ERROR "${file} holds paths of the checkout: ${paths}")
  endif()
endforeach()

file(GLOB_RECURSE private "${prefix}/include/*/check.h" "${prefix}/include/*/log.h" "${prefix}/include/*.cpp")
if(private)
  message(FATAL_ERROR "these are for levin's own sources and must not be installed: ${private}")
endif()

# Nothing but the installed package and LibTorch is named; LibTorch the first time alone.
run(${CMAKE_COMMAND} -E env LEVIN_LIBTORCH=${TORCH}
    ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${FOLDER}/consumer
    -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} -E env --unset=LEVIN_LIBTORCH ${CMAKE_COMMAND} ${FOLDER}/consumer)
run(${CMAKE_COMMAND} --build ${FOLDER}/consumer)
run(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${FOLDER}/consumer/consumer
    --default-root-dir ${FOLDER}/consumer)
if(NOT output MATCHES "levin works: 8 steps")
  message(FATAL_ERROR "the user's program wrote: ${output}")
endif()
run(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${prefix}/bin/levin env)
