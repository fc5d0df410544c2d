# Finds what comm/nccl and graph/cuda_graphs compile against: the headers of CUDA's run time and of
# NCCL, in the packages that pip installs beside a CUDA build of LibTorch, or in a CUDA toolkit. The
# libraries themselves are LibTorch's to load. Nothing here is remembered between two configurations:
# LibTorch, or the packages beside it, may have become others.
#
# LEVIN_HAS_NCCL and LEVIN_HAS_CUDA_GRAPHS are what came out. Each chooses a source and defines no macro:
# one precompiled header serves the library, the tests and the programs, and must be compiled alike.

unset(LEVIN_HAS_NCCL CACHE)
unset(LEVIN_HAS_CUDA_GRAPHS CACHE)
if(NOT LEVIN_TORCH_CUDA)
  return()
endif()

# A toolkit brings CUDA's own headers (crt/ and, from CUDA 13 on, cccl/) and not always those of its libraries
# (cuBLAS, cuSPARSE, cuSOLVER, NCCL). pip's packages beside LibTorch bring the libraries' and not always crt and
# cccl. Both are searched therefore, the packages first. Where there is no toolkit, LEVIN_PACK may stand in.
file(GLOB _levin_nvidia "${LEVIN_TORCH_ROOT}/../nvidia/*/include")
find_path(_levin_cuda cuda_runtime_api.h
  HINTS ${_levin_nvidia} ENV CUDA_HOME PATHS /usr/local/cuda "${LEVIN_PACK}/cuda" PATH_SUFFIXES include NO_CACHE)
find_path(_levin_nccl nccl.h
  HINTS ${_levin_nvidia} ENV NCCL_HOME PATHS /usr/local/cuda PATH_SUFFIXES include NO_CACHE)
set(_levin_wanted "cuda_runtime.h with crt/host_config.h and nv/target, as the packages "
  "nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl or a CUDA toolkit bring them")
string(JOIN "" _levin_wanted ${_levin_wanted})
foreach(_levin_folder IN ITEMS _levin_cuda _levin_nccl)
  string(REGEX REPLACE "/$" "" ${_levin_folder} "${${_levin_folder}}")
endforeach()
if(NOT _levin_cuda)
  message(WARNING "levin: no NCCL and no CUDA graphs; wanted ${_levin_wanted}")
  return()
endif()

# Headers of another CUDA would compile, and lay things out as LibTorch does not.
file(STRINGS "${LEVIN_TORCH_ROOT}/lib/libc10_cuda.so" _levin_runtime REGEX "libcudart[^ ]*\\.so\\.[0-9]+")
string(REGEX REPLACE ".*libcudart[^ ]*\\.so\\.([0-9]+).*" "\\1" _levin_runtime "${_levin_runtime}")
function(_levin_cuda_of folder result)
  set(version "")
  if(EXISTS "${folder}/cuda_runtime_api.h")
    file(STRINGS "${folder}/cuda_runtime_api.h" version REGEX "define CUDART_VERSION +[0-9]+")
    string(REGEX REPLACE ".*CUDART_VERSION +([0-9]+)[0-9][0-9][0-9].*" "\\1" version "${version}")
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()
_levin_cuda_of("${_levin_cuda}" _levin_headers)
if(NOT _levin_runtime STREQUAL _levin_headers)
  message(WARNING "levin: no NCCL and no CUDA graphs; LibTorch is for CUDA ${_levin_runtime} and "
    "${_levin_cuda}/cuda_runtime_api.h of CUDA ${_levin_headers}; give CUDA_HOME=DIR with that of LibTorch")
  return()
endif()

# These headers include others, which packages cut differently from version to version.
include(CheckCXXSourceCompiles)
function(_levin_compiles result)
  set(CMAKE_REQUIRED_INCLUDES "${LEVIN_TORCH_ROOT}/include" ${_levin_includes})
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  set(source ${ARGN})
  list(TRANSFORM source REPLACE "(.+)" "#include <\\1>\n")
  list(JOIN source "" source)
  check_cxx_source_compiles("${source}int main() {}" ${result})
endfunction()

set(_levin_includes "${_levin_cuda}" ${_levin_nvidia})
foreach(_levin_folder IN ITEMS "$ENV{CUDA_HOME}" /usr/local/cuda "${LEVIN_PACK}/cuda")
  _levin_cuda_of("${_levin_folder}/include" _levin_version)
  if(_levin_version STREQUAL _levin_runtime)
    list(APPEND _levin_includes "${_levin_folder}/include" "${_levin_folder}/include/cccl")
    break()
  endif()
endforeach()
list(REMOVE_DUPLICATES _levin_includes)
_levin_compiles(LEVIN_HAS_CUDA_GRAPHS ATen/cuda/CUDAGraph.h)
if(LEVIN_HAS_CUDA_GRAPHS)
  message(STATUS "levin: CUDA graphs, by ${_levin_cuda}/cuda_runtime_api.h")
else()
  message(WARNING "levin: no CUDA graphs; wanted what ATen/cuda/CUDAGraph.h includes: ${_levin_wanted}")
endif()
if(_levin_nccl)
  list(APPEND _levin_includes "${_levin_nccl}")
  _levin_compiles(LEVIN_HAS_NCCL nccl.h ATen/cuda/CUDAEvent.h)
endif()
if(LEVIN_HAS_NCCL)
  message(STATUS "levin: NCCL, by ${_levin_nccl}/nccl.h")
else()
  message(WARNING "levin: no NCCL, so that GPUs cannot join; wanted nccl.h, as the package nvidia-nccl brings it, "
    "cublas_v2.h, cusparse.h and cusolverDn.h, as nvidia-cublas, nvidia-cusparse and nvidia-cusolver do, and what "
    "they include: ${_levin_wanted}")
endif()
target_include_directories(levin_core SYSTEM PRIVATE ${_levin_includes})
