// GPT-2 (Radford et al. 2019).

#include "levin/models/bodies/gpt2.h"

#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kGPT2Keys = R"keys(
  read      n_embd n_layer n_head n_positions n_inner activation_function
  read      resid_pdrop embd_pdrop attn_pdrop layer_norm_epsilon
  read      scale_attn_weights scale_attn_by_inverse_layer_idx is_causal
  read      classifier_dropout hidden_dropout
  read      hidden_size num_hidden_layers num_attention_heads max_position_embeddings
  harmless  n_ctx is_decoder output_past
  # Scores are computed in float32 anyway.
  harmless  reorder_and_upcast_attn
  # Of the head for multiple choice, which is not there.
  harmless  summary_type summary_use_proj summary_activation summary_proj_to_labels
  harmless  summary_first_dropout
  only      add_cross_attention = false
  # Of other families; transformers' cache of keys and values looks at them in this one too.
  refused   layer_types sliding_window attention_chunk_size kv_sharing_modes
)keys";

GPT2Config options_of(const Config& config) {
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
  options.scale_attn_weights = config.boolean("scale_attn_weights", true);
  options.scale_attn_by_inverse_layer_idx =
      config.boolean("scale_attn_by_inverse_layer_idx", false);
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
    plan.steps = {
        dropout(config.number("classifier_dropout", config.number("hidden_dropout", 0.1))),
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
          .defaults = R"({"tie_word_embeddings": true})",
          .keys = detail::KnownKeys({kModelKeys, kGPT2Keys}),
          .aliases = {{"hidden_size", "n_embd"},
                      {"max_position_embeddings", "n_positions"},
                      {"num_attention_heads", "n_head"},
                      {"num_hidden_layers", "n_layer"}},
          .body =
              [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
                return make_gpt2(root, prefix, options_of(config),
                                 config.boolean("is_causal", true));
              },
          .head = gpt2_head,
          .tied = {.embedding = "wte.weight", .matrix = "lm_head.weight"},
          .ignored = {".attn.bias", ".attn.masked_bias"},
          .lora_targets = {"c_attn"}};
}

}  // namespace levin::models
