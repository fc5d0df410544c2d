#pragma once
// PartSizes: how many samples of a batch are trained on at a time, so that they fit into memory
// (accumulate_grad_batches = "auto").
// Not for users.
//
// The first part is one sample. As long as the memory that the parts so far took says that a larger one fits, the next
// part is larger, by at most a factor of 4, so that a forecast never reaches far. All ranks take the same sizes. No
// allocation has to fail: under fsdp a rank that ran out of memory would leave the others waiting.

#include <cstdint>

#include "levin/accelerator/engine/engine.h"
#include "levin/data/batch.h"
#include "levin/trainer/run/memory_left.h"

namespace levin::detail {

class LEVIN_API PartSizes {
 public:
  explicit PartSizes(Engine& engine) : engine_(engine) {}

  /// A batch begins, on all ranks. Throws Error "trainer.accumulate" for a batch that cannot be cut.
  void begin_batch(const Batch& batch);
  /// Samples of the largest batch of a rank; the other functions count these.
  int64_t samples() const { return samples_; }
  /// Returns the samples of the next part, if so many are left; the same on all ranks.
  int64_t next(int64_t left);
  /// Call these two around a part.
  void begin_part();
  void end_part(int64_t size);
  void end_batch();

 private:
  int64_t bytes_of(int64_t samples) const;
  bool fits(int64_t size) const;

  Engine& engine_;
  int64_t samples_ = 0;
  int64_t batch_bytes_ = 0;  ///< of this rank's batch
  int64_t parts_ = 1;        ///< once nothing has to be measured any more
  PeakForecast forecast_{0};
  int64_t measured_ = 0;        ///< parts so far
  int64_t largest_ = 0;         ///< bytes of the largest part so far
  int64_t largest_before_ = 0;  ///< bytes of the largest part of earlier batches
  int64_t used_ = 0;            ///< bytes of memory at the beginning of the part
  int64_t chosen_ = 0;          ///< bytes of the largest part of the newest measured batch
  bool measures_ = true;        ///< this batch
  bool is_settled_ = false;
};

}  // namespace levin::detail
