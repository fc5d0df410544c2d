#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/interpret/input_overlap_impl.h"

namespace levin::graph {
namespace {

bool share_memory(const at::Tensor& one, const at::Tensor& other) {
  const bool have_one = one.defined() && other.defined() && one.has_storage() &&
                        other.has_storage() && one.storage().is_alias_of(other.storage());
  if (!have_one) return false;
  const auto extent = [](const at::Tensor& tensor) {
    const size_t begin = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    return std::pair(begin, begin + at::detail::computeStorageNbytes(
                                        tensor.sizes(), tensor.strides(), tensor.itemsize()));
  };
  const auto [begin, end] = extent(one);
  const auto [from, to] = extent(other);
  return begin < to && from < end;
}

std::string text(const std::string& name, const std::string& other) {
  return fmt::format("{} shares memory with {}, and the graph writes to one of them; pass a clone",
                     name, other);
}

}  // namespace

InputOverlap::InputOverlap(const Graph& graph) {
  const std::vector<Update> updates = graph.updates();
  const auto is_updated = [&](const Node& node) {
    return std::ranges::any_of(updates, [&](const Update& update) {
      return !update.is_gradient && update.target == &node.output();
    });
  };
  for (const Node* node : graph.find_nodes(Opcode::kPlaceholder)) {
    inputs_.push_back({node->name(), is_updated(*node)});
  }
  for (const Node* node : graph.find_nodes(Opcode::kGetAttr)) {
    states_.push_back({node->name(), node->tensor(), is_updated(*node)});
  }
}

std::string InputOverlap::in(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < std::min(inputs.size(), inputs_.size()); ++i) {
    for (size_t other = 0; other < i; ++other) {
      const bool is_updated = inputs_[i].is_updated || inputs_[other].is_updated;
      if (is_updated && share_memory(inputs[i], inputs[other])) {
        return text(inputs_[i].name, inputs_[other].name);
      }
    }
    for (const StateTensor& state : states_) {
      const bool is_updated = inputs_[i].is_updated || state.is_updated;
      if (is_updated && share_memory(inputs[i], state.tensor)) {
        return text(inputs_[i].name, state.name);
      }
    }
  }
  return {};
}

}  // namespace levin::graph
