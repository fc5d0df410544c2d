#pragma once
// RandomPlace: where LibTorch's default generators stand, so that what was drawn since can be drawn again.

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <mutex>
#include <optional>

#include "levin/base/export.h"

namespace levin {

/// The default generators of the CPU and of one GPU. A value, copied in nanoseconds.
class LEVIN_API RandomPlace {
 public:
  /// Notes the generators' present state. device: a GPU whose generator is included, or the CPU.
  explicit RandomPlace(at::Device device);
  /// Puts the generators there.
  void go_back() const;

  bool operator==(const RandomPlace& other) const;

 private:
  RandomPlace(at::Device device, at::CPUGeneratorImpl& cpu,
              const std::unique_lock<std::mutex>& lock);

  at::Device device_;
  at::mt19937 engine_;
  std::optional<float> next_float_;
  std::optional<double> next_double_;
  uint64_t seed_ = 0, offset_ = 0;  // the GPU's
};

}  // namespace levin
