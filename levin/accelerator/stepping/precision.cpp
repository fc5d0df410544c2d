#include "levin/accelerator/stepping/precision.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin {
namespace {

struct Row {
  std::vector<std::string_view> names;  ///< the first is the precision's own
  Precision precision;
};

std::vector<Row> rows() {
  return {{{"32-true", "32", "no"}, {}},
          {{"64-true", "64"}, {.parameters = at::kDouble}},
          {{"bf16-true"}, {.parameters = at::kBFloat16}},
          {{"16-true"}, {.parameters = at::kHalf}},
          {{"bf16-mixed", "bf16"}, {.autocast = at::kBFloat16}},
          {{"16-mixed", "16", "fp16"}, {.autocast = at::kHalf, .scales_loss = true}}};
}

}  // namespace

Precision parse_precision(std::string_view name) {
  std::vector<std::string> known;
  for (Row& row : rows()) {
    row.precision.name = row.names.front();
    if (std::ranges::count(row.names, name) > 0) return row.precision;
    known.insert(known.end(), row.names.begin(), row.names.end());
  }
  const auto close = nearest(name, known);
  LEVIN_FAIL("accelerator.precision", "got '{}', wanted one of {}; {}", name, to_text(known),
             close ? fmt::format("did you mean '{}'?", *close) : "set --precision");
}

void check_precision(const Precision& precision, at::Device device,
                     std::optional<std::pair<int, int>> compute_capability) {
  const bool is_bf16 = precision.autocast == at::kBFloat16 || precision.parameters == at::kBFloat16;
  if (!is_bf16 || !compute_capability) return;
  const auto [major, minor] = *compute_capability;
  LEVIN_CHECK(major >= 8, "accelerator.precision.device",
              "{} needs a GPU of compute capability 8.0, but {} has {}.{}; set --precision "
              "16-mixed or 32-true",
              precision.name, device.str(), major, minor);
}

// Module::to would cast counts too.
void Precision::convert(torch::nn::Module& module) const {
  if (!parameters) return;
  const at::NoGradGuard no_grad;
  const auto cast = [&](at::Tensor& tensor) {
    if (tensor.defined()) tensor.set_data(convert(tensor));
  };
  for (at::Tensor& parameter : module.parameters()) cast(parameter);
  for (at::Tensor& buffer : module.buffers()) cast(buffer);
}

at::Tensor Precision::convert(const at::Tensor& input) const {
  const bool casts = parameters && input.defined() && input.is_floating_point();
  return casts ? input.to(*parameters) : input;
}

Batch Precision::convert(const Batch& batch) const {
  if (!parameters) return batch;
  Batch converted;
  for (const auto& [name, tensor] : batch) converted.set(name, convert(tensor));
  return converted;
}

}  // namespace levin
