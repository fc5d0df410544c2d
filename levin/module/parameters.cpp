#include "levin/module/parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <set>
#include <unordered_set>

#include "levin/base/check.h"

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

/// A tensor, or of one that is divided over ranks the part that this rank has.
const at::Tensor& own_part(const State& state, const std::string& name) {
  const auto* slice = std::get_if<TensorSlice>(&state.values().find(name)->second);
  return slice != nullptr ? slice->local : state.tensor(name);
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
    if (!entry.repeated) state.set(entry.named.name, entry.named.tensor.detach());
  }
  return state;
}

void load_module_state(torch::nn::Module& module, const State& state, LoadOptions options) {
  std::set<std::string> missing, wrong_shape, unexpected;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, value] : state.values()) unexpected.insert(name);
  for (const Entry& entry : entries(module)) {
    const auto& [name, tensor] = entry.named;
    unexpected.erase(name);
    if (!state.contains(name)) {
      if (!entry.repeated) missing.insert(name);
      continue;
    }
    const at::Tensor& source = own_part(state, name);
    if (source.sizes() != tensor.sizes()) {
      wrong_shape.insert(fmt::format("{} (got {}, wanted {})", name, c10::str(source.sizes()),
                                     c10::str(tensor.sizes())));
    }
    copies.emplace_back(tensor, source);
  }
  LEVIN_CHECK(wrong_shape.empty(), "module.state.shape",
              "weights of other shapes than the module's: {}", join(wrong_shape));
  LEVIN_CHECK(missing.empty() || !options.strict, "module.state.missing",
              "the module has parameters that the weights lack: {}", join(missing));
  LEVIN_CHECK(unexpected.empty() || !options.strict, "module.state.unexpected",
              "the weights have names that the module lacks: {}", join(unexpected));
  const at::NoGradGuard no_grad;
  for (auto& [target, source] : copies) target.copy_(source);
}

}  // namespace levin
