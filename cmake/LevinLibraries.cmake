# levin::levin is two libraries: levin::core trains, and levin::models has the tokenizers and the models of Hugging
# Face. A program that needs no texts links levin::core alone, and waits for the other in no build.
add_library(levin_core)
add_library(levin INTERFACE)
target_link_libraries(levin INTERFACE levin_core)
set_target_properties(levin_core PROPERTIES OUTPUT_NAME levin)
target_link_libraries(levin_core PUBLIC levin::torch)
target_compile_features(levin_core PUBLIC cxx_std_20)
target_include_directories(levin_core PUBLIC
  "$<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:include>")
# training_step has two forms, of which a module overrides one.
target_compile_options(levin_core INTERFACE
  $<INSTALL_INTERFACE:$<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-overloaded-virtual>>)
target_precompile_headers(levin_core PRIVATE cmake/precompiled.h)
set(LEVIN_LIBRARIES levin_core)
set(LEVIN_MODELS_ROOMS text models)  # what levin::models holds; the rest is levin::core's

if("text" IN_LIST LEVIN_ROOMS)
  add_library(levin_models)
  target_link_libraries(levin_models PUBLIC levin_core)
  target_link_libraries(levin INTERFACE levin_models)
  target_precompile_headers(levin_models REUSE_FROM levin_core)
  list(APPEND LEVIN_LIBRARIES levin_models)
endif()

foreach(library IN LISTS LEVIN_LIBRARIES)
  string(REPLACE "levin_" "" name ${library})
  add_library(levin::${name} ALIAS ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name}
    POSITION_INDEPENDENT_CODE OFF DEFINE_SYMBOL "" VERSION ${PROJECT_VERSION} SOVERSION 0
    UNITY_BUILD_MODE GROUP)
  target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:levin_flags> $<BUILD_INTERFACE:levin_dependencies>)
endforeach()
add_library(levin::levin ALIAS levin)
