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

}  // namespace

Family qwen2() {
  return {
      .model_type = "qwen2",
      .architectures = architectures_of(
          "Qwen2", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                    Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "model",
      .defaults = R"({"sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32})",
      .keys = detail::KnownKeys({kModelKeys, kDecoderKeys, kQwen2Keys}),
      .body =
          [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
            auto options = DecoderOptions::from(config);
            options.qkv_bias = true;
            options.read_windows(config);
            return make_decoder(root, prefix, options);
          },
      .head = llama_head,
      .tied = decoder_tied(),
      .tensor_parallel = decoder_tensor_parallel(false),
      .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
