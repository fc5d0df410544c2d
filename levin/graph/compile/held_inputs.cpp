#include "levin/graph/compile/held_inputs.h"

#include <algorithm>

#include "levin/base/check.h"

namespace levin::graph {
namespace {

/// Returns how many tensors and views hold the input.
size_t holders_of(const at::Tensor& input) {
  const bool has_storage = input.defined() && input.has_storage();
  return input.use_count() + (has_storage ? input.storage().use_count() : 0);
}

bool lies_in(const at::Tensor& value, const at::Tensor& input) {
  return input.defined() && value.defined() && value.has_storage() && value.is_alias_of(input);
}

}  // namespace

HeldInputs::HeldInputs(const std::vector<at::Tensor>& inputs,
                       const std::vector<std::string_view>& names)
    : inputs_(inputs), names_(names) {
  for (const at::Tensor& input : inputs) holders_.push_back(holders_of(input));
}

void HeldInputs::check(const std::vector<at::Tensor>& values) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const bool is_given = std::ranges::any_of(
        values, [&](const at::Tensor& value) { return lies_in(value, inputs_[i]); });
    LEVIN_CHECK(is_given || holders_of(inputs_[i]) <= holders_[i], "graph.record.kept_input",
                "it keeps its input {}, or a view or an autograd graph of it; keep a clone, or a "
                "detached result",
                names_[i]);
  }
}

void detach_results(std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs) {
  for (at::Tensor& result : results) {
    const bool is_given =
        !result.defined() || (result.is_leaf() && result.requires_grad()) ||
        std::ranges::any_of(inputs, [&](const auto& input) { return input.is_same(result); });
    if (!is_given) result = result.detach();
  }
}

}  // namespace levin::graph
