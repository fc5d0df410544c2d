#pragma once
// Threads of the CPU's client.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

namespace levin::xla::pjrt::detail {

/// While it lives, a client of the CPU's plugin that is made gets threads for so many devices. By
/// itself it has one for each core, or as NPROC says; a device that waits in an exchange for the
/// others holds one of them, and where all are held by devices that wait, the rest never comes: XLA
/// ends the process after 40 s. What the user has set stays.
class EnoughWorkerThreads {
 public:
  explicit EnoughWorkerThreads(int64_t num_devices)
      : is_set_(num_devices > 1 && std::getenv(kVariable) == nullptr) {
    if (!is_set_) return;
    const int64_t count = std::thread::hardware_concurrency() + 2 * num_devices;
    ::setenv(kVariable, std::to_string(count).c_str(), 1);
  }
  ~EnoughWorkerThreads() {
    if (is_set_) ::unsetenv(kVariable);
  }
  EnoughWorkerThreads(const EnoughWorkerThreads&) = delete;
  EnoughWorkerThreads& operator=(const EnoughWorkerThreads&) = delete;

 private:
  static constexpr const char* kVariable = "NPROC";
  bool is_set_;
};

}  // namespace levin::xla::pjrt::detail
