// ModernBERT (Warner et al. 2024): an encoder with rotary embeddings, norms before what is added, a gated MLP and
// windows that see to both sides.

#include <ATen/ops/dropout.h>

#include <cmath>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"
#include "levin/models/layers/attention.h"
#include "levin/models/layers/layers.h"
#include "levin/models/layers/rotary.h"
#include "levin/module/wrap.h"

namespace levin::models {
namespace {

constexpr std::string_view kModernBertKeys = R"keys(
  read      hidden_size intermediate_size num_hidden_layers num_attention_heads hidden_activation
  read      max_position_embeddings norm_eps norm_bias attention_bias attention_dropout
  read      mlp_bias mlp_dropout embedding_dropout initializer_cutoff_factor
  read      layer_types global_attn_every_n_layers local_attention sliding_window head_dim
  read      rope_parameters rope_scaling partial_rotary_factor global_rope_theta local_rope_theta
  read      decoder_bias classifier_pooling classifier_dropout classifier_bias classifier_activation
  only      is_causal = false
  # Scores of the tokens alone that count: the loss is the same.
  harmless  sparse_prediction
  only      sparse_pred_ignore_index = -100
  harmless  deterministic_flash_attn repad_logits_with_grad unpad_inputs
  # BERT's, which ModernBERT's files have too.
  harmless  layer_norm_eps position_embedding_type is_decoder add_cross_attention
)keys";

using Angles = std::pair<at::Tensor, at::Tensor>;

struct Options {
  int64_t width, heads, layers, intermediate;
  std::string activation;
  double norm_eps, attention_dropout, mlp_dropout, embedding_dropout;
  bool norm_bias, attention_bias, mlp_bias;
  double deviation, residual_deviation, cutoff;
  int64_t half_window;
  std::vector<bool> slides;

  explicit Options(const Config& config)
      : width(config.integer("hidden_size")),
        heads(config.integer("num_attention_heads")),
        layers(config.integer("num_hidden_layers")),
        intermediate(config.integer("intermediate_size")),
        activation(config.text("hidden_activation", "gelu")),
        norm_eps(config.number("norm_eps", 1e-5)),
        attention_dropout(config.number("attention_dropout", 0.0)),
        mlp_dropout(config.number("mlp_dropout", 0.0)),
        embedding_dropout(config.number("embedding_dropout", 0.0)),
        norm_bias(config.boolean("norm_bias", false)),
        attention_bias(config.boolean("attention_bias", false)),
        mlp_bias(config.boolean("mlp_bias", false)),
        deviation(config.number("initializer_range", 0.02)),
        residual_deviation(deviation / std::sqrt(2.0 * static_cast<double>(layers))),
        cutoff(config.number("initializer_cutoff_factor", 2.0)),
        half_window(config.integer("sliding_window", config.integer("local_attention", 128) / 2)) {
    LEVIN_CHECK(heads >= 1 && layers >= 1 && width >= 1 && width % heads == 0, "models.config",
                "{}: got hidden_size = {}, num_attention_heads = {} and num_hidden_layers = {}; "
                "wanted each at least 1, and hidden_size a multiple of num_attention_heads",
                config.origin(), width, heads, layers);
    LEVIN_CHECK(config.integer("head_dim", width / heads) == width / heads, "models.config",
                "{}: got head_dim = {}, wanted {} (hidden_size / num_attention_heads)",
                config.origin(), config.integer("head_dim", 0), width / heads);
    LEVIN_CHECK(half_window >= 1, "models.config",
                "{}: got local_attention = {}, wanted at least 2", config.origin(),
                2 * half_window);
    const std::vector<std::string> types = config.texts("layer_types");
    const int64_t every = config.integer("global_attn_every_n_layers", 3);
    LEVIN_CHECK(types.empty() ? every >= 1 : types.size() == static_cast<size_t>(layers),
                "models.config",
                "{}: got layer_types for {} layers and global_attn_every_n_layers = {}, wanted "
                "layer_types for {} layers, or none and global_attn_every_n_layers of at least 1",
                config.origin(), types.size(), every, layers);
    for (const std::string& type : types) {
      LEVIN_CHECK(type == "sliding_attention" || type == "full_attention", "models.config",
                  "{}: got '{}' in layer_types, wanted full_attention or sliding_attention",
                  config.origin(), printable(type));
    }
    for (int64_t i = 0; i < layers; ++i)
      slides.push_back(types.empty() ? i % every != 0 : types[i] == "sliding_attention");
  }
};

class ModernBertBlock : public torch::nn::Module {
 public:
  ModernBertBlock(const Options& options, int64_t index)
      : options_(options), activation_(activation_of(options.activation)) {
    if (index > 0) attention_norm_ = norm("attn_norm");
    qkv_ = linear("attn.Wqkv", options.width, 3 * options.width, options.attention_bias,
                  options.deviation);
    attention_out_ = linear("attn.Wo", options.width, options.width, options.attention_bias,
                            options.residual_deviation);
    mlp_norm_ = norm("mlp_norm");
    mlp_in_ = linear("mlp.Wi", options.width, 2 * options.intermediate, options.mlp_bias,
                     options.deviation);
    mlp_out_ = linear("mlp.Wo", options.intermediate, options.width, options.mlp_bias,
                      options.residual_deviation);
  }

