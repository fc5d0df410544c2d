#include "levin/base/memory/memory_limits.h"

#include <sys/resource.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace levin::detail {
namespace {

namespace fs = std::filesystem;

/// Bytes of a line such as "VmHWM:   1234 kB"; nothing if there is none.
std::optional<int64_t> line_of(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    std::istringstream words(line.substr(name.size() + 1));
    int64_t kilobytes = 0;
    if (words >> kilobytes) return kilobytes * 1024;
  }
  return std::nullopt;
}

/// The number in a file; nothing for "max" and for what is not there.
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

/// Memory of a control group that the kernel takes back before it kills: pages of files.
int64_t reclaimable(const fs::path& folder) {
  std::ifstream in(folder / "memory.stat");
  int64_t bytes = 0;
  for (std::string name; in >> name >> bytes;) {
    if (name == "inactive_file" || name == "total_inactive_file") return bytes;
  }
  return 0;
}

void add_group(std::vector<MemoryLimit>& limits, const fs::path& folder, const char* most,
               const char* used) {
  const std::optional<int64_t> bytes = number_in(folder / most);
  const std::optional<int64_t> now = number_in(folder / used);
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 says "none" by a large number
  if (!bytes || !now || *bytes >= kNoLimit) return;
  limits.push_back({*bytes - *now + reclaimable(folder), "the control group (cgroup)"});
}

/// The limits of the control group of this process and of those above it.
void add_groups(std::vector<MemoryLimit>& limits) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_unified = controllers.empty();
    if (!is_unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const fs::path root = is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // In a container the path is the host's, and the root is the container's own group.
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      add_group(limits, root / group, is_unified ? "memory.max" : "memory.limit_in_bytes",
                is_unified ? "memory.current" : "memory.usage_in_bytes");
      if (group.empty()) break;
    }
  }
}

void add_own(std::vector<MemoryLimit>& limits, int resource, const char* used, const char* name) {
  rlimit limit{};
  const std::optional<int64_t> now = line_of("/proc/self/status", used);
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !now) return;
  limits.push_back({static_cast<int64_t>(limit.rlim_cur) - *now, name, /*kills=*/false});
}

}  // namespace

int64_t resident_bytes() { return line_of("/proc/self/status", "VmRSS").value_or(0); }
int64_t peak_bytes() { return line_of("/proc/self/status", "VmHWM").value_or(0); }
void reset_peak_bytes() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::vector<MemoryLimit> memory_limits() {
  std::vector<MemoryLimit> limits;
  if (const auto left = line_of("/proc/meminfo", "MemAvailable")) {
    limits.push_back({*left, "the machine"});
  }
  add_groups(limits);
  add_own(limits, RLIMIT_AS, "VmSize", "the process (ulimit -v)");
  add_own(limits, RLIMIT_DATA, "VmData", "the process (ulimit -d)");
  return limits;
}

}  // namespace levin::detail
