// Qwen 2 and 2.5 (Yang et al. 2024): Llama with biases of queries, keys and values.

#include "levin/models/bodies/decoder.h"
#include "levin/models/families/families.h"

namespace levin::models {

Family qwen2() {
  return {
      .model_type = "qwen2",
      .architectures = architectures_of(
          "Qwen2", {Task::kFeatureExtraction, Task::kTextGeneration, Task::kTextClassification,
                    Task::kTokenClassification, Task::kQuestionAnswering}),
      .base_prefix = "model",
      .defaults = R"({"sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32})",
      .body =
          [](torch::nn::Module& root, const std::string& prefix, const Config& config) {
            auto options = DecoderOptions::from(config);
            options.qkv_bias = true;
            options.read_windows(config);
            return make_decoder(root, prefix, options);
          },
      .head = llama_head,
      .tensor_parallel = decoder_tensor_parallel(false),
      .lora_targets = {"q_proj", "v_proj"}};
}

}  // namespace levin::models
