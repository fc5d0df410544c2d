#include "levin/data/collate/stack.h"
#include "levin/data/dataset.h"
#include "levin/data/sample_random.h"

namespace levin {

SampleStream::~SampleStream() = default;

int64_t SampleStream::skip(int64_t count) {
  data::Sample forgotten;
  int64_t skipped = 0;
  for (; skipped < count && next(forgotten); ++skipped) detail::advance_draws();
  return skipped;
}

IterableDataset::~IterableDataset() = default;

Batch IterableDataset::collate(std::vector<data::Sample> samples, std::span<const int64_t> numbers,
                               Batch reuse) const {
  return detail::stack_samples(samples, numbers, reuse);
}

}  // namespace levin
