# Finds what comm/nccl and graph/cuda_graphs compile against: the headers of CUDA's run time and of
# NCCL, in the packages that pip installs beside a CUDA build of LibTorch, or in a CUDA toolkit. The
# libraries themselves are LibTorch's to load.

if(NOT LEVIN_TORCH_CUDA)
  return()
endif()

file(GLOB _levin_nvidia "${LEVIN_TORCH_ROOT}/../nvidia/*/include")
find_path(LEVIN_CUDA_INCLUDE cuda_runtime_api.h
  HINTS ${_levin_nvidia} ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
find_path(LEVIN_NCCL_INCLUDE nccl.h
  HINTS ${_levin_nvidia} ENV NCCL_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
if(LEVIN_CUDA_INCLUDE)
  # That header includes others, which packages cut differently from version to version.
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES
    "${LEVIN_TORCH_ROOT}/include" "${LEVIN_CUDA_INCLUDE}" ${_levin_nvidia})
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  check_cxx_source_compiles("#include <ATen/cuda/CUDAGraph.h>\nint main() {}" LEVIN_HAS_CUDA_GRAPH)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
if(LEVIN_HAS_CUDA_GRAPH)
  message(STATUS "levin: CUDA graphs, by ${LEVIN_CUDA_INCLUDE}/cuda_runtime_api.h")
  target_compile_definitions(levin PRIVATE LEVIN_CUDA)
  target_include_directories(levin SYSTEM PRIVATE "${LEVIN_CUDA_INCLUDE}" ${_levin_nvidia})
else()
  message(STATUS "levin: no CUDA graphs; wanted what ATen/cuda/CUDAGraph.h includes: cuda_runtime_api.h and crt/host_config.h, as the packages nvidia-cuda-runtime and nvidia-cuda-crt or a CUDA toolkit bring them")
endif()
if(LEVIN_CUDA_INCLUDE AND LEVIN_NCCL_INCLUDE)
  message(STATUS "levin: NCCL, by ${LEVIN_NCCL_INCLUDE}/nccl.h")
  target_compile_definitions(levin PRIVATE LEVIN_NCCL)
  target_include_directories(levin SYSTEM PRIVATE "${LEVIN_CUDA_INCLUDE}" "${LEVIN_NCCL_INCLUDE}"
    ${_levin_nvidia})
else()
  message(STATUS "levin: no NCCL; wanted nccl.h and cuda_runtime_api.h, as LibTorch's packages bring them")
endif()
