#include "levin/models/gpt2.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "levin/base/check.h"
#include "levin/module/wrap.h"

namespace levin::models {
namespace {

using torch::nn::Embedding;
using torch::nn::LayerNorm;

void check(const GPT2Config& config) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", config.vocab_size},
                                                   {"n_positions", config.n_positions},
                                                   {"n_embd", config.n_embd},
                                                   {"n_layer", config.n_layer},
                                                   {"n_head", config.n_head}};
  for (const auto& [name, size] : sizes) {
    LEVIN_CHECK(size >= 1, "models.gpt2.config", "got {} = {}, wanted at least 1", name, size);
  }
  LEVIN_CHECK(config.n_embd % config.n_head == 0, "models.gpt2.config",
              "n_embd = {} is no multiple of n_head = {}; every head gets n_embd / n_head channels",
              config.n_embd, config.n_head);
  const std::pair<const char*, double> rates[] = {{"resid_pdrop", config.resid_pdrop},
                                                  {"embd_pdrop", config.embd_pdrop},
                                                  {"attn_pdrop", config.attn_pdrop}};
  for (const auto& [name, rate] : rates) {
    LEVIN_CHECK(rate >= 0.0 && rate < 1.0, "models.gpt2.config",
                "got {} = {}, wanted a probability in [0, 1)", name, rate);
  }
}

