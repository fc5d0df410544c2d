#include "levin/models/bodies/decoder.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/models/layers/attention.h"
#include "levin/models/layers/layers.h"
#include "levin/module/wrap.h"

namespace levin::models {
namespace {

using QueryKeyNorm = DecoderOptions::QueryKeyNorm;
using Angles = std::pair<at::Tensor, at::Tensor>;

void check(const DecoderOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", options.vocab_size},
      {"hidden_size", options.hidden_size},
      {"intermediate_size", options.intermediate_size},
      {"num_attention_heads", options.num_heads},
      {"num_key_value_heads", options.num_key_value_heads},
      {"head_dim", options.head_dim},
      {"num_hidden_layers", static_cast<int64_t>(options.blocks.size())}};
  for (const auto& [name, size] : sizes)
    LEVIN_CHECK(size >= 1, "models.config", "got {} = {}, wanted at least 1", name, size);
  LEVIN_CHECK(options.num_heads % options.num_key_value_heads == 0, "models.config",
              "got num_attention_heads = {}, wanted a multiple of num_key_value_heads = {}",
              options.num_heads, options.num_key_value_heads);
}

std::shared_ptr<RmsNorm> place_norm(torch::nn::Module& root, const std::string& name, int64_t width,
                                    const DecoderOptions& options) {
  if (name.empty()) return nullptr;
  return place(root, name,
               std::make_shared<RmsNorm>(width, options.rms_norm_eps, options.norm_one_plus));
}

at::Tensor normed(const std::shared_ptr<RmsNorm>& norm, const at::Tensor& x) {
  return norm ? norm->forward(x) : x;
}

/// Rounds the scale to the dtype of the weights: Gemma was trained so.
double rounded(double scale, at::ScalarType dtype) {
  const auto single = static_cast<float>(scale);
  if (dtype == at::kBFloat16) return static_cast<float>(c10::BFloat16(single));
  if (dtype == at::kHalf) return static_cast<float>(c10::Half(single));
  return single;
}

class DecoderBlock : public torch::nn::Module {
 public:
  DecoderBlock(const DecoderOptions& options, const DecoderOptions::Block& kind)
      : options_(options), kind_(kind), activation_(activation_of(options.hidden_act)) {
    const int64_t width = options.hidden_size, dim = options.head_dim;
    const int64_t queries = options.num_heads * dim, keys = options.num_key_value_heads * dim;
    q_ = linear("self_attn.q_proj", width, queries, options.qkv_bias);
    k_ = linear("self_attn.k_proj", width, keys, options.qkv_bias);
    v_ = linear("self_attn.v_proj", width, keys, options.qkv_bias);
    o_ = linear("self_attn.o_proj", queries, width, options.output_bias);
    if (options.query_key_norm != QueryKeyNorm::kNone) {
      const bool whole = options.query_key_norm == QueryKeyNorm::kWhole;
      q_norm_ = place_norm(*this, "self_attn.q_norm", whole ? queries : dim, options);
      k_norm_ = place_norm(*this, "self_attn.k_norm", whole ? keys : dim, options);
    }
    gate_ = linear("mlp.gate_proj", width, options.intermediate_size, options.mlp_bias);
    up_ = linear("mlp.up_proj", width, options.intermediate_size, options.mlp_bias);
    down_ = linear("mlp.down_proj", options.intermediate_size, width, options.mlp_bias);
    before_attention_ = place_norm(*this, options.norms.before_attention, width, options);
    after_attention_ = place_norm(*this, options.norms.after_attention, width, options);
    before_mlp_ = place_norm(*this, options.norms.before_mlp, width, options);
    after_mlp_ = place_norm(*this, options.norms.after_mlp, width, options);
  }

  at::Tensor forward(const at::Tensor& input, const Angles* angles, AttentionMask& mask,
                     LayerCache* cache) {
    const auto x = input + normed(after_attention_,
                                  attention(normed(before_attention_, input), angles, mask, cache));
    return x + normed(after_mlp_, mlp(normed(before_mlp_, x)));
  }

 private:
  std::shared_ptr<Linear> linear(const std::string& name, int64_t in, int64_t out, bool bias) {
    return place(*this, name, std::make_shared<Linear>(in, out, bias, options_.initializer_range));
  }

  /// [B, T, width] -> [B, T, heads, head_dim]
  at::Tensor heads_of(const Linear& linear, const std::shared_ptr<RmsNorm>& norm,
                      const at::Tensor& x) const {
    const bool whole = options_.query_key_norm == QueryKeyNorm::kWhole;
    auto heads = linear.forward(x);
    if (whole) heads = normed(norm, heads);
    heads = heads.view({x.size(0), x.size(1), -1, options_.head_dim});
    return whole ? heads : normed(norm, heads);
  }

  at::Tensor attention(const at::Tensor& x, const Angles* angles, AttentionMask& mask,
                       LayerCache* cache) {
    auto query = heads_of(*q_, q_norm_, x), key = heads_of(*k_, k_norm_, x);
    const auto value = heads_of(*v_, nullptr, x);
    if (angles != nullptr) {
      query = rotate(query, angles->first, angles->second);
      key = rotate(key, angles->first, angles->second);
    }
    return o_->forward(attend(query, key, value, mask,
                              {.window = kind_.window,
                               .scale = options_.score_scale,
                               .dropout = is_training() ? options_.attention_dropout : 0.0,
                               .cache = cache}));
  }

  at::Tensor mlp(const at::Tensor& x) {
    return down_->forward(activation_(gate_->forward(x)) * up_->forward(x));
  }

