#pragma once
// Checks that datasets made of other datasets share, and the batch that parts of it are merged
// into. Not for users.
//
//   MergedBatch merged(indices.size(), std::move(reuse));
//   merged.put(part, places, "dataset 1");
//   return merged.take();

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "levin/data/dataset.h"

namespace levin::detail {

/// Throws Error "data.dataset.null" for a null pointer.
DatasetPtr checked_dataset(DatasetPtr dataset);

/// A batch whose samples come from several reads.
class MergedBatch {
 public:
  MergedBatch(int64_t size, Batch reuse) : size_(size), reuse_(std::move(reuse)) {}
  /// Copies the samples of `part` to these places of the batch. Throws Error "data.samples.stack",
  /// with the name of the source, if its fields differ from those that came before.
  void put(const Batch& part, std::span<const int64_t> places, const std::string& source);
  Batch take() { return std::move(batch_); }

 private:
  int64_t size_;
  Batch reuse_;
  Batch batch_;
  std::string first_source_;
};

}  // namespace levin::detail
