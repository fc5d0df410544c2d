# Finds LibTorch and makes the target levin::torch from its folders and libraries alone.
#
# Taken is what LEVIN_LIBTORCH names (variable, then environment); else, in this order: the one that this
# build folder was configured with before, .deps/libtorch of this checkout, CMAKE_PREFIX_PATH, a torch
# package that the found Python can see. TorchConfig.cmake is not used: it asks for the CUDA toolkit in a
# CUDA build, and its variables hold absolute paths that an installed package must not carry.

if(TARGET levin::torch)
  return()
endif()

# The folder of LibTorch that is FOLDER or stands in it, "" when none is.
function(_levin_torch_in folder result)
  set(${result} "" PARENT_SCOPE)
  foreach(root IN ITEMS "${folder}" "${folder}/torch" "${folder}/libtorch")
    if(folder AND EXISTS "${root}/include/torch/csrc/api/include/torch/torch.h")
      set(${result} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(_levin_torch_root result)
  foreach(named IN ITEMS "${LEVIN_LIBTORCH}" "$ENV{LEVIN_LIBTORCH}")
    _levin_torch_in("${named}" root)
    if(root)
      set(${result} "${root}" PARENT_SCOPE)
      return()
    elseif(named)  # another one in its place would be a surprise
      message(FATAL_ERROR
        "levin: no LibTorch in LEVIN_LIBTORCH=${named}; wanted the folder that holds include/ and lib/")
    endif()
  endforeach()
  foreach(folder IN ITEMS "${LEVIN_LIBTORCH_FOUND}" "${CMAKE_CURRENT_SOURCE_DIR}/.deps/libtorch/torch")
    _levin_torch_in("${folder}" root)
    if(root)
      set(${result} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  find_path(_levin_torch_api torch/torch.h PATH_SUFFIXES include/torch/csrc/api/include NO_CACHE)
  if(_levin_torch_api)
    cmake_path(SET root NORMALIZE "${_levin_torch_api}/../../../../..")
    string(REGEX REPLACE "/$" "" root "${root}")
    set(${result} "${root}" PARENT_SCOPE)
    return()
  endif()
  find_program(_levin_python python3 NO_CACHE)
  if(_levin_python)
    execute_process(
      COMMAND ${_levin_python} -c
        "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(found AND EXISTS "${found}/include/torch/csrc/api/include/torch/torch.h")
      set(${result} "${found}" PARENT_SCOPE)
      return()
    endif()
  endif()
  message(FATAL_ERROR
    "levin: LibTorch not found; give -DLEVIN_LIBTORCH=DIR (the folder that holds include/ and lib/), "
    "or run `make setup` in levin's checkout, which fetches it")
endfunction()

_levin_torch_root(LEVIN_TORCH_ROOT)
# A build folder is configured again in shells that know nothing of the first one's environment.
set(LEVIN_LIBTORCH_FOUND "${LEVIN_TORCH_ROOT}" CACHE INTERNAL "The LibTorch of the last configuration")

set(LEVIN_TORCH_VERSION "unknown")
if(EXISTS "${LEVIN_TORCH_ROOT}/include/torch/headeronly/version.h")
  file(STRINGS "${LEVIN_TORCH_ROOT}/include/torch/headeronly/version.h" _levin_version
       REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
else()
  file(STRINGS "${LEVIN_TORCH_ROOT}/include/torch/csrc/api/include/torch/version.h" _levin_version
       REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
endif()
string(REGEX REPLACE "[^0-9;]+" "" _levin_version "${_levin_version}")
list(JOIN _levin_version "." LEVIN_TORCH_VERSION)
if(NOT LEVIN_TORCH_VERSION MATCHES "^[0-9]+\\.[0-9]+\\.")
  message(FATAL_ERROR "levin: LibTorch in ${LEVIN_TORCH_ROOT} does not say its version in "
    "include/torch/headeronly/version.h or include/torch/csrc/api/include/torch/version.h")
endif()

set(LEVIN_TORCH_CUDA OFF)
if(EXISTS "${LEVIN_TORCH_ROOT}/lib/libtorch_cuda.so")
  set(LEVIN_TORCH_CUDA ON)
endif()

function(_levin_import name)
  add_library(levin::${name} SHARED IMPORTED)
  set_target_properties(levin::${name} PROPERTIES
    IMPORTED_LOCATION "${LEVIN_TORCH_ROOT}/lib/lib${name}.so")
endfunction()

_levin_import(c10)
_levin_import(torch_cpu)
add_library(levin::torch INTERFACE IMPORTED)
target_include_directories(levin::torch SYSTEM INTERFACE
  "${LEVIN_TORCH_ROOT}/include" "${LEVIN_TORCH_ROOT}/include/torch/csrc/api/include")
target_link_libraries(levin::torch INTERFACE levin::torch_cpu levin::c10)
if(LEVIN_TORCH_CUDA)
  _levin_import(c10_cuda)
  _levin_import(torch_cuda)
  # torch_cuda registers its kernels when it is loaded and no symbol of it is named by us; the
  # CUDA libraries it needs lie in other packages and are found when the program starts.
  target_link_libraries(levin::torch INTERFACE
    -Wl,--no-as-needed levin::torch_cuda levin::c10_cuda -Wl,--as-needed -Wl,--allow-shlib-undefined)
endif()
message(STATUS "levin: LibTorch ${LEVIN_TORCH_VERSION}, CUDA ${LEVIN_TORCH_CUDA}, in ${LEVIN_TORCH_ROOT}")