  at::Tensor forward(const at::Tensor& input, const Angles& angles, int64_t window,
                     AttentionMask& mask) {
    const auto x = input + attention(attention_norm_ ? attention_norm_->forward(input) : input,
                                     angles, window, mask);
    const auto halves = mlp_in_->forward(mlp_norm_->forward(x)).chunk(2, -1);
    return x + mlp_out_->forward(at::dropout(activation_(halves[0]) * halves[1],
                                             options_.mlp_dropout, is_training()));
  }

 private:
  std::shared_ptr<Linear> linear(const std::string& name, int64_t in, int64_t out, bool bias,
                                 double deviation) {
    return place(*this, name, std::make_shared<Linear>(in, out, bias, deviation, options_.cutoff));
  }
  std::shared_ptr<LayerNorm> norm(const std::string& name) {
    return place(
        *this, name,
        std::make_shared<LayerNorm>(options_.width, options_.norm_eps, options_.norm_bias));
  }

  at::Tensor attention(const at::Tensor& x, const Angles& angles, int64_t window,
                       AttentionMask& mask) {
    const auto qkv =  // 3 of [B, T, heads, head_dim]
        qkv_->forward(x).view({x.size(0), x.size(1), 3, options_.heads, -1}).unbind(2);
    const double dropout = is_training() ? options_.attention_dropout : 0.0;
    const auto turned = [&](const at::Tensor& heads) {
      return rotate(heads, angles.first, angles.second).to(heads.scalar_type());
    };
    const auto mixed = attend(turned(qkv[0]), turned(qkv[1]), qkv[2], mask,
                              {.window = window, .dropout = dropout});
    return at::dropout(attention_out_->forward(mixed), dropout, dropout > 0);
  }

  Options options_;
  Activation activation_;
  std::shared_ptr<LayerNorm> attention_norm_, mlp_norm_;
  std::shared_ptr<Linear> qkv_, attention_out_, mlp_in_, mlp_out_;
};

class ModernBert : public Body {
 public:
  ModernBert(torch::nn::Module& root, const std::string& prefix, const Config& config)
      : options_(config),
        embeddings_(group_at(root, joined(prefix, "embeddings"))),
        whole_(rotary(config, "full_attention", "global_rope_theta", 160000.0)),
        sliding_(rotary(config, "sliding_attention", "local_rope_theta", 10000.0)) {
    const auto norm = [&] {
      return std::make_shared<LayerNorm>(options_.width, options_.norm_eps, options_.norm_bias);
    };
    tokens_ = place(embeddings_, "tok_embeddings",
                    std::make_shared<Embedding>(
                        config.integer("vocab_size"), options_.width, options_.deviation,
                        config.padding_row(config.integer("vocab_size")), options_.cutoff));
    embedding_norm_ = place(embeddings_, "norm", norm());
    for (int64_t i = 0; i < options_.layers; ++i) {
      blocks_.push_back(place(root, joined(prefix, "layers." + std::to_string(i)),
                              wrap(std::make_shared<ModernBertBlock>(options_, i))));
    }
    final_norm_ = place(root, joined(prefix, "final_norm"), norm());
  }

