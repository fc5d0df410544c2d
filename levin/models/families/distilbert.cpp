// DistilBERT (Sanh et al. 2019): BERT's block under other names, without kinds of texts and pooler.

#include "levin/models/families/bert_kin.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kDistilBertKeys = R"keys(
  read      dim hidden_dim n_layers n_heads max_position_embeddings activation
  read      sinusoidal_pos_embds dropout attention_dropout qa_dropout seq_classif_dropout
  read      hidden_size num_hidden_layers num_attention_heads
  only      is_causal = false
  harmless  is_decoder add_cross_attention tie_weights_ output_past
)keys";

std::unique_ptr<Body> distilbert_body(torch::nn::Module& root, const std::string& prefix,
                                      const Config& config) {
  return make_encoder(root, prefix,
                      {.vocab_size = config.integer("vocab_size"),
                       .hidden_size = config.integer("dim"),
                       .intermediate_size = config.integer("hidden_dim"),
                       .num_layers = config.integer("n_layers"),
                       .num_heads = config.integer("n_heads"),
                       .max_position_embeddings = config.integer("max_position_embeddings", 512),
                       .sinusoidal_positions = config.boolean("sinusoidal_pos_embds", false),
                       .hidden_act = config.text("activation", "gelu"),
                       .layer_norm_eps = 1e-12,
                       .initializer_range = config.number("initializer_range", 0.02),
                       .hidden_dropout = config.number("dropout", 0.1),
                       .attention_dropout = config.number("attention_dropout", 0.1),
                       .padding_idx = config.padding_row(config.integer("vocab_size")),
                       .names = {.blocks = "transformer.layer",
                                 .query = "attention.q_lin",
                                 .key = "attention.k_lin",
                                 .value = "attention.v_lin",
                                 .output = "attention.out_lin",
                                 .attention_norm = "sa_layer_norm",
                                 .mlp_in = "ffn.lin1",
                                 .mlp_out = "ffn.lin2",
                                 .mlp_norm = "output_layer_norm"},
                       .attention_output_dropout = false});
}

HeadPlan distilbert_head(Task task, const std::string& prefix, const Config& config) {
  const int64_t width = config.integer("dim"), labels = config.num_labels();
  const double deviation = config.number("initializer_range", 0.02);
  HeadPlan plan{.base_prefix = prefix};
  if (task == Task::kFillMask) {
    const int64_t words = config.integer("vocab_size");
    plan.steps = {dense("vocab_transform", width, width, true, deviation),
                  activation(config.text("activation", "gelu")),
                  layer_norm("vocab_layer_norm", width, 1e-12),
                  config.boolean("tie_word_embeddings", true)
                      ? tied("vocab_projector.bias", words)
                      : dense("vocab_projector", width, words, true, deviation)};
  } else if (task == Task::kTextClassification) {
    plan.steps = {pooled(Pooling::kFirst), dense("pre_classifier", width, width, true, deviation),
                  activation("relu"), dropout(config.number("seq_classif_dropout", 0.2)),
                  dense("classifier", width, labels, true, deviation)};
  } else if (task == Task::kTokenClassification) {
    plan.steps = {dropout(config.number("dropout", 0.1)),
                  dense("classifier", width, labels, true, deviation)};
  } else if (task == Task::kQuestionAnswering) {
    plan.steps = {dropout(config.number("qa_dropout", 0.1)),
                  dense("qa_outputs", width, 2, true, deviation)};
  }
  return plan;
}

}  // namespace

Family distilbert() {
  return {.model_type = "distilbert",
          .architectures = architectures_of(
              "DistilBert", {Task::kFeatureExtraction, Task::kFillMask, Task::kTextClassification,
                             Task::kTokenClassification, Task::kQuestionAnswering}),
          .base_prefix = "distilbert",
          .defaults = R"({"pad_token_id": 0, "tie_word_embeddings": true, "dim": 768,
                          "hidden_dim": 3072, "n_layers": 6, "n_heads": 12})",
          .keys = detail::KnownKeys({kModelKeys, kDistilBertKeys}),
          .aliases = {{"hidden_size", "dim"},
                      {"num_attention_heads", "n_heads"},
                      {"num_hidden_layers", "n_layers"}},
          .body = distilbert_body,
          .head = distilbert_head,
          .tied = {.embedding = "embeddings.word_embeddings.weight",
                   .matrix = "vocab_projector.weight"},
          .old_names = bert_old_names(),
          .lora_targets = {"q_lin", "v_lin"}};
}

}  // namespace levin::models
