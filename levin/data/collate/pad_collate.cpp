#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "levin/base/check.h"
#include "levin/data/collate/stack.h"
#include "levin/data/loader.h"

namespace levin::data {
namespace {

void check_pad(const PadOptions& options) {
  const bool ascends = std::ranges::adjacent_find(options.lengths, std::ranges::greater_equal()) ==
                       options.lengths.end();
  LEVIN_CHECK(!options.lengths.empty() && options.lengths.front() > 0 && ascends,
              "data.pad.options", "got lengths {}, wanted ascending lengths of at least 1",
              c10::str(at::IntArrayRef(options.lengths)));
  LEVIN_CHECK(!options.values.empty(), "data.pad.options",
              "got no field to pad, wanted at least one; set values = {{{{\"tokens\", 0}}}}");
}

class Pad {
 public:
  explicit Pad(PadOptions options) : options_(std::move(options)) { check_pad(options_); }

  Batch operator()(std::vector<Sample> samples) const {
    if (samples.empty()) return {};
    std::vector<int64_t> lengths;
    for (const Sample& sample : samples) lengths.push_back(length_of(sample, std::ssize(lengths)));
    const int64_t length = bucket_of(lengths);
    for (Sample& sample : samples) {
      for (const auto& [name, value] : options_.values) {
        sample.set(name, padded(sample[name], length, value));
      }
    }
    std::vector<int64_t> numbers(samples.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    Batch batch = levin::detail::stack_samples(samples, numbers, {});
    const at::Tensor mask = at::zeros({std::ssize(samples), length}, at::kBool);
    for (int64_t i = 0; i < std::ssize(samples); ++i) {
      mask.select(0, i).narrow(0, 0, lengths[static_cast<size_t>(i)]).fill_(true);
    }
    batch.set(options_.mask, mask);
    return batch;
  }

 private:
  int64_t dim_of(const at::Tensor& tensor) const {
    return options_.dim < 0 ? options_.dim + tensor.dim() : options_.dim;
  }

  int64_t length_of(const Sample& sample, int64_t number) const {
    std::optional<int64_t> length;
    for (const auto& [name, value] : options_.values) {
      LEVIN_CHECK(sample.contains(name), "data.pad.field",
                  "sample {} of the batch has no field '{}' to pad", number, name);
      const at::Tensor& field = sample[name];
      const int64_t dim = dim_of(field);
      LEVIN_CHECK(dim >= 0 && dim < field.dim(), "data.pad.field",
                  "'{}' of sample {} of the batch is {}, which has no dim {} to pad", name, number,
                  c10::str(field.sizes()), options_.dim);
      LEVIN_CHECK(!length || *length == field.size(dim), "data.pad.length",
                  "'{}' of sample {} of the batch has length {}, but '{}' has {}; give fields of "
                  "one length",
                  name, number, field.size(dim), options_.values.front().first, length.value_or(0));
      length = field.size(dim);
    }
    return *length;
  }

  int64_t bucket_of(const std::vector<int64_t>& lengths) const {
    const auto longest = std::ranges::max_element(lengths);
    const auto found = std::ranges::lower_bound(options_.lengths, *longest);
    LEVIN_CHECK(found != options_.lengths.end(), "data.pad.length",
                "sample {} of the batch has length {}, but the greatest of lengths is {}; truncate "
                "it, or add a length",
                longest - lengths.begin(), *longest, options_.lengths.back());
    return *found;
  }

  at::Tensor padded(const at::Tensor& field, int64_t length, double value) const {
    const int64_t dim = dim_of(field);
    at::DimVector sizes(field.sizes());
    sizes[static_cast<size_t>(dim)] = length;
    at::Tensor out = at::full(sizes, value, field.options());
    out.narrow(dim, 0, field.size(dim)).copy_(field);
    return out;
  }

  PadOptions options_;
};

}  // namespace

std::function<Batch(std::vector<Sample>)> pad_collate(PadOptions options) {
  return Pad(std::move(options));
}

}  // namespace levin::data
