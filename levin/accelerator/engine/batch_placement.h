#pragma once
// BatchPlacement: how batches come to the devices of this process.

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "levin/base/export.h"
#include "levin/data/batch.h"

namespace levin::xla {
class Runtime;
}  // namespace levin::xla

namespace levin {

class LEVIN_API BatchPlacement {
 public:
  /// runtime: of devices of XLA, else nullptr.
  BatchPlacement(at::Device device, std::shared_ptr<xla::Runtime> runtime)
      : device_(device), runtime_(std::move(runtime)) {}

  /// Returns how many devices of this process share each of its batches: a batch is so many times a
  /// loader's batch size.
  int64_t parts() const;
  /// A batch that is on the device already stays unchanged.
  Batch to_device(const Batch& batch) const;
  /// Ends a batch: delayed work begins, and later work is no part of the batch.
  void end_batch() const;

 private:
  at::Device device_;
  std::shared_ptr<xla::Runtime> runtime_;
};

}  // namespace levin
