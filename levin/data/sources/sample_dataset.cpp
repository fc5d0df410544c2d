#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/collate/stack.h"
#include "levin/data/sample_random.h"
#include "levin/data/sources/sources.h"

namespace levin::data {
namespace {

class SampleDataset final : public Dataset {
 public:
  SampleDataset(int64_t size, std::function<Sample(int64_t)> get, SampleOptions options)
      : size_(size), get_(std::move(get)), options_(std::move(options)) {}

  int64_t size() const override { return size_; }
  Batch get(std::span<const int64_t> indices) const override { return draw(indices, {}, {}); }

  Batch draw(std::span<const int64_t> indices, const DrawContext& context,
             Batch reuse) const override {
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (const int64_t index : indices) samples.push_back(sample(index, context));
    if (options_.collate) return options_.collate(std::move(samples));
    return detail::stack_samples(samples, indices, reuse);
  }

 private:
  Sample sample(int64_t index, const DrawContext& context) const {
    LEVIN_CHECK(index >= 0 && index < size_, "data.samples.index",
                "got index {} for a dataset of {} samples, wanted 0 <= index < {}", index, size_,
                size_);
    const detail::ItemScope draws(detail::DrawsOf::kSample, index);
    Sample sample = get_(index);
    if (!options_.transform) return sample;
    std::mt19937_64 random(derive_seed(context.seed, static_cast<uint64_t>(context.epoch),
                                       static_cast<uint64_t>(index)));
    return options_.transform(std::move(sample), random);
  }

  int64_t size_;
  std::function<Sample(int64_t)> get_;
  SampleOptions options_;
};

}  // namespace

std::shared_ptr<Dataset> samples(int64_t size, std::function<Sample(int64_t index)> get,
                                 SampleOptions options) {
  LEVIN_CHECK(size >= 0 && get, "data.samples.get",
              "got {} samples and {}, wanted 0 or more samples and a function from index to sample",
              size, get ? "a function" : "no function");
  return std::make_shared<SampleDataset>(size, std::move(get), std::move(options));
}

}  // namespace levin::data
