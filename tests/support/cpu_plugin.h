#pragma once
// Tests that run on a CPU's XLA devices skip where there is no plugin for them.

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "levin/base/error.h"
#include "levin/xla/pjrt/plugin.h"

namespace levin::test {

/// A CPU's plugin, or why there is none.
inline std::optional<std::string> cpu_plugin(std::string& why) {
  if (!xla::pjrt::is_available()) {
    why = "levin was built without XLA; make xla builds it";
    return std::nullopt;
  }
  try {
    return xla::pjrt::find_plugin("cpu");
  } catch (const Error& error) {
    why = error.what();
    return std::nullopt;
  }
}

}  // namespace levin::test

#define LEVIN_NEEDS_CPU_PLUGIN() \
  if (std::string why; !::levin::test::cpu_plugin(why)) GTEST_SKIP() << why
