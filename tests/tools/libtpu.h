#pragma once
// libtpu for tests of what is compiled for TPUs: its licence lets nobody hand it on, so that it is
// found where the user has put it, or the test is skipped.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "levin/base/error.h"
#include "levin/xla/pjrt/topology.h"

namespace levin::test {

class WithLibtpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!xla::pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
    const char* named = std::getenv("LEVIN_LIBTPU");
    try {
      path_ = named != nullptr ? named : xla::pjrt::find_plugin("tpu");
    } catch (const Error&) {
      GTEST_SKIP() << "no libtpu was found: `make libtpu`, or name one by LEVIN_LIBTPU";
    }
  }

  xla::pjrt::Topology topology(const std::string& name) const {
    return xla::pjrt::Topology(xla::pjrt::Plugin(path_, {.compile_only = true}), name);
  }

  std::string path_;
};

}  // namespace levin::test
