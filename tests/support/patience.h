#pragma once
// Limits that catch a hang and nothing else: they last longer the more processes want the cores.
// A test compares what happened; no test asks how long something took.
//
//   EXPECT_TRUE(soon([&] { return fs::exists(file); }));
//   options.engine.comm.timeout_s = patient_s(5);  // a limit that must not be reached

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace levin::test {

/// Threads that want to run for each core, by Linux's account; at least 1.
inline double waiting_per_core() {
  std::string a, b, c, running;
  std::ifstream("/proc/loadavg") >> a >> b >> c >> running;  // "4.10 3.20 2.00 7/312"
  const double wanting = std::strtod(running.c_str(), nullptr);
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  return std::max({1.0, wanting / cores, std::strtod(a.c_str(), nullptr) / cores});
}

/// Seconds on a machine that has nothing else to do, as this one needs them now: for limits of the
/// programs under test that are not to be reached.
inline double patient_s(double idle_s) { return idle_s * waiting_per_core(); }
inline std::chrono::milliseconds patient(std::chrono::milliseconds idle) {
  return std::chrono::milliseconds(
      static_cast<int64_t>(patient_s(static_cast<double>(idle.count()))));
}

/// "node_timeout=12.5": within which launchers that are alive hear of each other, whatever runs beside
/// them.
inline std::string patient_node_timeout(double idle_s = 2) {
  return "node_timeout=" + std::to_string(patient_s(idle_s));
}

/// So many seconds of a core of one's own: time passes more slowly while others want it too.
class Patience {
 public:
  explicit Patience(double idle_s) : left_s_(idle_s) {}

  bool is_over() {
    const auto now = Clock::now();
    if (now - looked_ >= std::chrono::milliseconds(50)) {
      // A machine that was suspended has not kept the others waiting.
      const std::chrono::duration<double> passed = now - looked_;
      left_s_ -= std::min(passed.count(), 1.0) / waiting_per_core();
      looked_ = now;
    }
    return left_s_ <= 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double left_s_;
  Clock::time_point looked_ = Clock::now();
};

/// Whether it came true before a minute of a core of one's own had passed.
inline bool soon(const std::function<bool()>& condition, double idle_s = 60) {
  Patience patience(idle_s);
  while (!condition()) {
    if (patience.is_over()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace levin::test
