// Folders and batches that cannot be: each says what is wrong with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/pretrained.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::models {
namespace {

using test::error_of;
using test::put;
using test::Scratch;
using test::small;
using test::write_classifier;
using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor tokens(int64_t rows, int64_t length) {
  torch::manual_seed(1);
  return at::randint(3, 61, {rows, length}, at::kLong);
}

TEST(PretrainedErrors, WhatDoesNotGoTogetherIsNamed) {
  const Scratch scratch;
  const auto folder = scratch / "model";
  const auto error = [&](const PretrainedOptions& options = {}) {
    return error_of([&] { from_pretrained(folder, options); });
  };
  EXPECT_THAT(error(), HasSubstr("models.missing: " + folder.string() + " has no config.json"));
  write_classifier(folder, 3);
  const std::string config = test::get(folder / "config.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    put(folder / "config.json", text.replace(at, from.size(), to));
  };
  with("\"bert\"", "\"brt\"");
  EXPECT_THAT(error(), HasSubstr("models.model_type: got model_type 'brt'"));
  EXPECT_THAT(error(), HasSubstr("nearest is bert"));
  with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  EXPECT_THAT(error(),
              HasSubstr("models.weights: " + folder.string() +
                        " has no weights for bert.encoder.layer.2.attention.output.LayerNorm"));
  with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EXPECT_THAT(
      error(),
      HasSubstr(
          "holds tensors that the model of its config.json does not have: bert.encoder.layer.1."));
  with("\"intermediate_size\": 40", "\"intermediate_size\": 41");
  EXPECT_THAT(error(), HasSubstr("has sizes [40] in the file, but [41] by config.json"));
  with("\"hidden_size\": 24", "\"hidden_size\": \"24\"");
  EXPECT_THAT(error(), HasSubstr("models.config"));
  with("\"num_attention_heads\": 4", "\"num_attention_heads\": 5");
  EXPECT_THAT(error(), HasSubstr("wanted a multiple of num_attention_heads = 5"));
  with("\"hidden_size\": 24", "\"hidden_act\": \"geluu\", \"hidden_size\": 24");
  EXPECT_THAT(error(), HasSubstr("models.activation: got activation 'geluu'"));
  with("\"hidden_size\": 24", "\"quantization_config\": {}, \"hidden_size\": 24");
  EXPECT_THAT(error(), HasSubstr("models.quantized"));
  put(folder / "config.json", "[1, 2]");
  EXPECT_THAT(error(), HasSubstr("is not a JSON object"));
  put(folder / "config.json", config);
  EXPECT_THAT(error({.task = "text-clasification"}),
              HasSubstr("models.task: got task 'text-clasification'"));
  EXPECT_THAT(error({.task = "text-generation"}),
              HasSubstr("bert has no head for text-generation"));
  EXPECT_THAT(error({.num_labels = 0}), HasSubstr("models.num_labels: got num_labels = 0"));
  put(folder / "modules.json", R"([{"type": "sentence_transformers.models.Dense"}])");
  EXPECT_THAT(error(), HasSubstr("models.sentence"));
  std::filesystem::remove(folder / "modules.json");
  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_THAT(error(), HasSubstr("models.missing: " + folder.string() + " has neither"));
}

TEST(PretrainedErrors, AFileThatAnIndexNamesAndThatIsNotThereIsNamed) {
  const Scratch scratch;
  const auto folder = scratch / "model";
  write_classifier(folder, 3);
  State weights = load_weights(folder / "model.safetensors");
  std::filesystem::remove(folder / "model.safetensors");
  save_sharded_weights(folder, weights, 20'000);
  from_pretrained(folder);
  std::string last;
  for (const std::string& name : test::names_in(folder)) {
    if (name.starts_with("model-")) last = name;
  }
  for (const std::string& file : {last, std::string("pytorch_model-2.bin")}) {
    const bool are_bins = file.ends_with(".bin");
    const std::string index =
        are_bins ? "pytorch_model.bin.index.json" : "model.safetensors.index.json";
    if (are_bins) {
      std::filesystem::remove(folder / "model.safetensors.index.json");
      put(folder / index, R"({"weight_map": {"a": ")" + file + "\"}}");
    } else {
      std::filesystem::remove(folder / file);
    }
    const std::string said = error_of([&] { from_pretrained(folder); });
    EXPECT_THAT(said, HasSubstr("checkpoint.missing: " + (folder / index).string() + " lists "));
    EXPECT_THAT(said, HasSubstr(" in file " + file + ", but that file does not exist"));
  }
}

TEST(PretrainedErrors, WholeNumbersForWeightsAreNoneThatAreRead) {
  const Scratch scratch;
  const auto folder = scratch / "model";
  write_classifier(folder, 3);
  State weights = load_weights(folder / "model.safetensors");
  State whole;
  for (const auto& [name, value] : weights.values()) {
    const at::Tensor& tensor = weights.tensor(name);
    whole.set(name, tensor.dim() == 2 ? tensor.to(at::kChar) : tensor);
  }
  save_weights(folder / "model.safetensors", whole);
  EXPECT_THAT(
      error_of([&] { from_pretrained(folder); }),
      AllOf(HasSubstr("models.quantized: "), HasSubstr(" has dtype Char, but levin reads")));
}

TEST(PretrainedErrors, CountsThatAreNoneAreNamed) {
  const auto told = [](const std::string& model_type, const std::string& field) {
    std::string config = test::small_qwen3();
    config.replace(config.find("qwen3"), 5, model_type);
    const std::string key = field.substr(0, field.find(':'));
    if (const size_t at = config.find(key); at != std::string::npos) {
      config.erase(at, config.find(',', at) + 1 - at);
    }
    config.insert(1, field + ", ");
    return error_of([&] { small(config, "text-generation"); });
  };
  EXPECT_THAT(told("qwen3", R"("num_hidden_layers": -1)"),
              AllOf(HasSubstr("models.config: "), HasSubstr("has num_hidden_layers = -1")));
  EXPECT_THAT(told("qwen3", R"("num_hidden_layers": 4611686018427387904)"),
              HasSubstr("has num_hidden_layers = 4611686018427387904, wanted at most 10000"));
  EXPECT_THAT(
      told("qwen3", R"("vocab_size": 4611686018427387904)"),
      AllOf(HasSubstr("models.config: "), HasSubstr("cannot build a model of these sizes")));
  EXPECT_THAT(told("gemma3_text", R"("sliding_window_pattern": 0)"),
              HasSubstr("has sliding_window_pattern = 0, wanted above 0"));
  EXPECT_THAT(told("smollm3", R"("no_rope_layer_interval": 0)"),
              HasSubstr("has no_rope_layer_interval = 0, wanted above 0"));
}

TEST(PretrainedErrors, KindsOfRotaryEmbeddingsThatAreNotThereAreNamed) {
  for (const auto& [given, said] : std::map<std::string, std::string>{
           {R"({"rope_type": "dynamic", "factor": 2.0})", "rope_type 'dynamic'"},
           {R"({"rope_type": "longrope", "factor": 2.0})", "rope_type 'longrope'"},
           {R"({"rope_type": "llama3", "factor": 2.0})", "has no low_freq_factor"},
           {R"({"rope_type": "default", "partial_rotary_factor": 0.5})",
            "partial_rotary_factor"}}) {
    std::string config = test::small_qwen3();
    config.insert(1, "\"rope_parameters\": " + given + ", ");
    EXPECT_THAT(error_of([&] { small(config, "text-generation"); }), HasSubstr(said));
  }
  std::string odd = test::small_qwen3();
  odd.replace(odd.find("\"head_dim\": 8"), 13, "\"head_dim\": 7");
  EXPECT_THAT(error_of([&] { small(odd, "text-generation"); }),
              HasSubstr("models.rotary: got head_dim = 7"));
}

TEST(PretrainedErrors, BatchesThatAreNoneAreNamed) {
  const auto net = small(test::small_bert(), "text-classification");
  const at::Tensor ids = tokens(2, 5);
  const auto error = [&](const Batch& batch) { return error_of([&] { net->forward(batch); }); };
  EXPECT_THAT(error({{"ids", ids}}), HasSubstr("models.input: the batch has no input_ids"));
  EXPECT_THAT(error({{"input_ids", ids.to(at::kInt)}}),
              HasSubstr("models.input: got input_ids Int"));
  EXPECT_THAT(error({{"input_ids", ids}, {"attention_mask", at::ones({2, 4})}}),
              HasSubstr("models.input: attention_mask has sizes [2, 4]"));
  EXPECT_THAT(error({{"input_ids", tokens(1, 33)}}), HasSubstr("models.length: got 33 tokens"));
  EXPECT_THAT(error({{"input_ids", ids}, {"labels", at::zeros({3}, at::kLong)}}),
              HasSubstr("models.labels: got labels of sizes [3], wanted [2]"));
  const auto decoder = small(test::small_gpt2(), "text-classification");
  EXPECT_THAT(error_of([&] { decoder->forward({{"input_ids", ids}}); }),
              HasSubstr("models.padding: the config has no pad_token_id"));
}
}  // namespace
}  // namespace levin::models
