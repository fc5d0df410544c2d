#include "levin/models/bodies/gpt2.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <torch/nn/init.h>

#include <cmath>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/models/layers/attention.h"
#include "levin/models/layers/row_arithmetic.h"
#include "levin/module/wrap.h"

namespace levin::models {

void check_gpt2(const GPT2Config& config) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", config.vocab_size},
                                                   {"n_positions", config.n_positions},
                                                   {"n_embd", config.n_embd},
                                                   {"n_layer", config.n_layer},
                                                   {"n_head", config.n_head}};
  for (const auto& [name, size] : sizes) {
    LEVIN_CHECK(size >= 1, "models.gpt2.config", "got {} = {}, wanted at least 1", name, size);
  }
  LEVIN_CHECK(
      config.n_embd % config.n_head == 0, "models.gpt2.config",
      "n_embd = {} is not a multiple of n_head = {}; every head gets n_embd / n_head channels",
      config.n_embd, config.n_head);
  const std::pair<const char*, double> rates[] = {{"resid_pdrop", config.resid_pdrop},
                                                  {"embd_pdrop", config.embd_pdrop},
                                                  {"attn_pdrop", config.attn_pdrop}};
  for (const auto& [name, rate] : rates) {
    LEVIN_CHECK(rate >= 0.0 && rate < 1.0, "models.gpt2.config",
                "got {} = {}, wanted a probability in [0, 1)", name, rate);
  }
}

Conv1D::Conv1D(int64_t in, int64_t out, double deviation) : deviation_(deviation) {
  weight_ = register_parameter("weight", at::empty({in, out}));
  bias_ = register_parameter("bias", at::empty({out}));
}

at::Tensor Conv1D::forward(const at::Tensor& x) const {
  at::Tensor y = row_product_transposed(x, weight_, bias_);
  if (!y.defined() && adapts()) {
    if (at::Tensor whole = fused(x, bias_); whole.defined()) return whole;
  }
  if (!y.defined()) {
    y = at::addmm(bias_, x.reshape({-1, x.size(-1)}), weight_)
            .view({x.size(0), x.size(1), weight_.size(1)});
  }
  return adapts() ? adapted(x, y, bias_) : y;
}

void Conv1D::draw() {
  draw_normal(weight_, deviation_, /*cutoff=*/0);
  torch::nn::init::zeros_(bias_);
}

GPT2Block::GPT2Block(const GPT2Config& config, int64_t index)
    : config_(config), activation_(activation_of(config.activation_function)) {
  if (!config.scale_attn_weights || config.scale_attn_by_inverse_layer_idx) {
    const int64_t head_dim = config.n_embd / config.n_head;
    score_scale_ = config.scale_attn_weights ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
    if (config.scale_attn_by_inverse_layer_idx) score_scale_ /= static_cast<double>(index + 1);
  }
  const int64_t width = config.n_embd, inner = config.n_inner > 0 ? config.n_inner : 4 * width;
  const double in = config.initializer_range;
  const double out = in / std::sqrt(2.0 * static_cast<double>(config.n_layer));
  const auto norm = [&] { return std::make_shared<LayerNorm>(width, config.layer_norm_epsilon); };
  ln_1_ = place(*this, "ln_1", norm());
  attention_in_ = place(*this, "attn.c_attn", std::make_shared<Conv1D>(width, 3 * width, in));
  attention_out_ = place(*this, "attn.c_proj", std::make_shared<Conv1D>(width, width, out));
  ln_2_ = place(*this, "ln_2", norm());
  mlp_in_ = place(*this, "mlp.c_fc", std::make_shared<Conv1D>(width, inner, in));
  mlp_out_ = place(*this, "mlp.c_proj", std::make_shared<Conv1D>(inner, width, out));
}

at::Tensor GPT2Block::forward(const at::Tensor& input, AttentionMask& mask, LayerCache* cache) {
  const auto x = input + attention(ln_1_->forward(input), mask, cache);
  return x + mlp(ln_2_->forward(x));
}

