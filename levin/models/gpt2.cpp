#include "levin/models/gpt2.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/models/bodies/gpt2.h"
#include "levin/module/wrap.h"

namespace levin::models {

void GPT2Config::fields(FieldVisitor& field) {
  field("vocab_size", vocab_size, "size of the vocabulary");
  field("n_positions", n_positions, "maximum sequence length, tokens");
  field("n_embd", n_embd, "hidden size, a multiple of n_head");
  field("n_layer", n_layer, "number of blocks");
  field("n_head", n_head, "attention heads per block");
  field("n_inner", n_inner, "hidden size of the MLP; 0: 4 n_embd");
  field("activation_function", activation_function,
        "activation of the MLP, named as in transformers");
  field("resid_pdrop", resid_pdrop, "dropout on the residual branches");
  field("embd_pdrop", embd_pdrop, "dropout on the embeddings");
  field("attn_pdrop", attn_pdrop, "dropout on attention probabilities");
  field("layer_norm_epsilon", layer_norm_epsilon, "added to the variance in layer norms");
  field("initializer_range", initializer_range, "standard deviation of the initial weights");
  field("scale_attn_weights", scale_attn_weights,
        "divide attention scores by sqrt(n_embd / n_head)");
  field("scale_attn_by_inverse_layer_idx", scale_attn_by_inverse_layer_idx,
        "divide attention scores of the i-th block by i");
}

struct GPT2Impl::Transformer : torch::nn::Module {
  double embd_pdrop;
  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  torch::nn::ModuleList h;
  torch::nn::LayerNorm ln_f{nullptr};

  explicit Transformer(const GPT2Config& config) : embd_pdrop(config.embd_pdrop) {
    wte = register_module("wte", torch::nn::Embedding(config.vocab_size, config.n_embd));
    wpe = register_module("wpe", torch::nn::Embedding(config.n_positions, config.n_embd));
    torch::nn::init::normal_(wte->weight, 0.0, config.initializer_range);
    torch::nn::init::normal_(wpe->weight, 0.0, config.initializer_range);
    register_module("h", h);
    for (int64_t i = 0; i < config.n_layer; ++i) {
      h->push_back(wrap(std::make_shared<GPT2Block>(config, i)));
      draw_weights(*h->ptr(static_cast<size_t>(i)));
    }
    ln_f = register_module(
        "ln_f", torch::nn::LayerNorm(
                    torch::nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon)));
  }

  at::Tensor forward(const at::Tensor& input_ids) {  // [B, T] -> [B, T, C]
    const auto positions = at::arange(input_ids.size(1), input_ids.options());
    auto x = wte->forward(input_ids) + wpe->forward(positions);
    x = at::dropout(x, embd_pdrop, is_training());
    AttentionMask mask({.input_ids = input_ids}, /*causal=*/true);
    for (const auto& block : *h) x = block->as<GPT2Block>()->forward(x, mask);
    return ln_f->forward(x);
  }
};

GPT2Impl::GPT2Impl(GPT2Config config) : config_(std::move(config)) {
  check_gpt2(config_);
  transformer_ = register_module("transformer", std::make_shared<Transformer>(config_));
}

at::Tensor GPT2Impl::forward(const at::Tensor& input_ids) {
  LEVIN_CHECK(input_ids.dim() == 2, "models.gpt2.input",
              "got input_ids of {} dims, wanted [batch, tokens]", input_ids.dim());
  LEVIN_CHECK(
      input_ids.size(1) <= config_.n_positions, "models.gpt2.length",
      "got {} tokens, wanted at most n_positions = {}; truncate the sequence, or raise n_positions",
      input_ids.size(1), config_.n_positions);
  return at::linear(transformer_->forward(input_ids), transformer_->wte->weight);
}

}  // namespace levin::models
