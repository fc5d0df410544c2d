#pragma once
// DistributedSampler: every world_size-th sample of a base order, from any place of it on.
// Behind distributed_sampler() and inside every DataLoader, whose state counts samples of all
// ranks.
//
//   DistributedSampler part(base, rank, world_size, Uneven::kPad);
//   part.start_at(epoch, samples);                    // ranks together have read so many

#include <algorithm>
#include <vector>

#include "levin/base/check.h"
#include "levin/data/sample_random.h"
#include "levin/data/sampler.h"

namespace levin::detail {

class DistributedSampler final : public Sampler {
 public:
  DistributedSampler(std::shared_ptr<Sampler> base, int64_t rank, int64_t world_size, Uneven uneven)
      : base_(std::move(base)), rank_(rank), world_size_(world_size), uneven_(uneven) {
    LEVIN_CHECK(rank >= 0 && rank < world_size, "data.sampler.rank",
                "got rank {} of {}, wanted 0 <= rank < world_size", rank, world_size);
    const int64_t least = uneven == Uneven::kDrop ? world_size : uneven == Uneven::kPad ? 1 : 0;
    LEVIN_CHECK(world_size == 1 || base_->size() >= least, "data.sampler.size",
                "{} samples cannot feed {} ranks; use fewer ranks{}", base_->size(), world_size,
                uneven == Uneven::kDrop ? " or drop_last=false" : "");
    start_at(0, 0);
  }

  int64_t size() const override { return count_from(0); }
  void start(int64_t epoch, int64_t consumed) override { start_at(epoch, consumed * world_size_); }
  int64_t next(std::span<int64_t> indices) override {
    const int64_t size = base_->size();
    const int64_t wanted = std::min(std::ssize(indices), left_);
    int64_t written = 0;
    while (written < wanted) {
      if (position_ >= size) {  // only kPad gets here: PyTorch too repeats from the epoch's start
        position_ %= size;
        start_base();
      }
      const int64_t steps =
          std::min(wanted - written, (size - position_ + world_size_ - 1) / world_size_);
      block_.resize(std::min(steps * world_size_, size - position_));
      const int64_t got = base_->next(block_);
      LEVIN_CHECK(got == std::ssize(block_), "data.sampler.short",
                  "the sampler ended after {} samples, but its size() is {}", position_ + got,
                  size);
      for (int64_t i = 0; i < got; i += world_size_) indices[written++] = block_[i];
      position_ += steps * world_size_;
    }
    left_ -= written;
    return written;
  }

  /// Stands behind the first `samples` of the base order, which any number of ranks may have read.
  void start_at(int64_t epoch, int64_t samples) {
    epoch_ = epoch;
    position_ = samples + rank_;
    left_ = count_from(samples);
    start_base();
  }

  /// Samples of this rank behind the first `samples` of the base order.
  int64_t count_from(int64_t samples) const {
    const int64_t rest = std::max<int64_t>(base_->size() - samples, 0);
    switch (uneven_) {
      case Uneven::kPad:
        return (rest + world_size_ - 1) / world_size_;
      case Uneven::kDrop:
        return rest / world_size_;
      case Uneven::kKeep:
        return std::max<int64_t>(rest - rank_ + world_size_ - 1, 0) / world_size_;
    }
    return 0;
  }

 private:
  /// What a sampler draws there is the epoch's, however often it is called.
  void start_base() {
    const ItemScope draws(DrawsOf::kOrder);
    base_->start(epoch_, position_);
  }

  std::shared_ptr<Sampler> base_;
  int64_t rank_;
  int64_t world_size_;
  Uneven uneven_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;  ///< of this rank's next sample in the base order
  int64_t left_ = 0;      ///< samples of this rank until the epoch's end
  std::vector<int64_t> block_;
};

}  // namespace levin::detail
