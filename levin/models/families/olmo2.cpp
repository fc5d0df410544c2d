// OLMo 2 (Team OLMo 2024): norms after attention and MLP, and of queries and keys over all heads.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kOlmo2Keys = R"keys(
  read      attention_bias
)keys";

std::unique_ptr<Body> olmo2_body(torch::nn::Module& root, const std::string& prefix,
                                 const Config& config) {
  auto options = DecoderOptions::from(config);
  options.read_layer_types(config, /*window=*/0);
  options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
  options.query_key_norm = DecoderOptions::QueryKeyNorm::kWhole;
  options.norms = {.before_attention = "",
                   .after_attention = "post_attention_layernorm",
                   .before_mlp = "",
                   .after_mlp = "post_feedforward_layernorm"};
  return make_decoder(root, prefix, options);
}

}  // namespace

Family olmo2() {
  Family family = decoder_family(
      "olmo2", "Olmo2", detail::KnownKeys({kModelKeys, kDecoderKeys, kWithoutWindows, kOlmo2Keys}));
  family.architectures = architectures_of(
      "Olmo2", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification});
  family.defaults = R"({"pad_token_id": 1, "rms_norm_eps": 1e-5})";
  family.body = olmo2_body;
  family.head = decoder_head;
  family.tensor_parallel = {{"layers.*.self_attn.q_proj", "colwise_gather_output"},
                            {"layers.*.self_attn.k_proj", "colwise_gather_output"},
                            {"layers.*.self_attn.v_proj", "colwise_gather_output"},
                            {"layers.*.self_attn.o_proj", "rowwise_split_input"},
                            {"layers.*.mlp.gate_proj", "colwise"},
                            {"layers.*.mlp.up_proj", "colwise"},
                            {"layers.*.mlp.down_proj", "rowwise"}};
  return family;
}

}  // namespace levin::models
