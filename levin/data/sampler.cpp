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

std::shared_ptr<Sampler> distributed_sampler(std::shared_ptr<Sampler> base, int64_t rank,
                                             int64_t world_size, Uneven uneven) {
  return std::make_shared<detail::DistributedSampler>(std::move(base), rank, world_size, uneven);
}

}  // namespace levin
