// Keys of config.json and generation_config.json that levin does not compute as they say: refused by name; those that
// nobody knows: one warning. tests/oracle/odd_configs_test.cpp holds the others against transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "levin/base/log_sink.h"
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
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string with(const std::string& config, const std::string& keys) {
  std::string text = config;
  return text.insert(1, keys + ", ");
}

/// Warnings while a call runs.
template <class Call>
std::vector<std::string> warnings_of(Call&& call) {
  std::vector<std::string> heard;
  const log::Sink before = log::set_sink([&](log::Level level, std::string_view text) {
    if (level == log::Level::kWarn) heard.emplace_back(text);
  });
  call();
  log::set_sink(before);
  return heard;
}

TEST(ConfigKeys, ValuesThatChangeWhatIsComputedAreNamed) {
  const auto told = [](const std::string& config, const std::string& keys) {
    return error_of([&] { small(with(config, keys), "feature-extraction"); });
  };
  EXPECT_THAT(told(test::small_bert(), R"("is_decoder": true)"),
              StartsWith("models.config: config.json: got is_decoder = true, wanted false; levin"));
  EXPECT_THAT(told(test::small_bert(), R"("position_embedding_type": "relative_key")"),
              HasSubstr(R"(got position_embedding_type = "relative_key", wanted "absolute")"));
  EXPECT_THAT(told(test::small_qwen3(), R"("per_layer_config": {"0": {"head_dim": 4}})"),
              HasSubstr(R"(got per_layer_config = {"0":{"head_dim":4}}, wanted {})"));
  EXPECT_THAT(
      told(test::small_qwen3(), R"("layer_types": ["full_attention", "sliding_attention"])"),
      HasSubstr("got sliding_attention in layer_types, but no sliding_window"));
  EXPECT_THAT(told(test::small_modernbert(), R"("head_dim": 12)"),
              HasSubstr("got head_dim = 12, wanted 6 (hidden_size / num_attention_heads)"));
  EXPECT_THAT(told(test::small_modernbert(),
                   R"("layer_types": ["full_attention", "chunked_attention", "full_attention"])"),
              HasSubstr("got 'chunked_attention' in layer_types, wanted full_attention"));
  EXPECT_THAT(
      told(test::small_modernbert(), R"("rope_parameters": {"rope_type": "default"})"),
      HasSubstr(
          "models.rotary: config.json: rope_parameters has the key rope_type, wanted only full_a"));
}

TEST(ConfigKeys, NullAndWhatTransformersWritesAreFine) {
  EXPECT_THAT(
      warnings_of([] {
        small(with(test::small_bert(),
                   R"("is_decoder": null, "quantization_config": null, "add_cross_attention": false,
                              "transformers_version": "4.57.0", "use_cache": false, "num_beams": 4)"),
              "fill-mask");
      }),
      ElementsAre());
}

TEST(ConfigKeys, OnesThatNobodyKnowsAreNamedOnce) {
  const Scratch scratch;
  const std::string config = with(
      test::small_qwen3(),
      R"("rope_parameters": {"rope_type": "default", "ramp": 1}, "new_gate": 0.5, "newer_gate": [1])");
  EXPECT_THAT(
      warnings_of([&] { small(config, "text-generation")->save_pretrained(scratch.str()); }),
      ElementsAre(
          HasSubstr(
              "config.json has keys that levin does not know and ignores: new_gate, newer_gate"),
          HasSubstr(
              "config.json: rope_parameters has keys that levin does not know and ignores: ramp")));
  put(scratch / "generation_config.json", R"({"eos_token_id": 1, "warmth": 2, "num_beams": 4})");
  std::shared_ptr<Pretrained> net;
  const auto heard = warnings_of([&] { net = from_pretrained(scratch.str()); });
  EXPECT_THAT(heard,
              ::testing::Contains(HasSubstr(
                  "generation_config.json has keys that levin does not know and ignores: warmth")));
  EXPECT_THAT(
      error_of([&] { net->generate(at::full({1, 2}, 5, at::kLong), {.max_new_tokens = 1}); }),
      AllOf(StartsWith("models.generate.config: "),
            HasSubstr("generation_config.json has num_beams = 4, wanted 1")));
}

