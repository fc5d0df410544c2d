#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/gather.h"
#include "levin/data/sources.h"

namespace levin::data {
namespace {

std::string describe(const at::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

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
    return stack(indices, samples, reuse);
  }

 private:
  Sample sample(int64_t index, const DrawContext& context) const {
    LEVIN_CHECK(index >= 0 && index < size_, "data.samples.index",
                "got index {} for a data set of {} samples, wanted 0 <= index < {}", index, size_,
                size_);
    Sample sample = get_(index);
    if (!options_.transform) return sample;
    std::mt19937_64 random(derive_seed(context.seed, static_cast<uint64_t>(context.epoch),
                                       static_cast<uint64_t>(index)));
    return options_.transform(std::move(sample), random);
  }

  static Batch stack(std::span<const int64_t> indices, const std::vector<Sample>& samples,
                     const Batch& reuse) {
    Batch batch;
    if (samples.empty()) return batch;
    for (size_t i = 0; i < samples.size(); ++i) {
      LEVIN_CHECK(samples[i].fields().size() == samples.front().fields().size(),
                  "data.samples.stack", "sample {} has {} fields, sample {} has {}", indices[i],
                  samples[i].fields().size(), indices.front(), samples.front().fields().size());
    }
    std::vector<at::Tensor> rows(samples.size());
    for (const auto& [name, first] : samples.front()) {
      for (size_t i = 0; i < samples.size(); ++i) {
        rows[i] = alike(samples[i], indices[i], name, first, indices.front());
      }
      at::DimVector sizes(first.sizes());
      sizes.insert(sizes.begin(), std::ssize(rows));
      at::Tensor out = first.is_cpu() ? detail::output_for(reuse, name, sizes, first.scalar_type())
                                      : at::empty(sizes, first.options());
      at::stack_out(out, rows);
      batch.set(name, out);
    }
    return batch;
  }

  static const at::Tensor& alike(const Sample& sample, int64_t index, const std::string& name,
                                 const at::Tensor& first, int64_t first_index) {
    LEVIN_CHECK(sample.contains(name), "data.samples.stack",
                "sample {} has no '{}', which sample {} has", index, name, first_index);
    const at::Tensor& tensor = sample[name];
    LEVIN_CHECK(
        tensor.sizes() == first.sizes() && tensor.scalar_type() == first.scalar_type(),
        "data.samples.stack",
        "'{}' of sample {} is {}, of sample {} {}; make them alike in the transform or give "
        "a collate",
        name, index, describe(tensor), first_index, describe(first));
    return tensor;
  }

  int64_t size_;
  std::function<Sample(int64_t)> get_;
  SampleOptions options_;
};

}  // namespace

std::shared_ptr<Dataset> samples(int64_t size, std::function<Sample(int64_t index)> get,
                                 SampleOptions options) {
  LEVIN_CHECK(size >= 0 && get, "data.samples.get",
              "got {} samples and {}, wanted 0 or more and a function that gives one by its index",
              size, get ? "a function" : "no function");
  return std::make_shared<SampleDataset>(size, std::move(get), std::move(options));
}

}  // namespace levin::data
