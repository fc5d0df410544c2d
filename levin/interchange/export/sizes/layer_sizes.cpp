#include "levin/interchange/export/sizes/layer_sizes.h"

#include <string_view>

namespace levin::interchange {
namespace {

const c10::IValue* find(const RecordedCall& call, std::string_view name) {
  const auto& formals = call.op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    if (formals[i].name() == name && i < call.arguments.size()) {
      return &call.arguments[i].constant;
    }
  }
  return nullptr;
}

/// A number for each spatial dim: kernel_size = 3 is 3 for all.
int64_t number_at(const c10::IValue* value, size_t place, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (value->isInt()) return value->toInt();
  if (!value->isIntList()) return otherwise;
  const auto numbers = value->toIntVector();
  if (numbers.empty()) return otherwise;
  return numbers[numbers.size() == 1 ? 0 : std::min(place, numbers.size() - 1)];
}

}  // namespace

std::vector<SizeFormula> layer_sizes(const RecordedCall& call,
                                     const std::vector<SizeFormula>& input,
                                     const std::vector<int64_t>& weight, size_t num_dims,
                                     size_t dim) {
  const std::string& name = call.op.schema().name();
  const bool is_convolution = name.find("conv") != std::string::npos;
  if (!is_convolution && name.find("pool") == std::string::npos) return {};
  size_t num_spatial = num_dims < 2 ? 0 : num_dims - 2;
  if (is_convolution && weight.size() >= 2) num_spatial = weight.size() - 2;
  if (!is_convolution) {
    for (const size_t count : {1, 2, 3}) {
      if (name.find(std::to_string(count) + "d") != std::string::npos) num_spatial = count;
    }
  }
  if (input.size() != num_dims || dim + num_spatial < num_dims) return {};
  const size_t place = dim + num_spatial - num_dims;
  const int64_t kernel = is_convolution && weight.size() >= 2
                             ? weight[place + 2]
                             : number_at(find(call, "kernel_size"), place, 1);
  const int64_t stride = number_at(find(call, "stride"), place, is_convolution ? 1 : kernel);
  const int64_t dilation = number_at(find(call, "dilation"), place, 1);
  const int64_t padding = number_at(find(call, "padding"), place, 0);
  if (stride < 1) return {};
  // https://docs.pytorch.org/docs/stable/generated/torch.nn.MaxPool2d.html
  const SizeFormula rest = input[dim] + (2 * padding - dilation * (kernel - 1) - 1);
  return {floor_div(rest, stride) + 1, floor_div(rest + (stride - 1), stride) + 1};
}

}  // namespace levin::interchange
