#pragma once
// DistributedSampler: every world_size-th sample of a base order, from any place of it on.
// Behind distributed_sampler() and inside every DataLoader, whose state counts samples of all
// ranks.
//
//   DistributedSampler part(base, rank, world_size, Uneven::kPad);
//   part.start_at(epoch, samples);                    // ranks together have read so many

#include <vector>

#include "levin/data/sampler.h"

namespace levin::detail {

class DistributedSampler final : public Sampler {
 public:
  DistributedSampler(std::shared_ptr<Sampler> base, int64_t rank, int64_t world_size,
                     Uneven uneven);

  int64_t size() const override { return count_from(0); }
  void start(int64_t epoch, int64_t consumed) override { start_at(epoch, consumed * world_size_); }
  int64_t next(std::span<int64_t> indices) override;

  /// Stands behind the first `samples` of the base order, which any number of ranks may have read.
  void start_at(int64_t epoch, int64_t samples);
  /// Samples of this rank behind the first `samples` of the base order.
  int64_t count_from(int64_t samples) const;

 private:
  void start_base();

  std::shared_ptr<Sampler> base_;
  int64_t rank_;
  int64_t world_size_;
  Uneven uneven_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;  ///< place of this rank's next sample in the base order
  int64_t left_ = 0;      ///< samples of this rank until the epoch's end
  std::vector<int64_t> block_;
};

}  // namespace levin::detail
