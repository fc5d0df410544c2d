#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/dataset.h"
#include "levin/data/sample_random.h"
#include "levin/data/sampler.h"

namespace levin {
namespace {

constexpr int64_t kMostWeights = 1 << 24;  // of torch::multinomial

class WeightedRandomSampler final : public Sampler {
 public:
  WeightedRandomSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options)
      : size_(options.num_samples == 0 ? std::ssize(weights) : options.num_samples),
        replacement_(options.replacement),
        seed_(options.seed) {
    LEVIN_CHECK(options.num_samples >= 0, "data.sampler.size",
                "got num_samples = {}, wanted 0 or more", options.num_samples);
    const auto valid = [](double weight) { return std::isfinite(weight) && weight >= 0; };
    const auto wrong = std::ranges::find_if_not(weights, valid);
    LEVIN_CHECK(wrong == weights.end(), "data.sampler.weights",
                "got the weight {} for sample {}, wanted a finite one of at least 0", *wrong,
                wrong - weights.begin());
    const auto positive = std::ranges::count_if(weights, [](double weight) { return weight > 0; });
    LEVIN_CHECK(positive > 0 && std::ssize(weights) <= kMostWeights, "data.sampler.weights",
                "got {} weights, {} of them above 0; wanted 1 to {} weights and one above 0",
                weights.size(), positive, kMostWeights);
    LEVIN_CHECK(replacement_ || size_ <= positive, "data.sampler.weights",
                "cannot draw {} samples without replacement from {} with a weight above 0; set "
                "replacement or a smaller num_samples",
                size_, positive);
    weights_ = at::tensor(weights, at::kDouble);
  }

  int64_t size() const override { return size_; }
  void start(int64_t epoch, int64_t consumed) override {
    // A loader's seed wins, as for length_grouped_sampler.
    if (detail::in_draw_scope()) {
      epoch_seed_ = data::sample_seed();
    } else if (epoch != epoch_ || !epoch_seed_) {
      epoch_seed_ = derive_seed(seed_, static_cast<uint64_t>(epoch));
    }
    epoch_ = epoch;
    position_ = std::min(consumed, size_);
  }
  int64_t next(std::span<int64_t> indices) override {
    if (drawn_seed_ != epoch_seed_) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(*epoch_seed_);
      order_ = at::multinomial(weights_, size_, replacement_, generator);
      drawn_seed_ = epoch_seed_;
    }
    const int64_t count = std::min(std::ssize(indices), size_ - position_);
    std::copy_n(order_.const_data_ptr<int64_t>() + position_, count, indices.begin());
    position_ += count;
    return count;
  }

 private:
  int64_t size_;
  bool replacement_;
  uint64_t seed_;
  at::Tensor weights_;  ///< float64 [number of weights]
  int64_t epoch_ = 0;
  int64_t position_ = 0;
  std::optional<uint64_t> epoch_seed_;
  std::optional<uint64_t> drawn_seed_;
  at::Tensor order_;  ///< int64 [size], of drawn_seed_
};

}  // namespace

std::shared_ptr<Sampler> weighted_random_sampler(std::vector<double> weights,
                                                 WeightedSamplerOptions options) {
  return std::make_shared<WeightedRandomSampler>(weights, options);
}

}  // namespace levin
