#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "levin/graph/meta/build_arguments_impl.h"
#include "levin/graph/meta/build_log_impl.h"

namespace levin::graph::meta {
namespace {

std::optional<size_t> parameter_named(const OperatorInfo& info, std::string_view name) {
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    if (info.parameters()[i].name() == name) return i;
  }
  return std::nullopt;
}

}  // namespace

BuildArguments::BuildArguments(const OperatorInfo& info, std::span<c10::IValue> values)
    : info(info), values(values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isGenerator()) generator = values[i].toGenerator();
    each_tensor(values[i], [&](const at::Tensor& tensor) {
      tensors.push_back(tensor);
      parameters.push_back(i);
      has_unmade |= contents_of(tensor) != nullptr;
    });
  }
  const std::optional<size_t> device = parameter_named(info, "device");
  if (!device) return;
  const std::optional<size_t> layout = parameter_named(info, "layout");
  const bool is_strided =
      !layout || values[*layout].isNone() || values[*layout].toLayout() == at::kStrided;
  // A tensor's options say meta where it has no memory yet.
  const bool is_free = values[*device].isNone() || values[*device].toDevice().is_meta();
  is_redirected = has_unmade || (tensors.empty() && is_free && is_strided);
}

at::Tensor BuildArguments::looked_at() const {
  if (!info.is_host_read) return {};
  const bool is_index = info.name == "aten::index.Tensor";  // by masks it does
  for (const at::Tensor& tensor : tensors) {
    if (contents_of(tensor) == nullptr) continue;
    const bool is_mask = tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
    if (!is_index || (is_mask && !tensor.is_same(tensors.front()))) return tensor;
  }
  return {};
}

std::vector<at::Tensor> BuildArguments::written() const {
  std::vector<at::Tensor> all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_written = std::ranges::count(info.written, parameters[i]) > 0;
    if (is_written && tensors[i].defined()) all.push_back(tensors[i]);
  }
  return all;
}

void BuildArguments::redirect(c10::IValue to) const {
  if (const auto device = parameter_named(info, "device")) values[*device] = std::move(to);
  if (const auto pin = parameter_named(info, "pin_memory")) values[*pin] = c10::IValue();
}

}  // namespace levin::graph::meta
