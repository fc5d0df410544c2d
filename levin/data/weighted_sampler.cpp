#include <ATen/ops/multinomial.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "levin/base/check.h"
#include "levin/data/loading/drawn_order.h"

namespace levin {
namespace {

constexpr int64_t kMostWeights = 1 << 24;  // of torch::multinomial

class WeightedRandomSampler final : public detail::DrawnOrder {
 public:
  WeightedRandomSampler(const std::vector<double>& weights, const WeightedSamplerOptions& options)
      : DrawnOrder(options.num_samples == 0 ? std::ssize(weights) : options.num_samples,
                   options.seed),
        replacement_(options.replacement) {
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
    LEVIN_CHECK(replacement_ || size() <= positive, "data.sampler.weights",
                "cannot draw {} samples without replacement from {} with a weight above 0; set "
                "replacement or a smaller num_samples",
                size(), positive);
    weights_ = at::tensor(weights, at::kDouble);
  }

 private:
  at::Tensor draw(const at::Generator& generator) const override {
    return at::multinomial(weights_, size(), replacement_, generator);
  }

  bool replacement_;
  at::Tensor weights_;  ///< float64 [number of weights]
};

}  // namespace

std::shared_ptr<Sampler> weighted_random_sampler(std::vector<double> weights,
                                                 WeightedSamplerOptions options) {
  return std::make_shared<WeightedRandomSampler>(weights, options);
}

}  // namespace levin