  at::Tensor forward(const Inputs& inputs) override {
    auto x = embedding_norm_->forward(tokens_->forward(inputs.input_ids));
    x = at::dropout(x, options_.embedding_dropout, embeddings_.is_training());
    const auto positions = inputs.positions();
    const Angles whole = whole_.angles(positions, at::kFloat);
    const Angles sliding = sliding_.angles(positions, at::kFloat);
    const auto mask = std::make_shared<AttentionMask>(inputs, /*causal=*/false);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const bool slides = options_.slides[i];
      const auto block = [&block = *blocks_[i], mask, angles = slides ? sliding : whole,
                          window = slides ? options_.half_window : 0](const at::Tensor& in) {
        return block.forward(in, angles, window, *mask);
      };
      x = run(*blocks_[i], block, x);
    }
    return final_norm_->forward(x);
  }

  const at::Tensor& embedding() const override { return tokens_->weight(); }

 private:
  Rotary rotary(const Config& config, const std::string& type, const char* key,
                double theta) const {
    return Rotary(RotaryOptions::of_layers(config, type, config.number(key, theta)),
                  options_.width / options_.heads);
  }

  Options options_;
  torch::nn::Module& embeddings_;
  std::shared_ptr<Embedding> tokens_;
  std::shared_ptr<LayerNorm> embedding_norm_, final_norm_;
  std::vector<std::shared_ptr<ModernBertBlock>> blocks_;
  Rotary whole_, sliding_;
};

std::unique_ptr<Body> make_modernbert(torch::nn::Module& root, const std::string& prefix,
                                      const Config& config) {
  return std::make_unique<ModernBert>(root, prefix, config);
}

HeadPlan modernbert_head(Task task, const std::string& prefix, const Config& config) {
  const int64_t width = config.integer("hidden_size");
  const double cutoff = config.number("initializer_cutoff_factor", 2.0);
  const double layers = config.number("num_hidden_layers");
  const double out = config.number("initializer_range", 0.02) / std::sqrt(2.0 * layers);
  const double last = 1.0 / std::sqrt(static_cast<double>(width));
  const std::vector<HeadStep> prediction{
      dense("head.dense", width, width, config.boolean("classifier_bias", false), out, cutoff),
      activation(config.text("classifier_activation", "gelu")),
      layer_norm("head.norm", width, config.number("norm_eps", 1e-5),
                 config.boolean("norm_bias", false))};
  HeadPlan plan{.base_prefix = prefix};
  if (task == Task::kFillMask) {
    const int64_t words = config.integer("vocab_size");
    const bool bias = config.boolean("decoder_bias", true);
    plan.steps = prediction;
    plan.steps.push_back(config.boolean("tie_word_embeddings", true)
                             ? tied(bias ? "decoder.bias" : "", words)
                             : dense("decoder", width, words, bias, out, cutoff));
  } else if (task != Task::kFeatureExtraction && task != Task::kSentenceSimilarity) {
    if (task == Task::kTextClassification) {
      const std::string how = config.text("classifier_pooling", "cls");
      LEVIN_CHECK(how == "cls" || how == "mean", "models.config",
                  "{}: got classifier_pooling '{}', wanted cls or mean", config.origin(), how);
      plan.steps = {pooled(how == "cls" ? Pooling::kFirst : Pooling::kMean)};
    }
    plan.steps.insert(plan.steps.end(), prediction.begin(), prediction.end());
    plan.steps.push_back(dropout(config.number("classifier_dropout", 0.0)));
    const int64_t labels = task == Task::kQuestionAnswering ? 2 : config.num_labels();
    plan.steps.push_back(dense("classifier", width, labels, true, last, cutoff));
  }
  return plan;
}

}  // namespace

Family modernbert() {
  return {.model_type = "modernbert",
          .architectures = architectures_of(
              "ModernBert", {Task::kFeatureExtraction, Task::kFillMask, Task::kTextClassification,
                             Task::kTokenClassification, Task::kQuestionAnswering}),
          .base_prefix = "model",
          .defaults = R"({"pad_token_id": 50283, "tie_word_embeddings": true})",
          .keys = detail::KnownKeys({kModelKeys, kModernBertKeys}),
          .body = make_modernbert,
          .head = modernbert_head,
          .tied = {.embedding = "embeddings.tok_embeddings.weight", .matrix = "decoder.weight"},
          .lora_targets = {"Wqkv"}};
}

}  // namespace levin::models
