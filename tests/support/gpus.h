#pragma once
// How many GPUs a test may use.

#include <cstdint>
#include <filesystem>
#include <string>

namespace levin::test {

/// Counted without CUDA, which cannot be used in a process that forks after it was started.
inline int64_t num_gpus() {
  int64_t count = 0;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(count))) ++count;
  return count;
}

}  // namespace levin::test
