# The libraries levin's own sources use; none of them shows in a public header.
#
# fmt is the one inside LibTorch, header-only. Debian's fmt and spdlog must not be mixed with it.
#
# LEVIN_PACK, where it is given, is the folder that scripts/gpu_pack.sh made. Its headers are taken, and no
# package is looked for; zlib's library is this machine's, with or without the package that developers install.
set(LEVIN_PACK "" CACHE PATH "Folder of headers that scripts/gpu_pack.sh made, to build without installed packages")
add_library(levin_found INTERFACE)
if(LEVIN_PACK)
  if(NOT EXISTS "${LEVIN_PACK}/include/CLI/CLI.hpp")
    message(FATAL_ERROR "levin: no include/CLI/CLI.hpp in LEVIN_PACK=${LEVIN_PACK}; run scripts/gpu_pack.sh")
  endif()
  find_library(LEVIN_ZLIB NAMES z libz.so.1)
  if(NOT LEVIN_ZLIB)
    message(FATAL_ERROR "levin: neither libz.so nor libz.so.1 found; install zlib (Debian, Ubuntu: zlib1g)")
  endif()
  target_include_directories(levin_found SYSTEM INTERFACE "${LEVIN_PACK}/include")
  target_link_libraries(levin_found INTERFACE "${LEVIN_ZLIB}")
else()
  find_package(ZLIB REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  target_link_libraries(levin_found INTERFACE ZLIB::ZLIB CLI11::CLI11 nlohmann_json::nlohmann_json)
endif()

function(_levin_header variable header package)
  find_path(${variable} ${header} HINTS "${LEVIN_PACK}/include")
  if(NOT ${variable})
    message(FATAL_ERROR "levin: ${header} not found; install ${package} (Debian, Ubuntu), or run `make setup`")
  endif()
endfunction()
_levin_header(LEVIN_TOML_INCLUDE toml++/toml.h libtomlplusplus-dev)
_levin_header(LEVIN_PROTOZERO_INCLUDE protozero/pbf_writer.hpp libprotozero-dev)
_levin_header(LEVIN_BOOST_INCLUDE boost/crc.hpp libboost-dev)
_levin_header(LEVIN_XXHASH_INCLUDE xxhash.h libxxhash-dev)

add_library(levin_dependencies INTERFACE)
target_compile_definitions(levin_dependencies INTERFACE FMT_HEADER_ONLY TOML_HEADER_ONLY=1)
foreach(include IN ITEMS ${LEVIN_TOML_INCLUDE} ${LEVIN_PROTOZERO_INCLUDE} ${LEVIN_BOOST_INCLUDE} ${LEVIN_XXHASH_INCLUDE})
  if(NOT include STREQUAL "/usr/include")
    target_include_directories(levin_dependencies SYSTEM INTERFACE ${include})
  endif()
endforeach()
target_link_libraries(levin_dependencies INTERFACE levin::torch levin_found)
