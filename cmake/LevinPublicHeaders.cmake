# LEVIN_PUBLIC_HEADERS: what levin/levin.h includes, and itself. These alone are installed; tests/layers sees to it
# that they include no others.
set(LEVIN_PUBLIC_HEADERS levin/levin.h)
file(STRINGS "${PROJECT_SOURCE_DIR}/levin/levin.h" includes REGEX "^#include \"levin/")
foreach(line IN LISTS includes)
  string(REGEX REPLACE "^#include \"(.*)\"$" "\\1" header "${line}")
  list(APPEND LEVIN_PUBLIC_HEADERS "${header}")
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/levin/levin.h")
