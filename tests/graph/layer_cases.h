#pragma once
// Every layer of torch::nn with inputs for it: what the graph's rooms and the devices are held to.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace levin::test {

using Tensors = std::vector<at::Tensor>;

struct Layer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
  std::function<Tensors()> inputs;
};

using Make = std::function<Layer()>;

struct LayerCase {
  std::string name;
  Make make;

  /// Of several layers: XLA compiles those for longer than all others together.
  [[nodiscard]] bool is_deep() const {
    return name.starts_with("Transformer") || name.ends_with("Deep");
  }
  friend void PrintTo(const LayerCase& of, std::ostream* out) { *out << of.name; }
};

std::vector<LayerCase> layer_cases();

/// Those that a gradient does not reach: indices, and floats that are -1 and 1 only.
std::vector<bool> labels_of(const Tensors& inputs);
/// What the layer gives, and the gradients of inputs and parameters.
Tensors forward_and_backward(const Layer& layer, const Tensors& inputs,
                             const std::vector<bool>& are_labels);

}  // namespace levin::test
