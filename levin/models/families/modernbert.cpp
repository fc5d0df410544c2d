// ModernBERT (Warner et al. 2024).

#include "levin/models/bodies/modernbert.h"

#include <cmath>

#include "levin/base/check.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

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
