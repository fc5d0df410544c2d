// Gemma 3 for text (Gemma Team 2025): norms before and after, windows in five of six layers, which have a
// rotary embedding of their own.
#include <cmath>

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kGemma3Keys = R"keys(
  read      hidden_activation attention_bias query_pre_attn_scalar final_logit_softcapping
  read      sliding_window sliding_window_pattern use_bidirectional_attention rope_local_base_freq
  harmless  hidden_act  # Gemma's, which hidden_activation replaced
  harmless  _sliding_window_pattern cache_implementation
  refused   attn_logit_softcapping
)keys";

std::vector<std::string> layer_types(const Config& config, size_t layers) {
  const auto every = static_cast<size_t>(config.positive("sliding_window_pattern", 6));
  std::vector<std::string> types(layers, "sliding_attention");
  for (size_t i = every; i <= layers; i += every) types[i - 1] = "full_attention";
  return types;
}

/// In configs of transformers 4 "rope_scaling" is of the whole attention alone.
RotaryOptions sliding_rotary(Config config) {
  const double theta = config.number("rope_local_base_freq", 10000.0);
  config.erase("rope_scaling");
  return RotaryOptions::of_layers(config, "sliding_attention", theta);
}

std::unique_ptr<Body> gemma3_body(torch::nn::Module& root, const std::string& prefix,
                                  const Config& config) {
  auto options = DecoderOptions::from(config, /*rope_theta=*/{});
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
  options.rotaries = {
      RotaryOptions::of_layers(config, "full_attention", config.number("rope_theta", 1000000.0)),
      sliding_rotary(config)};
  int64_t window = DecoderOptions::window_of(config);
  if (config.boolean("use_bidirectional_attention", false)) {
    // transformers halves the window and adds 1; one of its two masks leaves that distance out.
    window = window / 2 + (options.is_causal ? 0 : 1);
    options.is_causal = false;
  }
  Config typed = config;
  if (!config.has("layer_types"))
    typed.set("layer_types", layer_types(config, options.blocks.size()));
  options.read_layer_types(typed, window);
  const auto types = typed.texts("layer_types");
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
  Family family = decoder_family("gemma3_text", "Gemma3",
                                 detail::KnownKeys({kModelKeys, kDecoderKeys, kGemma3Keys}));
  family.architectures = {{Task::kFeatureExtraction, "Gemma3TextModel"},
                          {Task::kTextGeneration, "Gemma3ForCausalLM"},
                          {Task::kTextClassification, "Gemma3TextForSequenceClassification"}};
  family.defaults = R"({"pad_token_id": 0, "num_key_value_heads": 4, "head_dim": 256,
          "sliding_window": 4096, "query_pre_attn_scalar": 256, "tie_word_embeddings": true})";
  family.body = gemma3_body;
  family.head = gemma3_head;
  family.tensor_parallel = decoder_tensor_parallel(true);
  return family;
}

}  // namespace levin::models
