# Says when this LibTorch is of a series that levin was not tested with. Which were stands in
# scripts/versions.env, for the scripts too. An installed levin asks for the series it was built with.
set(_levin_versions "${PROJECT_SOURCE_DIR}/scripts/versions.env")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_levin_versions}")
foreach(_levin_end IN ITEMS OLDEST NEWEST)
  file(STRINGS "${_levin_versions}" _levin_series REGEX "^TORCH_${_levin_end}=[0-9]+\\.[0-9]+$")
  string(REPLACE "TORCH_${_levin_end}=" "" LEVIN_TORCH_${_levin_end} "${_levin_series}")
endforeach()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" LEVIN_TORCH_SERIES "${LEVIN_TORCH_VERSION}")
set(_levin_tested "${LEVIN_TORCH_OLDEST} to ${LEVIN_TORCH_NEWEST}")
if(LEVIN_TORCH_SERIES VERSION_LESS LEVIN_TORCH_OLDEST)
  message(FATAL_ERROR "levin: LibTorch ${LEVIN_TORCH_VERSION} in ${LEVIN_TORCH_ROOT} is too old; wanted ${_levin_tested}")
elseif(LEVIN_TORCH_SERIES VERSION_GREATER LEVIN_TORCH_NEWEST)
  message(WARNING "levin: LibTorch ${LEVIN_TORCH_VERSION} in ${LEVIN_TORCH_ROOT} is newer than those levin was "
    "tested with, ${_levin_tested}; run levin's own tests with it before you trust what it computes")
endif()
