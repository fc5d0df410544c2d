#pragma once
// Small configs of families, as texts of config.json.

#include <filesystem>
#include <string>

#include "levin/models/pretrained.h"

namespace levin::test {

inline std::string small_qwen3() {
  return R"({"model_type": "qwen3", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
             "max_position_embeddings": 64, "initializer_range": 0.2, "pad_token_id": 0})";
}

inline std::string small_bert() {
  return R"({"model_type": "bert", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
             "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
             "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
             "initializer_range": 0.2, "pad_token_id": 0})";
}

inline std::string small_modernbert() {
  return R"({"model_type": "modernbert", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
             "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 64,
             "local_attention": 6, "initializer_range": 0.2, "pad_token_id": 0})";
}

inline std::string small_gpt2() {
  return R"({"model_type": "gpt2", "vocab_size": 61, "n_embd": 24, "n_layer": 2, "n_head": 4,
             "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
             "initializer_range": 0.2})";
}

inline std::shared_ptr<models::Pretrained> small(const std::string& config, const std::string& task,
                                                 models::PretrainedOptions options = {}) {
  options.task = task;
  return models::from_config(models::Config::from_json(config), options);
}

/// A folder of a small BERT that classifies texts.
inline void write_classifier(const std::filesystem::path& folder, int64_t labels) {
  small(small_bert(), "text-classification", {.num_labels = labels})->save_pretrained(folder);
}

}  // namespace levin::test
