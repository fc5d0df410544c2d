#pragma once
// Clock and memory of bench_offload, and the sizes of what it trains.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace offload_bench {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kWidth = 2048;
inline constexpr int64_t kMemory = 64 * kMiB;  // of the swapper
inline constexpr int kSteps = 5;

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline int64_t pss() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::stoll(line.substr(4)) << 10;
  }
  return 0;
}

/// The largest PSS of this process, looked at a hundred times a second.
class Watch {
 public:
  Watch()
      : thread_([this] {
          while (!ends_) {
            most_ = std::max<int64_t>(most_, pss());
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }) {}
  ~Watch() { thread_.join(); }
  int64_t end() {
    ends_ = true;
    return most_;
  }

 private:
  std::atomic<bool> ends_ = false;
  std::atomic<int64_t> most_ = 0;
  std::thread thread_;
};

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Bytes that this process has read from the disk and written to it.
inline std::array<int64_t, 2> disk_bytes() {
  std::array<int64_t, 2> bytes = {};
  std::ifstream file("/proc/self/io");
  int64_t value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "read_bytes:") bytes[0] = value;
    if (name == "write_bytes:") bytes[1] = value;
  }
  return bytes;
}

}  // namespace offload_bench
