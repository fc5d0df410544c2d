# Finds MPI libraries and makes of each a module that liblevin loads: levin_mpi_openmpi,
# levin_mpi_mpich. liblevin itself is the same with and without them.
#
# Asked are the compiler wrappers, which every MPI has: MPI_C_COMPILER or MPI_CXX_COMPILER where
# given, Debian's mpicc.openmpi and mpicc.mpich, which stand side by side, and mpicc. FindMPI finds
# one MPI and not two.
set(LEVIN_WITH_MPI AUTO CACHE STRING "Build the modules of the mpi backend: AUTO (where found), ON, OFF")
include(GNUInstallDirs)

# The family of a wrapper's MPI, openmpi or mpich, "" when it has none; its folders and its link line.
function(_levin_ask_mpi wrapper family includes link)
  set(${family} "" PARENT_SCOPE)
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE line RESULT_VARIABLE failed ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(probe "${CMAKE_CURRENT_BINARY_DIR}/probe_mpi.c")
  file(WRITE ${probe} "#include <mpi.h>\n")
  execute_process(COMMAND ${wrapper} -E -dM ${probe} OUTPUT_VARIABLE macros ERROR_QUIET)
  if(failed OR NOT macros MATCHES "#define (OPEN_MPI|MPICH_VERSION|MPICH_NAME|I_MPI_VERSION) ")
    return()
  endif()
  set(found mpich)
  if(CMAKE_MATCH_1 STREQUAL OPEN_MPI)
    set(found openmpi)
  endif()
  separate_arguments(words UNIX_COMMAND "${line}")
  set(folders ${words})
  list(FILTER folders INCLUDE REGEX "^-I")
  list(TRANSFORM folders REPLACE "^-I" "")
  list(FILTER words INCLUDE REGEX "^-(L|l|Wl,)")
  set(${family} ${found} PARENT_SCOPE)
  set(${includes} ${folders} PARENT_SCOPE)
  set(${link} ${words} PARENT_SCOPE)
endfunction()

# LEVIN_MPIRUN_<family> is the mpirun beside the wrapper, for the tests.
function(_levin_mpi_module wrapper)
  _levin_ask_mpi(${wrapper} family includes link)
  if(NOT family OR TARGET levin_mpi_${family})
    return()
  endif()
  add_library(levin_mpi_${family} MODULE mpi/module.cpp)
  target_include_directories(levin_mpi_${family} SYSTEM PRIVATE ${includes})
  target_include_directories(levin_mpi_${family} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_features(levin_mpi_${family} PRIVATE cxx_std_20)
  target_link_libraries(levin_mpi_${family} PRIVATE $<BUILD_INTERFACE:levin_flags> ${link})
  install(TARGETS levin_mpi_${family} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  string(REGEX REPLACE "mpi[a-z+]*([^/]*)$" "mpirun\\1" mpirun "${wrapper}")
  cmake_path(GET wrapper PARENT_PATH folder)
  find_program(LEVIN_MPIRUN_${family} NAMES ${mpirun} mpirun.${family} mpirun HINTS ${folder})
  message(STATUS "levin: MPI ${family}, by ${wrapper}")
endfunction()

if(LEVIN_WITH_MPI)  # AUTO counts as true
  foreach(name IN ITEMS mpicc.openmpi mpicc.mpich mpicc)
    find_program(LEVIN_WRAPPER_${name} ${name})
    mark_as_advanced(LEVIN_WRAPPER_${name})
  endforeach()
  foreach(wrapper IN ITEMS "${MPI_C_COMPILER}" "${MPI_CXX_COMPILER}" "${LEVIN_WRAPPER_mpicc.openmpi}"
                           "${LEVIN_WRAPPER_mpicc.mpich}" "${LEVIN_WRAPPER_mpicc}")
    if(wrapper)
      _levin_mpi_module("${wrapper}")
    endif()
  endforeach()
  if(LEVIN_WITH_MPI STREQUAL ON AND NOT TARGET levin_mpi_openmpi AND NOT TARGET levin_mpi_mpich)
    message(FATAL_ERROR "levin: LEVIN_WITH_MPI=ON and no mpicc found; install libopenmpi-dev or "
      "libmpich-dev (Debian, Ubuntu), or give -DMPI_C_COMPILER=FILE")
  endif()
endif()
