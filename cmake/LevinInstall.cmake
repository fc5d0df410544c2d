# `cmake --install build --prefix P` and the package levin that find_package() of other projects
# finds below P. Nothing in it is an absolute path: the user's LibTorch is looked for by the same
# LevinTorch.cmake that this build uses.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/levin)

# The installed library and command look for LibTorch beside them, then where this build found it, so
# that they run as they are. That path stands in the binaries alone; OFF is for packages that bring
# LibTorch beside levin.
option(LEVIN_INSTALL_TORCH_RUNPATH "Let what is installed look for LibTorch where this build found it" ON)
set(library_runpath "$ORIGIN")
set(command_runpath "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
if(LEVIN_INSTALL_TORCH_RUNPATH)
  list(APPEND library_runpath "${LEVIN_TORCH_ROOT}/lib")
  list(APPEND command_runpath "${LEVIN_TORCH_ROOT}/lib")
endif()
set_target_properties(${LEVIN_LIBRARIES} PROPERTIES INSTALL_RPATH "${library_runpath}")
set_target_properties(levin_command PROPERTIES INSTALL_RPATH "${command_runpath}")

install(TARGETS levin ${LEVIN_LIBRARIES} EXPORT levinTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS levin_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(header IN LISTS LEVIN_PUBLIC_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${folder}")
endforeach()

# LibTorch keeps its binary interface within a minor version. A static liblevin leaves zlib, libpng and libjpeg to the user.
set(LEVIN_STATIC_DEPENDENCIES "")
if(NOT BUILD_SHARED_LIBS)
  set(LEVIN_STATIC_DEPENDENCIES "include(CMakeFindDependencyMacro)
find_dependency(ZLIB)
set_property(TARGET levin::core APPEND PROPERTY INTERFACE_LINK_LIBRARIES ZLIB::ZLIB)
")
  foreach(package IN ITEMS PNG JPEG)
    if(LEVIN_HAS_${package})
      string(APPEND LEVIN_STATIC_DEPENDENCIES "find_dependency(${package})
set_property(TARGET levin::core APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${package}::${package})
")
    endif()
  endforeach()
  if(LEVIN_HAS_ARROW AND LEVIN_ARROW)
    message(FATAL_ERROR "levin: LEVIN_ARROW is for a shared liblevin; install Arrow's C++ library for a static one")
  elseif(LEVIN_HAS_ARROW)
    string(APPEND LEVIN_STATIC_DEPENDENCIES "find_dependency(Arrow)
find_dependency(Parquet)
set_property(TARGET levin::core APPEND PROPERTY INTERFACE_LINK_LIBRARIES Arrow::arrow_shared Parquet::parquet_shared)
")
  endif()
endif()

install(EXPORT levinTargets NAMESPACE levin:: DESTINATION ${package_dir})
configure_package_config_file(cmake/levinConfig.cmake.in "${PROJECT_BINARY_DIR}/levinConfig.cmake"
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/levinConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/levinConfig.cmake" "${PROJECT_BINARY_DIR}/levinConfigVersion.cmake"
  cmake/LevinTorch.cmake DESTINATION ${package_dir})
