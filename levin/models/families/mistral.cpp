// Mistral (Jiang et al. 2023): Llama with a sliding window.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"

namespace levin::models {

Family mistral() {
  return {
      .model_type = "mistral",
      .architectures = architectures_of(
          "Mistral", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                      Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "model",
      .defaults = R"({"sliding_window": 4096, "num_key_value_heads": 8})",
      .body =
          [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
            auto options = DecoderOptions::from(config);
            for (auto& block : options.blocks) block.window = config.integer("sliding_window", 0);
            return make_decoder(root, prefix, options);
          },
      .head = decoder_head,
      .tensor_parallel = decoder_tensor_parallel(false),
      .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
