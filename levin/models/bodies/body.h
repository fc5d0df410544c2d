#pragma once
// Body: the part of a model that all its tasks share: token ids to one vector a token.
// Made by a family from a config; a head makes of its vectors what a task asks for.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "levin/models/inputs.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin::models {

/// Not a module: its modules stand below the one that it was made in, under a prefix or none, so that
/// parameters have the names of the files.
class Body {
 public:
  virtual ~Body() = default;

  /// -> [B, T, width]
  virtual at::Tensor forward(const Inputs& inputs) = 0;
  /// Of the tokens, [vocabulary, width]: the matrix of a head that is tied to it.
  virtual const at::Tensor& embedding() const = 0;
  /// Whether a token sees those before it alone, and inputs may have a cache: what can write a text.
  virtual bool is_causal() const { return false; }
  /// Tokens of a text that the body has positions for; 0: no limit.
  virtual int64_t longest() const { return 0; }

  bool activation_checkpointing = false;  ///< of each block while it trains
};

/// "model" and "layers.0" -> "model.layers.0"
inline std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace levin::models
