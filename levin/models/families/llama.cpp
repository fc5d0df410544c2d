// Llama 2 and 3 (Touvron et al. 2023), and what was trained in its shape.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kLlamaKeys = R"keys(
  read      attention_bias mlp_bias
)keys";

std::unique_ptr<Body> llama_body(torch::nn::Module& root, const std::string& prefix,
                                 const Config& config) {
  auto options = DecoderOptions::from(config);
  options.read_layer_types(config, /*window=*/0);
  options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
  options.mlp_bias = config.boolean("mlp_bias", false);
  return make_decoder(root, prefix, options);
}

}  // namespace

Family llama() {
  Family family = decoder_family(
      "llama", "Llama", detail::KnownKeys({kModelKeys, kDecoderKeys, kWithoutWindows, kLlamaKeys}));
  family.body = llama_body;
  return family;
}

}  // namespace levin::models
