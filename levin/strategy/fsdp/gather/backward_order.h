#pragma once
// BackwardOrder: in which order a backward pass reads the values of parameters, as its graph says.

#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <span>
#include <vector>

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace levin::fsdp {

class BackwardOrder {
 public:
  /// What a parameter's gradients go to, and a number of what its values are in.
  void add(const torch::autograd::Node* accumulator, size_t number) {
    if (accumulator != nullptr) numbers_[accumulator] = number;
  }
  /// nodes: in the order in which they run. Each number once. A function reads a parameter if it has
  /// a gradient to compute for something that it was combined with: a layer's input, not its bias.
  std::vector<size_t> of(std::span<torch::autograd::Node* const> nodes);

 private:
  ska::flat_hash_map<const torch::autograd::Node*, size_t> numbers_;
};

}  // namespace levin::fsdp
