#include "levin/data/collate/stack.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <string>

#include "levin/base/check.h"
#include "levin/data/collate/gather.h"

namespace levin::detail {
namespace {

std::string describe(const at::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

const at::Tensor& alike(const data::Sample& sample, int64_t number, const std::string& name,
                        const at::Tensor& first, int64_t first_number) {
  LEVIN_CHECK(sample.contains(name), "data.samples.stack",
              "sample {} has no '{}', but sample {} has it; give all samples the same fields",
              number, name, first_number);
  const at::Tensor& tensor = sample[name];
  LEVIN_CHECK(
      tensor.sizes() == first.sizes() && tensor.scalar_type() == first.scalar_type(),
      "data.samples.stack",
      "'{}' is {} in sample {}, but {} in sample {}; give all samples one shape and dtype in "
      "the transform, or set collate",
      name, describe(tensor), number, describe(first), first_number);
  return tensor;
}

}  // namespace

Batch stack_samples(const std::vector<data::Sample>& samples, std::span<const int64_t> numbers,
                    const Batch& reuse) {
  Batch batch;
  if (samples.empty()) return batch;
  for (size_t i = 0; i < samples.size(); ++i) {
    LEVIN_CHECK(samples[i].fields().size() == samples.front().fields().size(), "data.samples.stack",
                "sample {} has {} fields, but sample {} has {}; give all samples the same fields",
                numbers[i], samples[i].fields().size(), numbers.front(),
                samples.front().fields().size());
  }
  std::vector<at::Tensor> rows(samples.size());
  for (const auto& [name, first] : samples.front()) {
    for (size_t i = 0; i < samples.size(); ++i) {
      rows[i] = alike(samples[i], numbers[i], name, first, numbers.front());
    }
    at::DimVector sizes(first.sizes());
    sizes.insert(sizes.begin(), std::ssize(rows));
    at::Tensor out = first.is_cpu() ? output_for(reuse, name, sizes, first.scalar_type())
                                    : at::empty(sizes, first.options());
    at::stack_out(out, rows);
    batch.set(name, out);
  }
  return batch;
}

}  // namespace levin::detail
