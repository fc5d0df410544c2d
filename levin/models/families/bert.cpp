// BERT (Devlin et al. 2018), MiniLM and other encoders of its shape.

#include "levin/models/families/bert_kin.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

HeadPlan bert_head(Task task, const std::string& prefix, const Config& config) {
  const int64_t width = config.integer("hidden_size");
  const double deviation = config.number("initializer_range", 0.02);
  const HeadStep rate = dropout(classifier_dropout(config));
  const std::vector<HeadStep> pooler{
      pooled(Pooling::kFirst), dense(joined(prefix, "pooler.dense"), width, width, true, deviation),
      activation("tanh")};
  HeadPlan plan{.base_prefix = prefix};
  switch (task) {
    case Task::kFillMask:
      plan.steps = {dense("cls.predictions.transform.dense", width, width, true, deviation),
                    activation(config.text("hidden_act", "gelu")),
                    layer_norm("cls.predictions.transform.LayerNorm", width,
                               config.number("layer_norm_eps", 1e-12))};
      add_word_scores(plan, "cls.predictions.bias", "cls.predictions.decoder", config);
      break;
    case Task::kTextClassification:
      plan.steps = pooler;
      plan.steps.push_back(rate);
      plan.steps.push_back(dense("classifier", width, config.num_labels(), true, deviation));
      break;
    case Task::kTokenClassification:
      plan.steps = {rate, dense("classifier", width, config.num_labels(), true, deviation)};
      break;
    case Task::kQuestionAnswering:
      plan.steps = {dense("qa_outputs", width, 2, true, deviation)};
      break;
    default:
      plan.steps = pooler;
  }
  return plan;
}

}  // namespace

Family bert() {
  return {
      .model_type = "bert",
      .architectures = architectures_of(
          "Bert", {Task::kFeatureExtraction, Task::kFillMask, Task::kTextClassification,
                   Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "bert",
      .defaults = R"({"pad_token_id": 0, "tie_word_embeddings": true})",
      .keys = detail::KnownKeys({kModelKeys, kBertKeys}),
      .body = [](torch::nn::Module& root, const std::string& prefix,
                 const Config& config) { return make_encoder(root, prefix, bert_options(config)); },
      .head = bert_head,
      .tied = {.embedding = "embeddings.word_embeddings.weight",
               .matrix = "cls.predictions.decoder.weight",
               .bias = "cls.predictions.bias",
               .second = "cls.predictions.decoder.bias"},
      .old_names = bert_old_names(),
      .lora_targets = {"query", "value"}};
}

}  // namespace levin::models
