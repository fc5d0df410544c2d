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
  /// A batch that is there already stays as it is.
  Batch to_device(const Batch& batch) const;
  /// All that a batch is for has been asked for: what was put off begins, and what comes later is
  /// no part of it.
  void end_batch() const;

 private:
  at::Device device_;
  std::shared_ptr<xla::Runtime> runtime_;
};

}  // namespace levin
