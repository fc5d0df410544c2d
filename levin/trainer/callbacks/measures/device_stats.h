#pragma once
// Statistics of the CPU and of a GPU's memory by the names of Lightning's get_device_stats.
// DeviceStatsMonitor logs them.
//
//   CpuStats cpu;
//   const Scalars now = cpu.read();   // cpu_percent is since the last read
// Not for users.

#include <c10/core/Device.h>

#include <filesystem>
#include <utility>

#include "levin/base/export.h"
#include "levin/observe/logger.h"

namespace levin::detail {

/// Reads what psutil reads on Linux, from /proc.
class LEVIN_API CpuStats {
 public:
  explicit CpuStats(std::filesystem::path proc = "/proc");
  /// Returns cpu_vm_percent, cpu_percent, cpu_swap_percent, cpu_available_bytes, cpu_rss_bytes and
  /// cpu_pss_bytes; a value that the system does not tell is left out.
  Scalars read();

 private:
  struct Times {
    double busy = 0.0;
    double all = 0.0;
  };
  Times times() const;

  std::filesystem::path proc_;
  Times last_;
};

/// Returns the statistics of the caching allocator by the names of torch.cuda.memory_stats; nothing
/// for devices without one.
Scalars memory_stats(at::Device device);

}  // namespace levin::detail
