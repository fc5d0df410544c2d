#pragma once
// Tests that run on a CPU's XLA devices skip where there is no plugin for them.

#include <gtest/gtest.h>

#include <algorithm>

#include "levin/xla/pjrt/plugin.h"

namespace levin::test {

inline bool has_cpu_plugin() {
  return xla::pjrt::is_available() &&
         std::ranges::any_of(xla::pjrt::found_plugins(),
                             [](const auto& file) { return file.kind == "cpu"; });
}

}  // namespace levin::test

#define LEVIN_NEEDS_CPU_PLUGIN()       \
  if (!levin::test::has_cpu_plugin()) \
  GTEST_SKIP() << "there is no CPU plugin; make xla fetches one"
