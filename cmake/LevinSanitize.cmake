# LEVIN_SANITIZE: the library, tests and programs under a sanitizer. LibTorch stays as it is, so that some of
# what sanitizers look at cannot be told: scripts/sanitize_all.sh says by its options what is left out.
if(LEVIN_SANITIZE STREQUAL "address")
  # A class or function of LibTorch's libraries has not what vptr and function look for.
  set(sanitize -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND sanitize -fno-sanitize=function)
  endif()
elseif(LEVIN_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
else()
  message(FATAL_ERROR "levin: got LEVIN_SANITIZE=${LEVIN_SANITIZE}, wanted address or thread")
endif()
target_compile_options(levin_flags INTERFACE ${sanitize} -fno-omit-frame-pointer -g1)
target_link_options(levin_flags INTERFACE ${sanitize})
