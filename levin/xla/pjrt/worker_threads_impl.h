#pragma once
// Threads of the CPU's client.

#include <pthread.h>
#include <sched.h>

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

/// While it lives, threads that this one makes do not take its core away from it, or from others,
/// when they wake: a program that is started runs on a core that is free, or here once this thread
/// waits. Where host and program share a core, each step else pays for two changes between them.
class PatientThreads {
 public:
#ifdef SCHED_BATCH
  explicit PatientThreads(bool is_wanted) {
    sched_param parameters = {};
    is_set_ = is_wanted && ::pthread_getschedparam(::pthread_self(), &policy_, &parameters) == 0 &&
              policy_ == SCHED_OTHER && set(SCHED_BATCH);
  }
  ~PatientThreads() {
    if (is_set_) set(policy_);
  }

 private:
  static bool set(int policy) {
    const sched_param parameters = {};
    return ::pthread_setschedparam(::pthread_self(), policy, &parameters) == 0;
  }
  int policy_ = 0;
  bool is_set_ = false;

 public:
#else
  explicit PatientThreads(bool) {}
#endif
  PatientThreads(const PatientThreads&) = delete;
  PatientThreads& operator=(const PatientThreads&) = delete;
};

}  // namespace levin::xla::pjrt::detail
