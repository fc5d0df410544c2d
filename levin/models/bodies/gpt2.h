#pragma once
// GPT-2's block, which the network of gpt2.h and the body of the family share, and that body.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>

#include "levin/models/bodies/body.h"
#include "levin/models/gpt2.h"
#include "levin/models/layers/attention_mask.h"
#include "levin/models/layers/cache.h"
#include "levin/models/layers/layers.h"

namespace levin::models {

/// Throws Error "models.gpt2.config" for sizes and rates that cannot be.
void check_gpt2(const GPT2Config& config);

/// transformers.pytorch_utils.Conv1D: a linear layer whose weight lies as (in, out).
class Conv1D : public Adaptable {
 public:
  Conv1D(int64_t in, int64_t out, double deviation);
  at::Tensor forward(const at::Tensor& x) const;  // [B, T, in] -> [B, T, out]
  void draw() override;
  int64_t in_width() const override { return weight_.size(0); }
  int64_t out_width() const override { return weight_.size(1); }
  bool is_transposed() const override { return true; }

 protected:
  at::Tensor weight() const override { return weight_; }
  at::Tensor rows(const at::Tensor& weight) const override { return weight.t(); }

 private:
  at::Tensor weight_, bias_;
  double deviation_;
};

class GPT2Block : public torch::nn::Module {
 public:
  /// index: of the block, from 0.
  GPT2Block(const GPT2Config& config, int64_t index);
  /// [B, T, C] -> [B, T, C]
  at::Tensor forward(const at::Tensor& input, AttentionMask& mask, LayerCache* cache = nullptr);

 private:
  at::Tensor attention(const at::Tensor& x, AttentionMask& mask, LayerCache* cache);
  at::Tensor mlp(const at::Tensor& x);

  GPT2Config config_;
  double score_scale_ = 0;  // 0: 1 / sqrt(head_dim)
  Activation activation_;
  std::shared_ptr<LayerNorm> ln_1_, ln_2_;
  std::shared_ptr<Conv1D> attention_in_, attention_out_, mlp_in_, mlp_out_;
};

/// The body of the model that models/gpt2.h trains, without its head. Throws Error "models.gpt2.config".
std::unique_ptr<Body> make_gpt2(torch::nn::Module& root, const std::string& prefix,
                                const GPT2Config& config, bool is_causal = true);

}  // namespace levin::models
