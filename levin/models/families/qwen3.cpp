// Qwen 3 (Yang et al. 2025): heads of a size of their own, and norms of queries and keys.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kQwen3Keys = R"keys(
  read      attention_bias use_sliding_window sliding_window max_window_layers
)keys";

}  // namespace

Family qwen3() {
  return {
      .model_type = "qwen3",
      .architectures = architectures_of(
          "Qwen3", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                    Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "model",
      .defaults =
          R"({"sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32, "head_dim": 128})",
      .keys = detail::KnownKeys({kModelKeys, kDecoderKeys, kQwen3Keys}),
      .body =
          [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
            auto options = DecoderOptions::from(config);
            options.query_key_norm = DecoderOptions::QueryKeyNorm::kHead;
            options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
            options.read_windows(config);
            return make_decoder(root, prefix, options);
          },
      .head = llama_head,
      .tied = decoder_tied(),
      .tensor_parallel = decoder_tensor_parallel(true),
      .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
