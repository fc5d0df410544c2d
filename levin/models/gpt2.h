#pragma once
// GPT-2 (Radford et al. 2019) with Hugging Face's parameter names, so that its weights fit.
// An architecture for a module's steps to call: token ids go in, logits come out.
//
//   levin::models::GPT2 net(levin::models::GPT2Config{.n_layer = 6});
//   auto logits = net->forward(input_ids);             // [B, T] -> [B, T, vocab_size]

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "levin/base/export.h"
#include "levin/base/options.h"

namespace levin::models {

/// The fields of transformers.GPT2Config that shape the network; the defaults are GPT-2 small.
struct GPT2Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;  ///< longest sequence, in tokens
  int64_t n_embd = 768;        ///< width, a multiple of n_head
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;  ///< width of the MLP; 0: 4 n_embd
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;  ///< standard deviation of the initial weights
  bool scale_attn_weights = true;   ///< scores of attention by 1 / sqrt(n_embd / n_head)
  bool scale_attn_by_inverse_layer_idx = false;  ///< and by 1 / i in block i = 1, 2, ...

  LEVIN_API void fields(FieldVisitor& field);
};

/// transformers.GPT2LMHeadModel: pre-norm blocks of causal self-attention and a tanh-GELU MLP of
/// width n_inner. lm_head is transformer.wte itself and is registered once, under that name. The
/// weights of attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj lie as (in, out). Each block is a unit
/// of the sharded strategies (wrap).
class LEVIN_API GPT2Impl : public torch::nn::Module {
 public:
  /// Weights as Hugging Face draws them: normal(0, initializer_range), those of c_proj divided by
  /// sqrt(2 n_layer) as they add up along the residual path; biases 0.
  /// Throws Error "models.gpt2.config" for sizes below 1, an n_embd that n_head does not divide, or
  /// a dropout outside [0, 1).
  explicit GPT2Impl(GPT2Config config = {});

  /// input_ids: int64 [B, T] -> logits [B, T, vocab_size] in the dtype of the weights.
  /// Throws Error "models.gpt2.input" unless input_ids has two dims, "models.gpt2.length" when T is
  /// above n_positions.
  at::Tensor forward(const at::Tensor& input_ids);

  const GPT2Config& config() const { return config_; }

 private:
  struct Transformer;

  GPT2Config config_;
  std::shared_ptr<Transformer> transformer_;
};

TORCH_MODULE(GPT2);

}  // namespace levin::models
