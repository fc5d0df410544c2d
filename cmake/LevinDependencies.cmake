# The libraries levin's own sources use; none of them shows in a public header.
#
# fmt is the one inside LibTorch, header-only. Debian's fmt and spdlog must not be mixed with it.
find_package(ZLIB REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

function(_levin_header variable header package)
  find_path(${variable} ${header})
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
target_link_libraries(levin_dependencies INTERFACE levin::torch ZLIB::ZLIB CLI11::CLI11 nlohmann_json::nlohmann_json)
