// Mistral (Jiang et al. 2023): Llama with a sliding window.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kMistralKeys = R"keys(
  read      sliding_window
)keys";

std::unique_ptr<Body> mistral_body(torch::nn::Module& root, const std::string& prefix,
                                   const Config& config) {
  auto options = DecoderOptions::from(config);
  options.read_layer_types(config, /*window=*/0);
  for (auto& block : options.blocks) block.window = DecoderOptions::window_of(config);
  return make_decoder(root, prefix, options);
}

}  // namespace

Family mistral() {
  Family family = decoder_family("mistral", "Mistral",
                                 detail::KnownKeys({kModelKeys, kDecoderKeys, kMistralKeys}));
  family.defaults = R"({"sliding_window": 4096, "num_key_value_heads": 8})";
  family.body = mistral_body;
  family.head = decoder_head;
  return family;
}

}  // namespace levin::models
