#pragma once
// Layer: what bodies and heads are made of, with weights that nobody has filled at first.

#include <torch/nn/module.h>

namespace levin::models {

/// A layer with weights of its own.
class Layer : public torch::nn::Module {
 public:
  /// As transformers' _init_weights draws them.
  virtual void draw() = 0;
};

}  // namespace levin::models
