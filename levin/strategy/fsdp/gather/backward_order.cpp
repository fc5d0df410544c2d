#include "levin/strategy/fsdp/gather/backward_order.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <ranges>

namespace levin::fsdp {

using torch::autograd::Edge;
using torch::autograd::Node;

std::vector<size_t> BackwardOrder::of(std::span<Node* const> nodes) {
  // Casts, transpositions and the like of a parameter, which stand for it: from the leaves on.
  for (const Node* node : nodes | std::views::reverse) {
    if (node->num_outputs() != 1) continue;
    const auto number = numbers_.find(node->next_edge(0).function.get());
    if (number == numbers_.end()) continue;
    const size_t same = number->second;
    numbers_[node] = same;
  }
  std::vector<size_t> order;
  for (const Node* node : nodes) {
    if (node->num_outputs() < 2) continue;
    const bool has_input = std::ranges::any_of(node->next_edges(), [&](const Edge& edge) {
      return edge.is_valid() && numbers_.count(edge.function.get()) == 0;
    });
    if (!has_input) continue;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      const auto number = numbers_.find(edge.function.get());
      if (number == numbers_.end() || std::ranges::find(order, number->second) != order.end()) {
        continue;
      }
      order.push_back(number->second);
    }
  }
  return order;
}

}  // namespace levin::fsdp
