// Llama 2 and 3 (Touvron et al. 2023), and what was trained in its shape.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kLlamaKeys = R"keys(
  read      attention_bias mlp_bias
)keys";

}  // namespace

Family llama() {
  return {.model_type = "llama",
          .architectures = architectures_of(
              "Llama", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                        Task::kTokenClassification, Task::kQuestionAnswering}),
          .base_prefix = "model",
          .keys = detail::KnownKeys({kModelKeys, kDecoderKeys, kWithoutWindows, kLlamaKeys}),
          .body =
              [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
                auto options = DecoderOptions::from(config);
                options.read_layer_types(config, /*window=*/0);
                options.qkv_bias = options.output_bias = config.boolean("attention_bias", false);
                options.mlp_bias = config.boolean("mlp_bias", false);
                return make_decoder(root, prefix, options);
              },
          .head = llama_head,
          .tied = decoder_tied(),
          .tensor_parallel = decoder_tensor_parallel(false),
          .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
