# Finds pjrt_c_api.h, the C interface of XLA's plugins. liblevin links no plugin: it loads one when a
# program asks for it.
#
# Looked at are LEVIN_PJRT (variable, then environment), a folder that holds the header or include/
# and lib/, and .deps/pjrt of this checkout, which `make xla` fills. LEVIN_HAS_XLA is what came out.
set(LEVIN_WITH_XLA AUTO CACHE STRING "Build the client of XLA's plugins: AUTO (where the header is found), ON, OFF")
set(LEVIN_PJRT "" CACHE PATH "Folder of pjrt_c_api.h, or of include/pjrt_c_api.h and lib/")

set(LEVIN_HAS_XLA OFF CACHE INTERNAL "")
set(LEVIN_PJRT_INCLUDE "" CACHE INTERNAL "")
set(LEVIN_PJRT_FOLDER "")
if(LEVIN_WITH_XLA)  # AUTO counts as true
  find_path(found pjrt_c_api.h
    HINTS "${LEVIN_PJRT}" ENV LEVIN_PJRT PATHS "${PROJECT_SOURCE_DIR}/.deps/pjrt"
    PATH_SUFFIXES include NO_CACHE)
  if(found)
    string(REGEX REPLACE "/$" "" found "${found}")
    set(LEVIN_HAS_XLA ON CACHE INTERNAL "")
    set(LEVIN_PJRT_INCLUDE "${found}" CACHE INTERNAL "")
    message(STATUS "levin: XLA, by ${found}/pjrt_c_api.h")
    string(REGEX REPLACE "/include$" "" LEVIN_PJRT_FOLDER "${found}")
    string(APPEND LEVIN_PJRT_FOLDER "/lib")
  elseif(LEVIN_PJRT OR LEVIN_WITH_XLA STREQUAL ON)
    message(FATAL_ERROR "levin: no pjrt_c_api.h in LEVIN_PJRT=${LEVIN_PJRT} or .deps/pjrt; run `make xla`, "
      "or give -DLEVIN_PJRT=DIR, the folder that holds it or include/")
  else()
    message(STATUS "levin: no XLA; wanted pjrt_c_api.h, as `make xla` fetches it, or -DLEVIN_PJRT=DIR")
  endif()
endif()

if(LEVIN_HAS_XLA)
  target_include_directories(levin_xla SYSTEM PRIVATE "${LEVIN_PJRT_INCLUDE}")
else()
  target_include_directories(levin_xla SYSTEM PRIVATE "${PROJECT_SOURCE_DIR}/.deps/pjrt/include")
endif()
