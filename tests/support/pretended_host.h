#pragma once
// A host that only its own processes believe in: what tells levin the hosts apart is the number that
// the kernel drew when it started, and these processes read another one.

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/small_disk.h"

namespace levin::test {

/// Makes this process one of a host of that name, whose processes share this machine's network all
/// the same. False where that is not permitted. For child processes only; the file is theirs alone.
inline bool pretend_host(const std::filesystem::path& file, const std::string& name) {
  constexpr const char* kNumber = "/proc/sys/kernel/random/boot_id";
  std::ofstream(file) << name << "\n";
  return have_own_mounts() && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount(file.c_str(), kNumber, nullptr, MS_BIND, nullptr) == 0;
}

}  // namespace levin::test
