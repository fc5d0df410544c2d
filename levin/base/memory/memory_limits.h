#pragma once
// The memory of this process, and how much more it may get before an allocation fails or the kernel
// kills it.
//
//   for (const MemoryLimit& limit : detail::memory_limits()) std::puts(limit.of.c_str());
// Not for users.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::detail {

/// Resident bytes of this process; 0 if unknown.
LEVIN_API int64_t resident_bytes();
/// Lets peak_bytes() count from here on.
LEVIN_API void reset_peak_bytes();
/// The most resident bytes since reset_peak_bytes(), or since the start of the process where the
/// system does not allow to reset it; 0 if unknown.
LEVIN_API int64_t peak_bytes();

/// One of the limits of memory.
struct MemoryLimit {
  int64_t left = 0;   ///< bytes that this process may still get
  std::string of;     ///< name of the limit, for messages
  bool kills = true;  ///< a process that exceeds it is killed; false: an allocation fails
};
/// The limits that this system tells: of the machine, of the control groups (cgroup), and of the
/// process (RLIMIT_AS, RLIMIT_DATA).
LEVIN_API std::vector<MemoryLimit> memory_limits();

}  // namespace levin::detail
