// Mistral (Jiang et al. 2023): Llama with a sliding window.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"
#include "levin/models/families/known_keys.h"

namespace levin::models {
namespace {

constexpr std::string_view kMistralKeys = R"keys(
  read      sliding_window
)keys";

}  // namespace

Family mistral() {
  return {
      .model_type = "mistral",
      .architectures = architectures_of(
          "Mistral", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                      Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "model",
      .defaults = R"({"sliding_window": 4096, "num_key_value_heads": 8})",
      .keys = detail::KnownKeys({kModelKeys, kDecoderKeys, kMistralKeys}),
      .body =
          [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
            auto options = DecoderOptions::from(config);
            options.read_layer_types(config, /*window=*/0);
            for (auto& block : options.blocks) block.window = DecoderOptions::window_of(config);
            return make_decoder(root, prefix, options);
          },
      .head = decoder_head,
      .tied = decoder_tied(),
      .tensor_parallel = decoder_tensor_parallel(false),
      .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
