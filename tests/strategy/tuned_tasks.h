#pragma once
// Fine-tunings of small models, of which a part is frozen, for the tables of strategies.

#include <filesystem>
#include <memory>
#include <string>

#include "levin/models/lora.h"
#include "tests/strategy/tasks.h"

namespace levin::test {

inline std::string small_llama() {
  return R"({"model_type": "llama", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "max_position_embeddings": 64, "initializer_range": 0.2, "pad_token_id": 0})";
}

/// Texts of 8 tokens; what is to be said is in them.
inline Task tuned(std::shared_ptr<models::Pretrained> net, int64_t vocabulary = 61) {
  for (const auto& parameter : net->named_parameters()) {
    // Beside 0 there is nothing to sum.
    if (parameter.key().ends_with("lora_B.weight"))
      torch::nn::init::normal_(parameter.value(), 0.0, 0.1);
  }
  const bool is_of_texts = net->task() == "text-classification";
  return {net,
          [=](int64_t step) {
            return drawn(step, {kGlobalBatch, 8})
                .mul(1000)
                .abs()
                .to(at::kLong)
                .remainder(vocabulary - 3)
                .add(3);
          },
          [=](const at::Tensor& ids) {
            const at::Tensor labels = is_of_texts ? ids.select(1, 0).remainder(3) : ids;
            return net->forward({{"input_ids", ids}, {"labels", labels}}, {.logits = false}).loss;
          }};
}

inline void freeze(const models::Pretrained& net, const std::vector<std::string>& prefixes) {
  for (const auto& parameter : net.named_parameters()) {
    for (const std::string& prefix : prefixes) {
      if (parameter.key().starts_with(prefix))
        at::Tensor(parameter.value()).set_requires_grad(false);
    }
  }
}

/// Adapters in blocks that are computed twice, with magnitudes of their own (DoRA).
inline Task adapted_checkpointed() {
  const auto net = small(small_llama(), "text-generation", {.activation_checkpointing = true});
  lora::add(net, {.r = 4, .target_modules = {"all-linear"}, .use_dora = true});
  return tuned(net);
}

/// The embedding, which is the head's matrix too, and the first of two blocks do not train.
inline Task partly_frozen() {
  std::string config = small_qwen3();
  const auto net = small(config.insert(1, "\"tie_word_embeddings\": true, "), "text-generation");
  freeze(*net, {"model.embed_tokens", "model.layers.0."});
  return tuned(net);
}

/// The same with the second block frozen, through which gradients go to the first, computed twice.
inline Task partly_frozen_checkpointed() {
  const auto net = small(small_bert(), "fill-mask", {.activation_checkpointing = true});
  freeze(*net, {"bert.embeddings", "bert.encoder.layer.1."});
  return tuned(net);
}

/// A vocabulary whose scores are never whole, and an adapter that leaves the head's matrix as it is.
inline Task adapted_large_vocabulary() {
  std::string config = small_qwen3();
  config.replace(config.find("\"vocab_size\": 61"), 16, "\"vocab_size\": 9000");
  const auto net = small(config, "text-generation", {.activation_checkpointing = true});
  lora::add(net, {.r = 4, .target_modules = {"q_proj", "down_proj"}});
  return tuned(net, 9000);
}

/// A folder whose weights stay in the map of their file; made before the ranks are.
inline std::filesystem::path& folder_of_base() {
  static std::filesystem::path folder;
  return folder;
}

/// Adapters, and modules that train whole beside them: the pooler and the classifier.
inline Task adapted_with_modules() {
  const auto net = models::from_pretrained(folder_of_base(), {.task = "text-classification"});
  lora::add(net, {.r = 4, .target_modules = {"query", "value"}, .modules_to_save = {"pooler"}});
  return tuned(net);
}

}  // namespace levin::test
