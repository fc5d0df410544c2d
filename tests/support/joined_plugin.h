#pragma once
// CPU devices of several processes that run programs together: tests/xla/joined_plugin.cpp.

#include <cstdlib>
#include <string>

#include "levin/xla/pjrt/plugin.h"
#include "tests/support/places.h"

namespace levin::test {

/// The plugin's path; from here on it gives this process so many devices.
inline std::string joined_plugin(int64_t devices) {
  ::setenv("LEVIN_JOINED_PJRT_PLUGIN", xla::pjrt::find_plugin("cpu").c_str(), 1);
  ::setenv("LEVIN_JOINED_DEVICES", std::to_string(devices).c_str(), 1);
  ::setenv("NPROC", "16", 1);  // a thread for each device that waits for the others
  return joined_pjrt();
}

}  // namespace levin::test
