#pragma once
// Body: the part of a model that all its tasks share: token ids to one vector a token.
// Made by a family from a config; a head makes of its vectors what a task asks for.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "levin/models/inputs.h"
#include "levin/module/activation_checkpoint.h"
#include "levin/module/evaluation_mode.h"

namespace levin::models {

/// Not a module: its modules stand below the one that it was made in, under a prefix or none, so that
/// parameters have the names of the files.
class Body {
 public:
  virtual ~Body() = default;

  /// -> [B, T, width]
  virtual at::Tensor forward(const Inputs& inputs) = 0;
  /// The embedding of the tokens, [vocabulary, width]: also the matrix of a head that is tied to
  /// it.
  virtual const at::Tensor& embedding() const = 0;
  /// Returns whether a token attends only to the tokens before it, and inputs may have a KV cache:
  /// the model can generate text.
  virtual bool is_causal() const { return false; }
  /// Tokens of a text that the body has positions for; 0: no limit.
  virtual int64_t longest() const { return 0; }

  bool activation_checkpointing = false;  ///< checkpoints each block where gradients are wanted

 protected:
  /// forward(x) of a block, which is computed once more in backward where activation_checkpointing says so, in
  /// the mode of this call: DPO trains in evaluation mode, and is out of it before backward.
  template <class Forward>
  at::Tensor run(torch::nn::Module& block, const Forward& forward, const at::Tensor& x) const {
    if (!activation_checkpointing) return forward(x);
    return levin::activation_checkpoint(
        [&block, forward, evaluates = !block.is_training()](const at::Tensor& in) {
          std::optional<EvaluationMode> mode;
          if (evaluates) mode.emplace(block);
          return forward(in);
        },
        x);
  }
};

/// "model" and "layers.0" -> "model.layers.0"
inline std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

}  // namespace levin::models
