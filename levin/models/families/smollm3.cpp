// SmolLM3 (Hugging Face 2025): Llama in which every fourth layer has no rotary embedding.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kSmolLM3Keys = R"keys(
  read      attention_bias mlp_bias no_rope_layers no_rope_layer_interval
  read      use_sliding_window sliding_window
  harmless  max_window_layers  # Qwen's; transformers reads layer_types
)keys";

std::unique_ptr<Body> smollm3_body(torch::nn::Module& root, const std::string& prefix,
                                   const Config& config) {
  auto options = DecoderOptions::from(config, /*rope_theta=*/2000000.0);
  options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
  options.mlp_bias = config.boolean("mlp_bias", false);
  const std::vector<int64_t> rotates = config.integers("no_rope_layers");
  const int64_t every = config.positive("no_rope_layer_interval", 4);
  const int64_t window = DecoderOptions::window_of(config);
  const bool has_windows = config.boolean("use_sliding_window", false);
  for (size_t i = 0; i < options.blocks.size(); ++i) {
    const bool has_rotary =
        i < rotates.size() ? rotates[i] != 0 : (static_cast<int64_t>(i) + 1) % every != 0;
    options.blocks[i].rotary = has_rotary ? 0 : -1;
    options.blocks[i].window = has_windows && !has_rotary ? window : 0;
  }
  // Layers of that type slide in transformers whatever use_sliding_window says.
  options.read_layer_types(config, window);
  return make_decoder(root, prefix, options);
}

}  // namespace

Family smollm3() {
  Family family = decoder_family("smollm3", "SmolLM3",
                                 detail::KnownKeys({kModelKeys, kDecoderKeys, kSmolLM3Keys}));
  family.defaults =
      R"({"pad_token_id": 128004, "num_key_value_heads": 4, "tie_word_embeddings": true})";
  family.body = smollm3_body;
  return family;
}

}  // namespace levin::models
