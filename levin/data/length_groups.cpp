#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/sample_random.h"
#include "levin/data/sampler.h"

namespace levin {
namespace {

constexpr int64_t kMostBatches = 50;  // batches of a part that is sorted
constexpr int64_t kFewestParts = 4;

class LengthGroupedSampler final : public Sampler {
 public:
  LengthGroupedSampler(std::vector<int64_t> lengths, int64_t batch_size, uint64_t seed)
      : lengths_(std::move(lengths)), batch_size_(batch_size), seed_(seed) {
    LEVIN_CHECK(batch_size > 0, "data.sampler.size", "got a batch of {} samples, wanted 1 or more",
                batch_size);
  }

  int64_t size() const override { return std::ssize(lengths_); }
  void start(int64_t epoch, int64_t consumed) override {
    // A loader's seed wins: rank 0's seed, and that of a resumed run. A sampler that is started
    // again within an epoch goes on in the same order.
    if (detail::in_draw_scope()) {
      epoch_seed_ = data::sample_seed();
    } else if (epoch != epoch_ || !epoch_seed_) {
      epoch_seed_ = derive_seed(seed_, static_cast<uint64_t>(epoch));
    }
    epoch_ = epoch;
    position_ = std::min(consumed, size());
  }
  int64_t next(std::span<int64_t> indices) override {
    if (drawn_seed_ != epoch_seed_) draw();
    const int64_t count = std::min(std::ssize(indices), size() - position_);
    std::copy_n(order_.begin() + position_, count, indices.begin());
    position_ += count;
    return count;
  }

 private:
  int64_t length(int64_t index) const { return lengths_[static_cast<size_t>(index)]; }

  void draw() {
    drawn_seed_ = epoch_seed_;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(*epoch_seed_);
    const at::Tensor drawn = at::randperm(size(), generator, at::TensorOptions(at::kLong));
    const int64_t* first = drawn.const_data_ptr<int64_t>();
    order_.assign(first, first + size());
    const int64_t batches =
        std::clamp<int64_t>(size() / (batch_size_ * kFewestParts), 1, kMostBatches);
    const int64_t part = batches * batch_size_;
    int64_t longest = 0;  // place of the longest sample among the first ones of parts
    for (int64_t begin = 0; begin < size(); begin += part) {
      const auto at = order_.begin() + begin;
      std::stable_sort(at, order_.begin() + std::min(begin + part, size()),
                       [&](int64_t a, int64_t b) { return length(a) > length(b); });
      if (length(*at) > length(order_[static_cast<size_t>(longest)])) longest = begin;
    }
    // The longest batch comes first, so that an out-of-memory error shows in the first step.
    if (size() > 0) std::swap(order_.front(), order_[static_cast<size_t>(longest)]);
  }

  std::vector<int64_t> lengths_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::optional<uint64_t> epoch_seed_;
  std::optional<uint64_t> drawn_seed_;
  std::vector<int64_t> order_;  ///< order of drawn_seed_
};

}  // namespace

std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths, int64_t batch_size,
                                                uint64_t seed) {
  return std::make_shared<LengthGroupedSampler>(std::move(lengths), batch_size, seed);
}

}  // namespace levin
