#include "levin/data/loading/distributed_sampler.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/data/sample_random.h"

namespace levin {
namespace detail {

DistributedSampler::DistributedSampler(std::shared_ptr<Sampler> base, int64_t rank,
                                       int64_t world_size, Uneven uneven)
    : base_(std::move(base)), rank_(rank), world_size_(world_size), uneven_(uneven) {
  LEVIN_CHECK(rank >= 0 && rank < world_size, "data.sampler.rank",
              "got rank {} of {}, wanted 0 <= rank < world_size", rank, world_size);
  const int64_t least = uneven == Uneven::kDrop ? world_size : uneven == Uneven::kPad ? 1 : 0;
  LEVIN_CHECK(world_size == 1 || base_->size() >= least, "data.sampler.size",
              "{} samples cannot feed {} ranks; use fewer ranks{}", base_->size(), world_size,
              uneven == Uneven::kDrop ? " or drop_last=false" : "");
  start_at(0, 0);
}

int64_t DistributedSampler::count_from(int64_t samples) const {
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

void DistributedSampler::start_at(int64_t epoch, int64_t samples) {
  epoch_ = epoch;
  position_ = samples + rank_;
  left_ = count_from(samples);
  start_base();
}

/// What a sampler draws there is the epoch's, however often it is called.
void DistributedSampler::start_base() {
  const ItemScope draws(DrawsOf::kOrder);
  base_->start(epoch_, position_);
}

int64_t DistributedSampler::next(std::span<int64_t> indices) {
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
                "the sampler ended after {} samples, but its size() is {}", position_ + got, size);
    for (int64_t i = 0; i < got; i += world_size_) indices[written++] = block_[i];
    position_ += steps * world_size_;
  }
  left_ -= written;
  return written;
}

}  // namespace detail

std::shared_ptr<Sampler> distributed_sampler(std::shared_ptr<Sampler> base, int64_t rank,
                                             int64_t world_size, Uneven uneven) {
  return std::make_shared<detail::DistributedSampler>(std::move(base), rank, world_size, uneven);
}

}  // namespace levin