TEST(ConfigKeys, ATokenOfPaddingBelow0CountsFromTheEnd) {
  std::string config = test::small_qwen3();
  config.replace(config.find("\"pad_token_id\": 0"), 17, "\"pad_token_id\": -1");
  const auto net = small(config, "text-generation");
  const at::Tensor ids = torch::tensor({{5, 60, 7}}, at::kLong);
  net->forward({{"input_ids", ids}, {"labels", ids}}).loss.backward();
  const at::Tensor gradient = net->named_parameters()["model.embed_tokens.weight"].grad();
  EXPECT_TRUE(gradient[60].eq(0).all().item<bool>());
  EXPECT_FALSE(gradient[5].eq(0).all().item<bool>());
  EXPECT_THAT(
      error_of([] {
        small(
            R"({"model_type": "roberta", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
                          "num_hidden_layers": 1, "num_attention_heads": 4, "pad_token_id": null})",
            "fill-mask");
      }),
      HasSubstr("got pad_token_id = null, wanted an id"));
}

TEST(ConfigKeys, AnAdapterBesideAModelIsNamed) {
  const Scratch scratch;
  small(test::small_qwen3(), "text-generation")->save_pretrained(scratch.str());
  put(scratch / "adapter_config.json", "{}");
  EXPECT_THAT(warnings_of([&] { from_pretrained(scratch.str()); }),
              ElementsAre(HasSubstr(
                  "has an adapter_config.json, but from_pretrained does not load adapters")));
}

TEST(ConfigKeys, OtherNamesOfAKeyReplaceIt) {
  const auto net = small(with(test::small_gpt2(), R"("num_hidden_layers": 1, "hidden_size": 16)"),
                         "text-generation");
  EXPECT_EQ(net->config().integer("n_layer"), 1);
  EXPECT_EQ(net->config().integer("n_embd"), 16);
  EXPECT_FALSE(net->config().has("hidden_size"));
  EXPECT_EQ(net->named_parameters()["transformer.wte.weight"].size(1), 16);
}

TEST(ConfigKeys, ADecoderThatSeesBothSidesWritesNoText) {
  const auto net = small(with(test::small_qwen3(), R"("is_causal": false)"), "text-generation");
  const at::Tensor ids = torch::tensor({{5, 6, 7, 8}}, at::kLong), other = ids.clone();
  other[0][3] = 9;
  const auto first = [&](const at::Tensor& of) {
    return net->forward({{"input_ids", of}}).logits.select(1, 0);
  };
  EXPECT_FALSE(at::allclose(first(ids), first(other)));
  EXPECT_THAT(
      error_of([&] { net->generate(ids, {.max_new_tokens = 1}); }),
      StartsWith("models.generate.task: config.json describes a model without causal attention"));
}

TEST(ConfigKeys, SinusoidalPositionsBeginAsSinesAndCosines) {
  const auto net =
      small(R"({"model_type": "distilbert", "vocab_size": 61, "dim": 4, "hidden_dim": 8,
      "n_layers": 1, "n_heads": 2, "max_position_embeddings": 8, "sinusoidal_pos_embds": true})",
            "feature-extraction");
  const at::Tensor row = net->named_parameters()["embeddings.position_embeddings.weight"][3];
  const at::Tensor wanted =
      torch::tensor({std::sin(3.0), std::cos(3.0), std::sin(0.03), std::cos(0.03)}, at::kFloat);
  EXPECT_TRUE(at::allclose(row, wanted, 1e-6, 1e-7)) << row;
}

}  // namespace
}  // namespace levin::models
