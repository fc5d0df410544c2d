#pragma once
// GPT-2 (Radford et al. 2019): a language model with the parameter names of Hugging Face, so that
// it loads their weights. Token ids go in, logits come out.
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

/// The fields of transformers.GPT2Config that shape the network. The defaults are GPT-2 small.
struct GPT2Config {
  int64_t vocab_size = 50257;  ///< size of the vocabulary
  int64_t n_positions = 1024;  ///< maximum sequence length, in tokens
  int64_t n_embd = 768;        ///< hidden size, a multiple of n_head
  int64_t n_layer = 12;        ///< number of blocks
  int64_t n_head = 12;         ///< attention heads per block
  int64_t n_inner = 0;         ///< hidden size of the MLP; 0: 4 n_embd
  /// Activation function of the MLP, named as in transformers.
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;          ///< dropout probability on the residual branches
  double embd_pdrop = 0.1;           ///< dropout probability on the embeddings
  double attn_pdrop = 0.1;           ///< dropout probability on attention weights
  double layer_norm_epsilon = 1e-5;  ///< added to the variance in layer norms
  double initializer_range = 0.02;   ///< standard deviation of the initial weights
  bool scale_attn_weights = true;    ///< divide attention scores by sqrt(n_embd / n_head)
  /// Also divide the attention scores of block i = 1, 2, ... by i.
  bool scale_attn_by_inverse_layer_idx = false;

  /// Visits all options, for the command line and TOML files.
  LEVIN_API void fields(FieldVisitor& field);
};

/// GPT-2 with a language model head, as transformers.GPT2LMHeadModel: pre-norm blocks of causal
/// self-attention and an MLP of width n_inner with a tanh-approximated GELU by default. The weights
/// of the head are tied to the embedding and are registered once, as transformer.wte. The weights
/// of attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj have the layout [in, out]. Each block is a
/// unit of the sharded strategies (wrap).
class LEVIN_API GPT2Impl : public torch::nn::Module {
 public:
  /// Creates the model with weights initialized as in transformers: normal(0, initializer_range),
  /// where those of c_proj are divided by sqrt(2 n_layer), since they add up along the residual
  /// path; biases are 0. Throws Error "models.gpt2.config" for sizes below 1, an n_embd that n_head
  /// does not divide, or a dropout outside [0, 1).
  explicit GPT2Impl(GPT2Config config = {});

  /// Computes logits [B, T, vocab_size], in the dtype of the weights, from input_ids, int64 [B, T].
  /// Throws Error "models.gpt2.input" unless input_ids has two dims, and "models.gpt2.length" if T
  /// is above n_positions.
  at::Tensor forward(const at::Tensor& input_ids);

  /// Config of the model.
  const GPT2Config& config() const { return config_; }

 private:
  struct Transformer;

  GPT2Config config_;
  std::shared_ptr<Transformer> transformer_;
};

TORCH_MODULE(GPT2);

}  // namespace levin::models
