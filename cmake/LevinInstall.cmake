# `cmake --install build --prefix P` and the package levin that find_package() of other projects
# finds below P. Nothing in it is an absolute path: the user's LibTorch is looked for by the same
# LevinTorch.cmake that this build uses.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/levin)

# The installed library and command look for LibTorch where this build found it. That path stands in
# the binaries alone; -DCMAKE_SKIP_INSTALL_RPATH=ON leaves it out.
set_target_properties(levin PROPERTIES INSTALL_RPATH "$ORIGIN;${LEVIN_TORCH_ROOT}/lib")
set_target_properties(levin_command PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};${LEVIN_TORCH_ROOT}/lib")

install(TARGETS levin EXPORT levinTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS levin_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# check.h and log.h are for levin's own sources: they need the fmt they were compiled with.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/levin" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" REGEX "/base/(check|log)\\.h$" EXCLUDE)

# LibTorch keeps its binary interface within a minor version. A static liblevin leaves zlib to the user.
set(LEVIN_STATIC_DEPENDENCIES "")
if(NOT BUILD_SHARED_LIBS)
  set(LEVIN_STATIC_DEPENDENCIES "include(CMakeFindDependencyMacro)
find_dependency(ZLIB)
set_property(TARGET levin::levin APPEND PROPERTY INTERFACE_LINK_LIBRARIES ZLIB::ZLIB)
")
endif()

install(EXPORT levinTargets NAMESPACE levin:: DESTINATION ${package_dir})
configure_package_config_file(cmake/levinConfig.cmake.in "${PROJECT_BINARY_DIR}/levinConfig.cmake"
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/levinConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/levinConfig.cmake" "${PROJECT_BINARY_DIR}/levinConfigVersion.cmake"
  cmake/LevinTorch.cmake DESTINATION ${package_dir})
