#include <ATen/ops/randperm.h>

#include "levin/base/check.h"
#include "levin/data/loading/drawn_order.h"

namespace levin {
namespace {

constexpr int64_t kMostBatches = 50;  // batches of a part that is sorted
constexpr int64_t kFewestParts = 4;

class LengthGroupedSampler final : public detail::DrawnOrder {
 public:
  LengthGroupedSampler(std::vector<int64_t> lengths, int64_t batch_size, uint64_t seed)
      : DrawnOrder(std::ssize(lengths), seed),
        lengths_(std::move(lengths)),
        batch_size_(batch_size) {
    LEVIN_CHECK(batch_size > 0, "data.sampler.size", "got a batch of {} samples, wanted 1 or more",
                batch_size);
  }

 private:
  int64_t length(int64_t index) const { return lengths_[static_cast<size_t>(index)]; }

  at::Tensor draw(const at::Generator& generator) const override {
    at::Tensor drawn = at::randperm(size(), generator, at::TensorOptions(at::kLong));
    const std::span<int64_t> order(drawn.data_ptr<int64_t>(), static_cast<size_t>(size()));
    const int64_t batches =
        std::clamp<int64_t>(size() / (batch_size_ * kFewestParts), 1, kMostBatches);
    const int64_t part = batches * batch_size_;
    int64_t longest = 0;  // place of the longest sample among the first ones of parts
    for (int64_t begin = 0; begin < size(); begin += part) {
      const auto at = order.begin() + begin;
      std::stable_sort(at, order.begin() + std::min(begin + part, size()),
                       [&](int64_t a, int64_t b) { return length(a) > length(b); });
      if (length(*at) > length(order[static_cast<size_t>(longest)])) longest = begin;
    }
    // The longest batch comes first, so that an out-of-memory error shows in the first step.
    if (size() > 0) std::swap(order.front(), order[static_cast<size_t>(longest)]);
    return drawn;
  }

  std::vector<int64_t> lengths_;
  int64_t batch_size_;
};

}  // namespace

std::shared_ptr<Sampler> length_grouped_sampler(std::vector<int64_t> lengths, int64_t batch_size,
                                                uint64_t seed) {
  return std::make_shared<LengthGroupedSampler>(std::move(lengths), batch_size, seed);
}

}  // namespace levin
