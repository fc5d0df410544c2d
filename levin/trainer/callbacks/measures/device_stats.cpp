#include "levin/trainer/callbacks/measures/device_stats.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace levin::detail {
namespace {

/// Returns the bytes of "Name:  123 kB" lines by name.
std::map<std::string, double> bytes_in(const std::filesystem::path& file) {
  std::map<std::string, double> bytes;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 1));
    double number = 0.0;
    std::string unit;
    if (rest >> number >> unit && unit == "kB") bytes[line.substr(0, colon)] = number * 1024.0;
  }
  return bytes;
}

/// psutil rounds to one digit.
double percent(double part, double whole) {
  return whole > 0.0 ? std::round(1000.0 * part / whole) / 10.0 : 0.0;
}

}  // namespace

CpuStats::CpuStats(std::filesystem::path proc) : proc_(std::move(proc)), last_(times()) {}

/// Time in the guest is part of user, and waiting for input or output is not busy.
CpuStats::Times CpuStats::times() const {
  std::ifstream stat(proc_ / "stat");
  std::string cpu;
  std::array<double, 8> fields = {};  // user, nice, system, idle, iowait, irq, softirq, steal
  stat >> cpu;
  Times times;
  for (double& field : fields) {
    if (!(stat >> field)) break;
    times.all += field;
  }
  times.busy = times.all - fields[3] - fields[4];
  return times;
}

Scalars CpuStats::read() {
  Scalars values;
  const std::map<std::string, double> memory = bytes_in(proc_ / "meminfo");
  const auto of = [&](const char* name) {
    const auto found = memory.find(name);
    return found == memory.end() ? 0.0 : found->second;
  };
  if (memory.contains("MemAvailable")) {
    values.push_back(
        {"cpu_vm_percent", percent(of("MemTotal") - of("MemAvailable"), of("MemTotal"))});
  }
  const Times now = times();
  values.push_back({"cpu_percent", percent(now.busy - last_.busy, now.all - last_.all)});
  last_ = now;
  values.push_back(
      {"cpu_swap_percent", percent(of("SwapTotal") - of("SwapFree"), of("SwapTotal"))});
  if (memory.contains("MemAvailable")) {
    values.push_back({"cpu_available_bytes", of("MemAvailable")});
  }
  const std::map<std::string, double> own = bytes_in(proc_ / "self" / "smaps_rollup");
  for (const auto& [field, name] :
       {std::pair{"Rss", "cpu_rss_bytes"}, std::pair{"Pss", "cpu_pss_bytes"}}) {
    const auto found = own.find(field);
    if (found != own.end()) values.push_back({name, found->second});
  }
  return values;
}

Scalars memory_stats(at::Device device) {
  Scalars values;
  if (!device.is_cuda()) return values;
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  const auto add = [&](const std::string& name, const auto& stat) {
    values.push_back({name + ".current", static_cast<double>(stat.current)});
    values.push_back({name + ".peak", static_cast<double>(stat.peak)});
    values.push_back({name + ".allocated", static_cast<double>(stat.allocated)});
    values.push_back({name + ".freed", static_cast<double>(stat.freed)});
  };
  constexpr std::array kPools = {"all", "small_pool", "large_pool"};
  const auto add_pools = [&](const std::string& name, const auto& pools) {
    for (size_t i = 0; i < kPools.size(); ++i) add(name + "." + kPools[i], pools[i]);
  };
  add_pools("allocation", stats.allocation);
  add_pools("segment", stats.segment);
  add_pools("active", stats.active);
  add_pools("inactive_split", stats.inactive_split);
  add_pools("allocated_bytes", stats.allocated_bytes);
  add_pools("reserved_bytes", stats.reserved_bytes);
  add_pools("active_bytes", stats.active_bytes);
  add_pools("inactive_split_bytes", stats.inactive_split_bytes);
  add_pools("requested_bytes", stats.requested_bytes);
  add("oversize_allocations", stats.oversize_allocations);
  add("oversize_segments", stats.oversize_segments);
  const auto count = [&](const char* name, int64_t number) {
    values.push_back({name, static_cast<double>(number)});
  };
  count("num_alloc_retries", stats.num_alloc_retries);
  count("num_ooms", stats.num_ooms);
  count("num_sync_all_streams", stats.num_sync_all_streams);
  count("num_device_alloc", stats.num_device_alloc);
  count("num_device_free", stats.num_device_free);
  count("max_split_size", stats.max_split_size);
  return values;
}

}  // namespace levin::detail