LayerNorm layer_norm(const GPT2Config& config) {
  return LayerNorm(torch::nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

/// transformers.pytorch_utils.Conv1D: a linear layer whose weight lies as (in, out).
struct Conv1D : torch::nn::Module {
  at::Tensor weight, bias;

  Conv1D(int64_t in, int64_t out, double deviation) {
    weight = register_parameter("weight", at::empty({in, out}));
    bias = register_parameter("bias", at::zeros({out}));
    torch::nn::init::normal_(weight, 0.0, deviation);
  }

  at::Tensor forward(const at::Tensor& x) {  // [B, T, in] -> [B, T, out]
    return at::addmm(bias, x.reshape({-1, x.size(-1)}), weight)
        .view({x.size(0), x.size(1), weight.size(1)});
  }
};

double residual_deviation(const GPT2Config& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

struct Attention : torch::nn::Module {
  int64_t heads;
  double attn_pdrop, resid_pdrop;
  std::shared_ptr<Conv1D> c_attn, c_proj;

  explicit Attention(const GPT2Config& config)
      : heads(config.n_head), attn_pdrop(config.attn_pdrop), resid_pdrop(config.resid_pdrop) {
    const int64_t width = config.n_embd;
    c_attn = register_module("c_attn",
                             std::make_shared<Conv1D>(width, 3 * width, config.initializer_range));
    c_proj = register_module("c_proj",
                             std::make_shared<Conv1D>(width, width, residual_deviation(config)));
  }

  at::Tensor forward(const at::Tensor& x) {  // [B, T, C] -> [B, T, C]
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto qkv = c_attn->forward(x).split(width, 2);
    const auto by_head = [&](const at::Tensor& y) {  // -> [B, heads, T, C / heads]
      return y.view({batch, length, heads, width / heads}).transpose(1, 2);
    };
    const auto y = at::scaled_dot_product_attention(
        by_head(qkv[0]), by_head(qkv[1]), by_head(qkv[2]), /*attn_mask=*/{},
        is_training() ? attn_pdrop : 0.0, /*is_causal=*/true);
    const auto merged = y.transpose(1, 2).reshape({batch, length, width});
    return at::dropout(c_proj->forward(merged), resid_pdrop, is_training());
  }
};

struct Mlp : torch::nn::Module {
  double resid_pdrop;
  std::shared_ptr<Conv1D> c_fc, c_proj;

  explicit Mlp(const GPT2Config& config) : resid_pdrop(config.resid_pdrop) {
    const int64_t width = config.n_embd;
    c_fc = register_module("c_fc",
                           std::make_shared<Conv1D>(width, 4 * width, config.initializer_range));
    c_proj = register_module(
        "c_proj", std::make_shared<Conv1D>(4 * width, width, residual_deviation(config)));
  }

  at::Tensor forward(const at::Tensor& x) {  // [B, T, C] -> [B, T, C]
    const auto hidden = at::gelu(c_fc->forward(x), "tanh");
    return at::dropout(c_proj->forward(hidden), resid_pdrop, is_training());
  }
};

struct Block : torch::nn::Module {
  LayerNorm ln_1{nullptr}, ln_2{nullptr};
  std::shared_ptr<Attention> attn;
  std::shared_ptr<Mlp> mlp;

  explicit Block(const GPT2Config& config) {
    ln_1 = register_module("ln_1", layer_norm(config));
    attn = register_module("attn", std::make_shared<Attention>(config));
    ln_2 = register_module("ln_2", layer_norm(config));
    mlp = register_module("mlp", std::make_shared<Mlp>(config));
  }

  at::Tensor forward(const at::Tensor& input) {  // [B, T, C] -> [B, T, C]
    const auto x = input + attn->forward(ln_1->forward(input));
    return x + mlp->forward(ln_2->forward(x));
  }
};

}  // namespace

void GPT2Config::fields(FieldVisitor& field) {
  field("vocab_size", vocab_size, "number of tokens");
  field("n_positions", n_positions, "longest sequence, in tokens");
  field("n_embd", n_embd, "width, a multiple of n_head");
  field("n_layer", n_layer, "number of blocks");
  field("n_head", n_head, "attention heads of a block");
  field("resid_pdrop", resid_pdrop, "dropout on what a block adds");
  field("embd_pdrop", embd_pdrop, "dropout on the embeddings");
  field("attn_pdrop", attn_pdrop, "dropout on attention probabilities");
  field("layer_norm_epsilon", layer_norm_epsilon, "added to the variance in layer norms");
  field("initializer_range", initializer_range, "standard deviation of the initial weights");
}

struct GPT2Impl::Transformer : torch::nn::Module {
  double embd_pdrop;
  Embedding wte{nullptr}, wpe{nullptr};
  torch::nn::ModuleList h;
  LayerNorm ln_f{nullptr};

  explicit Transformer(const GPT2Config& config) : embd_pdrop(config.embd_pdrop) {
    wte = register_module("wte", Embedding(config.vocab_size, config.n_embd));
    wpe = register_module("wpe", Embedding(config.n_positions, config.n_embd));
    torch::nn::init::normal_(wte->weight, 0.0, config.initializer_range);
    torch::nn::init::normal_(wpe->weight, 0.0, config.initializer_range);
    register_module("h", h);
    for (int64_t i = 0; i < config.n_layer; ++i)
      h->push_back(wrap(std::make_shared<Block>(config)));
    ln_f = register_module("ln_f", layer_norm(config));
  }

  at::Tensor forward(const at::Tensor& input_ids) {  // [B, T] -> [B, T, C]
    const auto positions = at::arange(input_ids.size(1), input_ids.options());
    auto x = wte->forward(input_ids) + wpe->forward(positions);
    x = at::dropout(x, embd_pdrop, is_training());
    for (const auto& block : *h) x = block->as<Block>()->forward(x);
    return ln_f->forward(x);
  }
};

GPT2Impl::GPT2Impl(GPT2Config config) : config_(config) {
  check(config);
  transformer_ = register_module("transformer", std::make_shared<Transformer>(config));
}

at::Tensor GPT2Impl::forward(const at::Tensor& input_ids) {
  LEVIN_CHECK(input_ids.dim() == 2, "models.gpt2.input",
              "got input_ids of {} dims, wanted [batch, tokens]", input_ids.dim());
  LEVIN_CHECK(input_ids.size(1) <= config_.n_positions, "models.gpt2.length",
              "got {} tokens, wanted at most n_positions = {}; cut the sequence or raise it",
              input_ids.size(1), config_.n_positions);
  return at::linear(transformer_->forward(input_ids), transformer_->wte->weight);
}

}  // namespace levin::models
