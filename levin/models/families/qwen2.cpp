// Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases of queries, keys and values.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kQwen2Keys = R"keys(
  read      use_sliding_window sliding_window max_window_layers
  only      use_mrope = false
)keys";

std::unique_ptr<Body> qwen2_body(torch::nn::Module& root, const std::string& prefix,
                                 const Config& config) {
  auto options = DecoderOptions::from(config);
  options.qkv_bias = true;
  options.read_windows(config);
  return make_decoder(root, prefix, options);
}

}  // namespace

Family qwen2() {
  Family family =
      decoder_family("qwen2", "Qwen2", detail::KnownKeys({kModelKeys, kDecoderKeys, kQwen2Keys}));
  family.defaults =
      R"({"sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32})";
  family.body = qwen2_body;
  return family;
}

}  // namespace levin::models
