#include "levin/module/parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/module/base.h"
#include "levin/module/name_hint.h"
#include "levin/shard/leaf.h"

namespace levin {
namespace {

struct Entry {
  NamedTensor named;
  bool repeated;  // the same tensor stood under an earlier name
};

std::vector<Entry> entries(const torch::nn::Module& module) {
  std::vector<Entry> all;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const bool first = seen.insert(tensor.unsafeGetTensorImpl()).second;
    all.push_back({{name, tensor}, !first});
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return all;
}

std::string join(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == 8) return text + fmt::format(", and {} more", names.size() - 8);
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

/// The module keeps its dtypes, and a tensor of another is converted: one line for each pair of them.
void tell_of_casts(const std::vector<std::pair<at::Tensor, NamedTensor>>& copies) {
  std::map<std::pair<at::ScalarType, at::ScalarType>, std::set<std::string>> casts;
  for (const auto& [target, source] : copies) {
    if (source.tensor.scalar_type() == target.scalar_type()) continue;
    casts[{source.tensor.scalar_type(), target.scalar_type()}].insert(source.name);
  }
  for (const auto& [types, names] : casts) {
    log::info("weights: {} tensors are cast from {} to the module's {}: {}", names.size(),
              c10::toString(types.first), c10::toString(types.second), join(names));
  }
}

}  // namespace

std::vector<NamedTensor> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      parameters.push_back({item.key(), item.value()});
    }
  }
  return parameters;
}

State module_state(const torch::nn::Module& module) {
  State state;
  for (const Entry& entry : entries(module)) {
    const auto& [name, tensor] = entry.named;
    if (!entry.repeated) state.set(name, shard::state_value(tensor, tensor.detach()));
  }
  return state;
}

State trained_state(const torch::nn::Module& module) {
  State state = module_state(module);
  const auto base = base_tensors(module);
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (base.contains(tensor.unsafeGetTensorImpl())) state.erase(name);
  }
  return state;
}

void load_module_state(torch::nn::Module& module, const State& state, LoadOptions options) {
  std::set<std::string> missing, wrong_shape, unexpected;
  std::vector<std::pair<at::Tensor, NamedTensor>> copies;
  const auto base = base_tensors(module);
  for (const auto& [name, value] : state.values()) unexpected.insert(name);
  for (const Entry& entry : entries(module)) {
    const auto& [name, tensor] = entry.named;
    unexpected.erase(name);
    if (!state.contains(name)) {
      if (!entry.repeated && !base.contains(tensor.unsafeGetTensorImpl())) missing.insert(name);
      continue;
    }
    const State::Value& value = state.tensor_or_slice(name);
    if (const std::string other = shard::difference(tensor, value); !other.empty()) {
      wrong_shape.insert(fmt::format("{} ({})", name, other));
      continue;
    }
    copies.emplace_back(tensor, NamedTensor{name, shard::own_part(tensor, value)});
  }
  LEVIN_CHECK(wrong_shape.empty(), "module.state.shape",
              "weights of other shapes than the module's: {}", join(wrong_shape));
  LEVIN_CHECK(missing.empty() || !options.strict, "module.state.missing",
              "the module has parameters that the weights lack: {}{}", join(missing),
              detail::name_hint(missing, unexpected));
  LEVIN_CHECK(unexpected.empty() || !options.strict, "module.state.unexpected",
              "the weights have names that the module lacks: {}", join(unexpected));
  tell_of_casts(copies);
  const at::NoGradGuard no_grad;
  for (const auto& [target, source] : copies) {
    shard::own_values(target).copy_(source.tensor);
    shard::note_written(target);
  }
}

}  // namespace levin
