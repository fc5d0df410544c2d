// Gemma 3 for text (Gemma Team 2025): norms before and after, windows in five of six layers, which have a
// rotary embedding of their own.
#include <cmath>

#include "levin/base/check.h"
#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"

namespace levin::models {
namespace {

std::vector<std::string> layer_types(const Config& config, size_t layers) {
  if (config.has("layer_types")) return config.texts("layer_types");
  const auto every = static_cast<size_t>(config.positive("sliding_window_pattern", 6));
  std::vector<std::string> types(layers, "sliding_attention");
  for (size_t i = every; i <= layers; i += every) types[i - 1] = "full_attention";
  return types;
}

/// In configs of transformers 4 "rope_scaling" is of the whole attention alone.
RotaryOptions sliding_rotary(Config config) {
  const double theta = config.number("rope_local_base_freq", 10000.0);
  config.erase("rope_theta");
  config.erase("rope_scaling");
  return RotaryOptions::from(config, "sliding_attention", theta);
}

std::unique_ptr<Body> gemma3_body(torch::nn::Module& root, const std::string& prefix,
                                  const Config& config) {
  LEVIN_CHECK(!config.has("attn_logit_softcapping"), "models.config",
              "{} asks for attn_logit_softcapping, which Gemma 3 does not have; set it to null",
              config.origin());
  auto options = DecoderOptions::from(config);
  options.hidden_act = config.text("hidden_activation", "gelu_pytorch_tanh");
  options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
  options.query_key_norm = DecoderOptions::QueryKeyNorm::kHead;
  options.norm_one_plus = true;
  options.norms = {.before_attention = "input_layernorm",
                   .after_attention = "post_attention_layernorm",
                   .before_mlp = "pre_feedforward_layernorm",
                   .after_mlp = "post_feedforward_layernorm"};
  options.embedding_scale = std::sqrt(static_cast<double>(options.hidden_size));
  options.score_scale = 1.0 / std::sqrt(config.number("query_pre_attn_scalar"));
  options.is_causal = !config.boolean("use_bidirectional_attention", false);
  options.rotaries = {RotaryOptions::from(config, "full_attention", 1000000.0),
                      sliding_rotary(config)};
  const auto types = layer_types(config, options.blocks.size());
  const int64_t window = config.integer("sliding_window", 0);
  // To both sides: the distance, of which transformers takes half the window.
  options.read_layer_types(types, options.is_causal ? window : window / 2);
  for (size_t i = 0; i < types.size(); ++i)
    options.blocks[i].rotary = types[i] == "sliding_attention" ? 1 : 0;
  return make_decoder(root, prefix, options);
}

HeadPlan gemma3_head(Task task, const std::string& prefix, const Config& config) {
  HeadPlan plan = decoder_head(task, prefix, config);
  const double cap = config.number("final_logit_softcapping", 0.0);
  if (task == Task::kTextGeneration && cap != 0) plan.steps.push_back(softcap(cap));
  return plan;
}

}  // namespace

Family gemma3() {
  return {.model_type = "gemma3_text",
          .architectures = {{Task::kFeatureExtraction, "Gemma3TextModel"},
                            {Task::kTextGeneration, "Gemma3ForCausalLM"},
                            {Task::kTextClassification, "Gemma3TextForSequenceClassification"}},
          .base_prefix = "model",
          .defaults = R"({"pad_token_id": 0, "num_key_value_heads": 4, "head_dim": 256,
          "sliding_window": 4096, "query_pre_attn_scalar": 256, "tie_word_embeddings": true})",
          .body = gemma3_body,
          .head = gemma3_head,
          .tensor_parallel = decoder_tensor_parallel(true),
          .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
