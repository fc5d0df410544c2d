#pragma once
// Stopwatch: seconds since it was made; with a total, added to it in the end.

#include <chrono>

namespace levin::xla {

class Stopwatch {
 public:
  Stopwatch() = default;
  explicit Stopwatch(double& total) : total_(&total) {}
  ~Stopwatch() {
    if (total_ != nullptr) *total_ += seconds();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double* total_ = nullptr;
};

}  // namespace levin::xla
