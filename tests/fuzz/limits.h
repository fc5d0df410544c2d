#pragma once
// How much memory and time an input may take by its size: few bytes that make a reader work for long
// or hold much are a finding.
//
//   const Limits limits(size);                         // until the end of the input

#include <sys/resource.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

class Limits {
 public:
  explicit Limits(size_t size) : size_(size), peak_before_(peak()), seconds_before_(seconds()) {}
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;
  ~Limits() {
    const int64_t bytes = peak() - peak_before_;
    if (bytes > kFreeBytes + kBytesOfAByte * static_cast<int64_t>(size_)) {
      std::fprintf(stderr, "an input of %zu bytes took %lld bytes of memory\n", size_,
                   static_cast<long long>(bytes));
      std::abort();
    }
#ifndef LLVMFuzzerTestOneInput  // tests, which share a busy machine, ask for no time
    const double time = seconds() - seconds_before_;
    if (time > kFreeSeconds + kSecondsOfAByte * static_cast<double>(size_)) {
      std::fprintf(stderr, "an input of %zu bytes took %.1f s\n", size_, time);
      std::abort();
    }
#endif
  }

 private:
  static constexpr int64_t kFreeBytes = int64_t{256} << 20;  // LibTorch itself, at the first input
  static constexpr int64_t kBytesOfAByte = 16 << 10;
  static constexpr double kFreeSeconds = 2, kSecondsOfAByte = 1e-3;

  /// The most that this process had at a time, in bytes.
  static int64_t peak() {
    struct rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss << 10;
  }
  /// Of processors, not of the clock.
  static double seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
  }

  size_t size_;
  int64_t peak_before_;
  double seconds_before_;
};
