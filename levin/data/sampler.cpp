#include "levin/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/loading/distributed_sampler.h"
#include "levin/data/sample_random.h"

namespace levin {
namespace {

int64_t checked(int64_t size) {
  LEVIN_CHECK(size >= 0, "data.sampler.size", "got {} samples, wanted 0 or more", size);
  return size;
}

class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t size) : size_(checked(size)) {}

  int64_t size() const override { return size_; }
  void start(int64_t, int64_t consumed) override { position_ = std::min(consumed, size_); }
  int64_t next(std::span<int64_t> indices) override {
    const int64_t count = std::min(std::ssize(indices), size_ - position_);
    std::iota(indices.begin(), indices.begin() + count, position_);
    position_ += count;
    return count;
  }

 private:
  int64_t size_;
  int64_t position_ = 0;
};

class RandomSampler final : public Sampler {
 public:
  RandomSampler(int64_t size, uint64_t seed) : size_(checked(size)), seed_(seed) {}

  int64_t size() const override { return size_; }
  void start(int64_t epoch, int64_t consumed) override {
    epoch_ = epoch;
    position_ = std::min(consumed, size_);
  }
  int64_t next(std::span<int64_t> indices) override {
    if (drawn_epoch_ != epoch_) draw();
    const int64_t count = std::min(std::ssize(indices), size_ - position_);
    std::copy_n(order_.const_data_ptr<int64_t>() + position_, count, indices.begin());
    position_ += count;
    return count;
  }

 private:
  void draw() {
    auto generator =
        at::make_generator<at::CPUGeneratorImpl>(derive_seed(seed_, static_cast<uint64_t>(epoch_)));
    order_ = at::randperm(size_, generator, at::TensorOptions(at::kLong));
    drawn_epoch_ = epoch_;
  }

  int64_t size_;
  uint64_t seed_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::optional<int64_t> drawn_epoch_;
  at::Tensor order_;  ///< int64 [size], of drawn_epoch_
};

}  // namespace

Sampler::~Sampler() = default;

std::shared_ptr<Sampler> sequential_sampler(int64_t size) {
  return std::make_shared<SequentialSampler>(size);
}

std::shared_ptr<Sampler> random_sampler(int64_t size, uint64_t seed) {
  return std::make_shared<RandomSampler>(size, seed);
}

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

/// The numbers that a sampler draws there are the epoch's, however often it is called.
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
                "the sampler ended after {} samples, but its size() is {}; correct its size()",
                position_ + got, size);
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
