#pragma once
// DrawnOrder: a sampler whose order is drawn anew in each epoch. Behind weighted_random_sampler()
// and length_grouped_sampler(). Not for users.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "levin/base/random.h"
#include "levin/data/dataset.h"
#include "levin/data/sample_random.h"
#include "levin/data/sampler.h"

namespace levin::detail {

class DrawnOrder : public Sampler {
 public:
  int64_t size() const override { return size_; }

  /// A loader's seed wins over the sampler's own: it is rank 0's seed, and that of a resumed run. A
  /// sampler that is started again within an epoch goes on in the same order.
  void start(int64_t epoch, int64_t consumed) final {
    if (in_draw_scope()) {
      epoch_seed_ = data::sample_seed();
    } else if (epoch != epoch_ || !epoch_seed_) {
      epoch_seed_ = derive_seed(seed_, static_cast<uint64_t>(epoch));
    }
    epoch_ = epoch;
    position_ = std::min(consumed, size_);
  }

  int64_t next(std::span<int64_t> indices) final {
    if (drawn_seed_ != epoch_seed_) {
      order_ = draw(at::make_generator<at::CPUGeneratorImpl>(*epoch_seed_));
      drawn_seed_ = epoch_seed_;
    }
    const int64_t count = std::min(std::ssize(indices), size_ - position_);
    std::copy_n(order_.const_data_ptr<int64_t>() + position_, count, indices.begin());
    position_ += count;
    return count;
  }

 protected:
  DrawnOrder(int64_t size, uint64_t seed) : size_(size), seed_(seed) {}

  /// Draws the order of an epoch: int64 [size()].
  virtual at::Tensor draw(const at::Generator& generator) const = 0;

 private:
  int64_t size_;
  uint64_t seed_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::optional<uint64_t> epoch_seed_;
  std::optional<uint64_t> drawn_seed_;
  at::Tensor order_;  ///< int64 [size], of drawn_seed_
};

}  // namespace levin::detail