at::Tensor GPT2Block::attention(const at::Tensor& x, AttentionMask& mask, LayerCache* cache) {
  const auto qkv = attention_in_->forward(x).split(config_.n_embd, 2);
  const auto heads = [&](const at::Tensor& y) {  // -> [B, T, heads, C / heads]
    return y.view({x.size(0), x.size(1), config_.n_head, config_.n_embd / config_.n_head});
  };
  const auto mixed = attend(
      heads(qkv[0]), heads(qkv[1]), heads(qkv[2]), mask,
      {.scale = score_scale_, .dropout = is_training() ? config_.attn_pdrop : 0.0, .cache = cache});
  return at::dropout(attention_out_->forward(mixed), config_.resid_pdrop, is_training());
}

at::Tensor GPT2Block::mlp(const at::Tensor& x) {
  const auto hidden = activation_(mlp_in_->forward(x));
  return at::dropout(mlp_out_->forward(hidden), config_.resid_pdrop, is_training());
}

namespace {

class GPT2Body : public Body {
 public:
  GPT2Body(torch::nn::Module& root, const std::string& prefix, const GPT2Config& config,
           bool is_causal)
      : config_(config), is_causal_(is_causal) {
    const double deviation = config.initializer_range;
    wte_ = place(root, joined(prefix, "wte"),
                 std::make_shared<Embedding>(config.vocab_size, config.n_embd, deviation));
    wpe_ = place(root, joined(prefix, "wpe"),
                 std::make_shared<Embedding>(config.n_positions, config.n_embd, deviation));
    for (int64_t i = 0; i < config.n_layer; ++i) {
      blocks_.push_back(place(root, joined(prefix, "h." + std::to_string(i)),
                              wrap(std::make_shared<GPT2Block>(config, i))));
    }
    ln_f_ = place(root, joined(prefix, "ln_f"),
                  std::make_shared<LayerNorm>(config.n_embd, config.layer_norm_epsilon));
  }

  at::Tensor forward(const Inputs& inputs) override {
    LEVIN_CHECK(inputs.document.defined() || inputs.input_ids.size(1) <= config_.n_positions,
                "models.length",
                "got {} tokens, wanted at most {}, the number of the model's positions "
                "(n_positions); truncate the text",
                inputs.input_ids.size(1), config_.n_positions);
    auto x = wte_->forward(inputs.input_ids) + wpe_->forward(inputs.positions());
    if (inputs.token_type_ids.defined()) x = x + wte_->forward(inputs.token_type_ids);
    x = at::dropout(x, config_.embd_pdrop, wte_->is_training());
    const auto mask = std::make_shared<AttentionMask>(inputs, is_causal_);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      LayerCache* const cache = inputs.cache != nullptr ? &inputs.cache->layer(i) : nullptr;
      const auto block = [&block = *blocks_[i], mask, cache](const at::Tensor& in) {
        return block.forward(in, *mask, cache);
      };
      x = run(*blocks_[i], block, x);
    }
    if (inputs.cache != nullptr) inputs.cache->advance(inputs.input_ids.size(1));
    return ln_f_->forward(x);
  }

  const at::Tensor& embedding() const override { return wte_->weight(); }
  bool is_causal() const override { return is_causal_; }
  int64_t longest() const override { return config_.n_positions; }

 private:
  GPT2Config config_;
  bool is_causal_;
  std::shared_ptr<Embedding> wte_, wpe_;
  std::vector<std::shared_ptr<GPT2Block>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
};

}  // namespace

std::unique_ptr<Body> make_gpt2(torch::nn::Module& root, const std::string& prefix,
                                const GPT2Config& config, bool is_causal) {
  check_gpt2(config);
  return std::make_unique<GPT2Body>(root, prefix, config, is_causal);
}

}  // namespace levin::models
