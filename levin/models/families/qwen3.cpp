// Qwen 3 (Yang et al. 2025): heads of a size of their own, and norms of queries and keys.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kQwen3Keys = R"keys(
  read      attention_bias use_sliding_window sliding_window max_window_layers
)keys";

std::unique_ptr<Body> qwen3_body(torch::nn::Module& root, const std::string& prefix,
                                 const Config& config) {
  auto options = DecoderOptions::from(config);
  options.query_key_norm = DecoderOptions::QueryKeyNorm::kHead;
  options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
  options.read_windows(config);
  return make_decoder(root, prefix, options);
}

}  // namespace

Family qwen3() {
  Family family =
      decoder_family("qwen3", "Qwen3", detail::KnownKeys({kModelKeys, kDecoderKeys, kQwen3Keys}));
  family.defaults =
      R"({"sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32, "head_dim": 128})";
  family.body = qwen3_body;
  family.tensor_parallel = decoder_tensor_parallel(true);
  return family;
}

}  // namespace levin::models
