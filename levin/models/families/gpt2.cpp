// GPT-2 (Radford et al. 2019).

#include "levin/base/check.h"
#include "levin/models/bodies/gpt2_body.h"
#include "levin/models/families/families.h"

namespace levin::models {
namespace {

GPT2Config options_of(const Config& config) {
  for (const char* key :
       {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"}) {
    LEVIN_CHECK(!config.boolean(key, false), "models.config",
                "{} asks for {}, which levin's GPT-2 does not have", config.origin(), key);
  }
  GPT2Config options;
  options.vocab_size = config.integer("vocab_size", options.vocab_size);
  options.n_positions = config.integer("n_positions", options.n_positions);
  options.n_embd = config.integer("n_embd", options.n_embd);
  options.n_layer = config.integer("n_layer", options.n_layer);
  options.n_head = config.integer("n_head", options.n_head);
  options.n_inner = config.integer("n_inner", 0);
  options.activation_function = config.text("activation_function", "gelu_new");
  options.resid_pdrop = config.number("resid_pdrop", 0.1);
  options.embd_pdrop = config.number("embd_pdrop", 0.1);
  options.attn_pdrop = config.number("attn_pdrop", 0.1);
  options.layer_norm_epsilon = config.number("layer_norm_epsilon", 1e-5);
  options.initializer_range = config.number("initializer_range", 0.02);
  return options;
}

HeadPlan gpt2_head(Task task, const std::string& prefix, const Config& config) {
  const int64_t width = config.integer("n_embd", 768), labels = config.num_labels();
  const double deviation = config.number("initializer_range", 0.02);
  HeadPlan plan{.base_prefix = prefix, .pad_token_id = config.integer("pad_token_id", -1)};
  if (task == Task::kTextGeneration) {
    const int64_t words = config.integer("vocab_size", 50257);
    plan.steps = {config.boolean("tie_word_embeddings", true)
                      ? tied("", words)
                      : dense("lm_head", width, words, false, deviation)};
  } else if (task == Task::kTextClassification) {
    plan.steps = {pooled(Pooling::kLastText), dense("score", width, labels, false, deviation)};
  } else if (task == Task::kTokenClassification) {
    plan.steps = {dropout(config.number("classifier_dropout", 0.1)),
                  dense("classifier", width, labels, true, deviation)};
  } else if (task == Task::kQuestionAnswering) {
    plan.steps = {dense("qa_outputs", width, 2, true, deviation)};
  }
  return plan;
}

}  // namespace

Family gpt2() {
  auto architectures = architectures_of(
      "GPT2", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
               Task::kTokenClassification, Task::kQuestionAnswering});
  architectures[Task::kTextGeneration] = "GPT2LMHeadModel";
  return {.model_type = "gpt2",
          .architectures = architectures,
          .base_prefix = "transformer",
          .body = [](torch::nn::Module& root, const std::string& prefix,
                     const Config& config) { return make_gpt2(root, prefix, options_of(config)); },
          .head = gpt2_head,
          .ignored = {".attn.bias", ".attn.masked_bias"},
          .lora_targets = {"c_attn"}};
}

}  // namespace levin::models