  DecoderOptions options_;
  DecoderOptions::Block kind_;
  Activation activation_;
  std::shared_ptr<Linear> q_, k_, v_, o_, gate_, up_, down_;
  std::shared_ptr<RmsNorm> q_norm_, k_norm_;
  std::shared_ptr<RmsNorm> before_attention_, after_attention_, before_mlp_, after_mlp_;
};

class Decoder : public Body {
 public:
  Decoder(torch::nn::Module& root, const std::string& prefix, const DecoderOptions& options)
      : options_(options) {
    embedding_ = place(root, joined(prefix, "embed_tokens"),
                       std::make_shared<Embedding>(options.vocab_size, options.hidden_size,
                                                   options.initializer_range, options.padding_idx));
    for (size_t i = 0; i < options.blocks.size(); ++i) {
      blocks_.push_back(place(root, joined(prefix, "layers." + std::to_string(i)),
                              wrap(std::make_shared<DecoderBlock>(options, options.blocks[i]))));
    }
    norm_ = place_norm(root, joined(prefix, "norm"), options.hidden_size, options);
    for (const RotaryOptions& rotary : options.rotaries)
      rotaries_.emplace_back(rotary, options.head_dim);
  }

  at::Tensor forward(const Inputs& inputs) override {
    auto x = embedding_->forward(inputs.input_ids);
    if (options_.embedding_scale != 1.0) x = x * rounded(options_.embedding_scale, x.scalar_type());
    const auto positions = inputs.positions();
    std::vector<Angles> angles;
    for (Rotary& rotary : rotaries_) angles.push_back(rotary.angles(positions, x.scalar_type()));
    const auto mask = std::make_shared<AttentionMask>(inputs, options_.is_causal);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const int64_t which = options_.blocks[i].rotary;
      LayerCache* const cache = inputs.cache != nullptr ? &inputs.cache->layer(i) : nullptr;
      const auto block = [&block = *blocks_[i], mask, cache, given = which >= 0,
                          turn = which >= 0 ? angles[which] : Angles()](const at::Tensor& in) {
        return block.forward(in, given ? &turn : nullptr, *mask, cache);
      };
      x = run(*blocks_[i], block, x);
    }
    if (inputs.cache != nullptr) inputs.cache->advance(inputs.input_ids.size(1));
    return norm_->forward(x);
  }

  const at::Tensor& embedding() const override { return embedding_->weight(); }
  bool is_causal() const override { return options_.is_causal; }

 private:
  DecoderOptions options_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::vector<Rotary> rotaries_;
};

}  // namespace

DecoderOptions DecoderOptions::from(const Config& config, std::optional<double> rope_theta) {
  DecoderOptions options;
  options.vocab_size = config.integer("vocab_size");
  options.hidden_size = config.integer("hidden_size");
  options.intermediate_size = config.integer("intermediate_size");
  options.num_heads = config.integer("num_attention_heads");
  LEVIN_CHECK(options.num_heads >= 1, "models.config",
              "{}: got num_attention_heads = {}, wanted at least 1", config.origin(),
              options.num_heads);
  options.num_key_value_heads = config.integer("num_key_value_heads", options.num_heads);
  options.head_dim = config.integer("head_dim", options.hidden_size / options.num_heads);
  options.hidden_act = config.text("hidden_act", "silu");
  options.rms_norm_eps = config.number("rms_norm_eps", 1e-6);
  options.initializer_range = config.number("initializer_range", 0.02);
  options.attention_dropout = config.number("attention_dropout", 0.0);
  options.padding_idx = config.padding_row(options.vocab_size);
  options.is_causal = config.boolean("is_causal", true);
  options.blocks.resize(static_cast<size_t>(config.positive("num_hidden_layers")));
  if (rope_theta) options.rotaries = {RotaryOptions::from(config, *rope_theta)};
  return options;
}

int64_t DecoderOptions::window_of(const Config& config) {
  return config.has("sliding_window") ? config.positive("sliding_window") : 0;
}

void DecoderOptions::read_layer_types(const Config& config, int64_t window) {
  if (!config.has("layer_types")) return;
  const std::vector<std::string> types = config.texts("layer_types");
  LEVIN_CHECK(types.size() == blocks.size(), "models.config",
              "got layer_types for {} layers, wanted num_hidden_layers = {}", types.size(),
              blocks.size());
  for (size_t i = 0; i < types.size(); ++i) {
    const bool sliding = types[i] == "sliding_attention";
    LEVIN_CHECK(sliding || types[i] == "full_attention", "models.config",
                "{}: got '{}' in layer_types, wanted full_attention or sliding_attention",
                config.origin(), printable(types[i]));
    LEVIN_CHECK(
        !sliding || window > 0, "models.config",
        "{}: got sliding_attention in layer_types, but no sliding_window is in use; set "
        "sliding_window (and use_sliding_window, if the model has it), or use full_attention",
        config.origin());
    blocks[i].window = sliding ? window : 0;
  }
}

void DecoderOptions::read_windows(const Config& config) {
  const int64_t window = config.boolean("use_sliding_window", false) ? window_of(config) : 0;
  const int64_t first = config.integer("max_window_layers", 28);
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i].window = static_cast<int64_t>(i) >= first ? window : 0;
  read_layer_types(config, window);
}

std::unique_ptr<Body> make_decoder(torch::nn::Module& root, const std::string& prefix,
                                   const DecoderOptions& options) {
  check(options);
  return std::make_unique<Decoder>(root, prefix, options);
}

}  // namespace levin::models
