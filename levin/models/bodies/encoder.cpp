#include "levin/models/bodies/encoder.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>

#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/models/layers/attention.h"
#include "levin/models/layers/layers.h"
#include "levin/module/wrap.h"

namespace levin::models {
namespace {

void check(const EncoderOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", options.vocab_size},
      {"hidden_size", options.hidden_size},
      {"intermediate_size", options.intermediate_size},
      {"num_hidden_layers", options.num_layers},
      {"num_attention_heads", options.num_heads},
      {"max_position_embeddings", options.max_position_embeddings}};
  for (const auto& [name, size] : sizes)
    LEVIN_CHECK(size >= 1, "models.config", "got {} = {}, wanted at least 1", name, size);
  LEVIN_CHECK(options.hidden_size % options.num_heads == 0, "models.config",
              "got hidden_size = {}, wanted a multiple of num_attention_heads = {}",
              options.hidden_size, options.num_heads);
}

/// Column 2i of row t is the sine of t / 10000^(2i / width), column 2i + 1 its cosine.
class SinusoidalEmbedding : public Embedding {
 public:
  using Embedding::Embedding;

  void draw() override {
    const at::NoGradGuard no_grad;
    const int64_t rows = weight().size(0), width = weight().size(1);
    const auto in_double = weight().options().dtype(at::kDouble);
    const auto power = at::arange(0, width, 2, in_double) / static_cast<double>(width);
    const auto turns = at::arange(rows, in_double).unsqueeze(1) / at::pow(10000.0, power);
    const auto pairs = at::stack({turns.sin(), turns.cos()}, -1).flatten(1);
    weight().copy_(pairs.narrow(1, 0, width));
  }
};

class EncoderBlock : public torch::nn::Module {
 public:
  explicit EncoderBlock(const EncoderOptions& options)
      : options_(options), activation_(activation_of(options.hidden_act)) {
    const int64_t width = options.hidden_size;
    const EncoderOptions::Names& names = options.names;
    query_ = linear(names.query, width, width);
    key_ = linear(names.key, width, width);
    value_ = linear(names.value, width, width);
    output_ = linear(names.output, width, width);
    attention_norm_ = norm(names.attention_norm);
    mlp_in_ = linear(names.mlp_in, width, options.intermediate_size);
    mlp_out_ = linear(names.mlp_out, options.intermediate_size, width);
    mlp_norm_ = norm(names.mlp_norm);
  }

  at::Tensor forward(const at::Tensor& input, AttentionMask& mask) {
    auto added = attention(input, mask);
    if (options_.attention_output_dropout) added = dropped(added);
    const auto x = attention_norm_->forward(added + input);
    const auto hidden = mlp_out_->forward(activation_(mlp_in_->forward(x)));
    return mlp_norm_->forward(dropped(hidden) + x);
  }

 private:
  std::shared_ptr<Linear> linear(const std::string& name, int64_t in, int64_t out) {
    return place(*this, name, std::make_shared<Linear>(in, out, true, options_.initializer_range));
  }
  std::shared_ptr<LayerNorm> norm(const std::string& name) {
    return place(*this, name,
                 std::make_shared<LayerNorm>(options_.hidden_size, options_.layer_norm_eps));
  }

  at::Tensor dropped(const at::Tensor& x) const {
    return at::dropout(x, options_.hidden_dropout, is_training());
  }

  at::Tensor attention(const at::Tensor& x, AttentionMask& mask) {
    const auto heads = [&](const Linear& linear) {  // [B, T, heads, head_dim]
      return linear.forward(x).view({x.size(0), x.size(1), options_.num_heads, -1});
    };
    return output_->forward(attend(heads(*query_), heads(*key_), heads(*value_), mask,
                                   {.dropout = is_training() ? options_.attention_dropout : 0.0}));
  }

  EncoderOptions options_;
  Activation activation_;
  std::shared_ptr<Linear> query_, key_, value_, output_, mlp_in_, mlp_out_;
  std::shared_ptr<LayerNorm> attention_norm_, mlp_norm_;
};

class Encoder : public Body {
 public:
  Encoder(torch::nn::Module& root, const std::string& prefix, const EncoderOptions& options)
      : options_(options), embeddings_(group_at(root, joined(prefix, "embeddings"))) {
    const int64_t width = options.hidden_size;
    words_ = embedding("word_embeddings", options.vocab_size, options.padding_idx);
    if (options.sinusoidal_positions) {
      positions_ = place(embeddings_, "position_embeddings",
                         std::make_shared<SinusoidalEmbedding>(options.max_position_embeddings,
                                                               width, options.initializer_range));
    } else {
      positions_ = embedding("position_embeddings", options.max_position_embeddings,
                             options.positions_skip_padding ? options.padding_idx : -1);
    }
    if (options.type_vocab_size > 0)
      types_ = embedding("token_type_embeddings", options.type_vocab_size, -1);
    norm_ =
        place(embeddings_, "LayerNorm", std::make_shared<LayerNorm>(width, options.layer_norm_eps));
    for (int64_t i = 0; i < options.num_layers; ++i) {
      blocks_.push_back(place(root, joined(prefix, options.names.blocks + "." + std::to_string(i)),
                              wrap(std::make_shared<EncoderBlock>(options))));
    }
  }

  at::Tensor forward(const Inputs& inputs) override {
    const int64_t longest = options_.max_position_embeddings -
                            (options_.positions_skip_padding ? options_.padding_idx + 1 : 0);
    LEVIN_CHECK(
        inputs.document.defined() || inputs.input_ids.size(1) <= longest, "models.length",
        "got {} tokens, wanted at most {}, the number of the model's positions; truncate the text",
        inputs.input_ids.size(1), longest);
    auto x = words_->forward(inputs.input_ids);
    if (types_) {
      x = x + types_->forward(inputs.token_type_ids.defined() ? inputs.token_type_ids
                                                              : at::zeros_like(inputs.input_ids));
    }
    x = norm_->forward(x + positions_->forward(places(inputs)));
    x = at::dropout(x, options_.hidden_dropout, embeddings_.is_training());
    const auto mask = std::make_shared<AttentionMask>(inputs, /*causal=*/false);
    for (const auto& each : blocks_) {
      const auto block = [&block = *each, mask](const at::Tensor& in) {
        return block.forward(in, *mask);
      };
      x = run(*each, block, x);
    }
    return x;
  }

  const at::Tensor& embedding() const override { return words_->weight(); }

 private:
  std::shared_ptr<Embedding> embedding(const std::string& name, int64_t rows, int64_t padding) {
    return place(embeddings_, name,
                 std::make_shared<Embedding>(rows, options_.hidden_size, options_.initializer_range,
                                             padding));
  }

  at::Tensor places(const Inputs& inputs) const {
    if (!options_.positions_skip_padding || inputs.position_ids.defined())
      return inputs.positions();
    const auto is_text = inputs.input_ids.ne(options_.padding_idx).to(at::kLong);
    const auto place = inputs.document.defined() ? inputs.positions() + 1 : at::cumsum(is_text, 1);
    return place * is_text + options_.padding_idx;
  }

  EncoderOptions options_;
  torch::nn::Module& embeddings_;
  std::shared_ptr<Embedding> words_, positions_, types_;
  std::shared_ptr<LayerNorm> norm_;
  std::vector<std::shared_ptr<EncoderBlock>> blocks_;
};

}  // namespace

std::unique_ptr<Body> make_encoder(torch::nn::Module& root, const std::string& prefix,
                                   const EncoderOptions& options) {
  check(options);
  return std::make_unique<Encoder>(root, prefix, options);
}

}  // namespace levin::models
