#include "levin/models/families/bert_kin.h"

#include "levin/base/check.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

HeadPlan roberta_head(Task task, const std::string& prefix, const Config& config) {
  const int64_t width = config.integer("hidden_size"), labels = config.num_labels();
  const double deviation = config.number("initializer_range", 0.02);
  const HeadStep rate = dropout(classifier_dropout(config));
  HeadPlan plan{.base_prefix = prefix};
  switch (task) {
    case Task::kFillMask:
      plan.steps = {
          dense("lm_head.dense", width, width, true, deviation), activation("gelu"),
          layer_norm("lm_head.layer_norm", width, config.number("layer_norm_eps", 1e-12))};
      add_word_scores(plan, "lm_head.bias", "lm_head.decoder", config);
      break;
    case Task::kTextClassification:
      plan.steps = {pooled(Pooling::kFirst),
                    rate,
                    dense("classifier.dense", width, width, true, deviation),
                    activation("tanh"),
                    rate,
                    dense("classifier.out_proj", width, labels, true, deviation)};
      break;
    case Task::kTokenClassification:
      plan.steps = {rate, dense("classifier", width, labels, true, deviation)};
      break;
    case Task::kQuestionAnswering:
      plan.steps = {dense("qa_outputs", width, 2, true, deviation)};
      break;
    default:
      plan.steps = {pooled(Pooling::kFirst),
                    dense(joined(prefix, "pooler.dense"), width, width, true, deviation),
                    activation("tanh")};
  }
  return plan;
}

/// RoBERTa and XLM-RoBERTa differ by name alone.
Family roberta_family(const std::string& model_type, const std::string& class_prefix) {
  return {.model_type = model_type,
          .architectures = architectures_of(
              class_prefix, {Task::kFeatureExtraction, Task::kFillMask, Task::kTextClassification,
                             Task::kTokenClassification, Task::kQuestionAnswering}),
          .base_prefix = "roberta",
          .defaults = R"({"pad_token_id": 1, "tie_word_embeddings": true})",
          .keys = detail::KnownKeys({kModelKeys, kBertKeys}),
          .body =
              [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
                auto options = bert_options(config);
                LEVIN_CHECK(
                    config.integer("pad_token_id", -1) >= 0 && options.padding_idx >= 0,
                    "models.config",
                    "{}: got pad_token_id = {}, wanted an id: positions are counted from it",
                    config.origin(), config.json("pad_token_id"));
                options.positions_skip_padding = true;
                return make_encoder(root, prefix, options);
              },
          .head = roberta_head,
          .tied = {.embedding = "embeddings.word_embeddings.weight",
                   .matrix = "lm_head.decoder.weight",
                   .bias = "lm_head.bias",
                   .second = "lm_head.decoder.bias"},
          .old_names = bert_old_names(),
          .lora_targets = {"query", "value"}};
}

}  // namespace

EncoderOptions bert_options(const Config& config) {
  return {.vocab_size = config.integer("vocab_size"),
          .hidden_size = config.integer("hidden_size"),
          .intermediate_size = config.integer("intermediate_size"),
          .num_layers = config.integer("num_hidden_layers"),
          .num_heads = config.integer("num_attention_heads"),
          .max_position_embeddings = config.integer("max_position_embeddings", 512),
          .type_vocab_size = config.integer("type_vocab_size", 2),
          .hidden_act = config.text("hidden_act", "gelu"),
          .layer_norm_eps = config.number("layer_norm_eps", 1e-12),
          .initializer_range = config.number("initializer_range", 0.02),
          .hidden_dropout = config.number("hidden_dropout_prob", 0.1),
          .attention_dropout = config.number("attention_probs_dropout_prob", 0.1),
          .padding_idx = config.padding_row(config.integer("vocab_size"))};
}

double classifier_dropout(const Config& config) {
  return config.number("classifier_dropout", config.number("hidden_dropout_prob", 0.1));
}

void add_word_scores(HeadPlan& plan, const std::string& bias, const std::string& own,
                     const Config& config) {
  const int64_t words = config.integer("vocab_size");
  if (config.boolean("tie_word_embeddings", true)) {
    plan.steps.push_back(tied(bias, words));
    return;
  }
  plan.steps.push_back(dense(own, config.integer("hidden_size"), words, true,
                             config.number("initializer_range", 0.02)));
  plan.steps.push_back(unused(bias, words));
}

std::vector<std::pair<std::string, std::string>> bert_old_names() {
  return {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
}

/// RoBERTa (Liu et al. 2019).
Family roberta() { return roberta_family("roberta", "Roberta"); }
/// XLM-RoBERTa, a RoBERTa of a hundred languages (Conneau et al. 2019).
Family xlm_roberta() { return roberta_family("xlm-roberta", "XLMRoberta"); }

}  // namespace levin::models
