# The libraries that a program can link, each by itself: levin::core trains; levin::text has the tokenizers and
# datasets of texts; levin::models has the models of Hugging Face; levin::xla runs on devices of XLA (TPUs).
# levin::levin is all of them. A shared levin::xla is not linked to a program: levin::core loads it when the program
# first opens such a device (levin/xla/library.h).
set(LEVIN_LIBRARIES)
function(levin_library name)
  cmake_parse_arguments(PARSE_ARGV 1 library "" "" "ROOMS;LINKS")
  add_library(levin_${name})
  add_library(levin::${name} ALIAS levin_${name})
  set_target_properties(levin_${name} PROPERTIES EXPORT_NAME ${name}
    POSITION_INDEPENDENT_CODE OFF DEFINE_SYMBOL "" VERSION ${PROJECT_VERSION} SOVERSION 0
    UNITY_BUILD_MODE GROUP)
  target_link_libraries(levin_${name} PUBLIC ${library_LINKS}
    PRIVATE $<BUILD_INTERFACE:levin_flags> $<BUILD_INTERFACE:levin_dependencies>)
  if(name STREQUAL core)
    target_precompile_headers(levin_core PRIVATE cmake/precompiled.h)
  else()
    target_precompile_headers(levin_${name} REUSE_FROM levin_core)
  endif()
  if(NOT LEVIN_SANITIZE AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    # levin::core calls nothing of the others.
    target_link_options(levin_${name} PRIVATE LINKER:--no-undefined)
  endif()
  foreach(room IN LISTS library_ROOMS)
    set(LEVIN_LIBRARY_OF_${room} levin_${name} PARENT_SCOPE)
  endforeach()
  list(APPEND LEVIN_LIBRARIES levin_${name})
  set(LEVIN_LIBRARIES ${LEVIN_LIBRARIES} PARENT_SCOPE)
endfunction()

levin_library(core LINKS levin::torch)  # all rooms that no other library has
set_target_properties(levin_core PROPERTIES OUTPUT_NAME levin)
target_compile_features(levin_core PUBLIC cxx_std_20)
target_include_directories(levin_core PUBLIC
  "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:include>")
# training_step has two forms, of which a module overrides one.
target_compile_options(levin_core INTERFACE
  $<INSTALL_INTERFACE:$<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-overloaded-virtual>>)

add_library(levin INTERFACE)
add_library(levin::levin ALIAS levin)
target_link_libraries(levin INTERFACE levin_core)
if("rows" IN_LIST LEVIN_ROOMS)
  levin_library(text LINKS levin_core ROOMS text rows)
  target_link_libraries(levin INTERFACE levin_text)
endif()
if("models" IN_LIST LEVIN_ROOMS)
  levin_library(models LINKS levin_text ROOMS models)
  target_link_libraries(levin INTERFACE levin_models)
endif()
if("xla" IN_LIST LEVIN_ROOMS)
  levin_library(xla LINKS levin_core ROOMS xla)
  if(BUILD_SHARED_LIBS)
    add_dependencies(levin levin_xla)
  else()
    target_link_libraries(levin INTERFACE levin_xla)
    target_link_options(levin_xla INTERFACE LINKER:--undefined=levin_xla_library)
  endif()
endif()
