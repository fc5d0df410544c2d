#pragma once
// LEVIN_CHECK: how levin's own sources throw an Error. For sources only, never for public headers.
//
//   LEVIN_CHECK(size > 0, "data.loader.batch_size", "got {}, wanted at least 1", size);

#include <fmt/format.h>

#include "levin/base/error.h"

namespace levin::detail {

/// The path from the checkout's root on, whatever folder the compiler was called in.
constexpr const char* source_name(const char* file) {
  const std::string_view path(file);
  const size_t at = path.rfind("levin/");
  return at == std::string_view::npos ? file : file + at;
}

}  // namespace levin::detail

#define LEVIN_FAIL(id, ...)                                                                      \
  throw ::levin::Error((id), ::fmt::format(__VA_ARGS__), ::levin::detail::source_name(__FILE__), \
                       __LINE__)

#define LEVIN_CHECK(condition, id, ...) \
  do {                                  \
    if (!(condition)) [[unlikely]]      \
      LEVIN_FAIL(id, __VA_ARGS__);      \
  } while (false)
