#include "levin/models/generate/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::models {
namespace {

using test::error_id;
using test::error_of;
using test::small;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerateSettings settings_of(const GenerateOptions& options, const std::string& generation,
                             const std::string& model = "{}", int64_t prompt = 5,
                             int64_t longest = 0) {
  return GenerateSettings::of(options, Config::from_json(generation, "generation_config.json"),
                              Config::from_json(model), prompt, longest);
}

TEST(GenerateSettings, AreTheCallsThenTheFilesThenTransformers) {
  const auto plain = settings_of({}, R"({"eos_token_id": 2})");
  EXPECT_EQ(plain.capacity, 25);
  EXPECT_EQ(plain.pad, 2);
  EXPECT_FALSE(plain.do_sample);
  EXPECT_EQ(plain.top_k, 50);
  EXPECT_EQ(plain.temperature, 1.0);
  EXPECT_TRUE(plain.use_cache);
  const std::string file =
      R"({"eos_token_id": [7, 9], "pad_token_id": 0, "do_sample": true, "temperature": 0.6,
      "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1, "max_new_tokens": 30,
      "min_new_tokens": 3, "stop_strings": null, "num_beams": 1, "use_cache": false})";
  const auto of_file = settings_of({}, file);
  EXPECT_THAT(of_file.ends, ElementsAre(7, 9));
  EXPECT_EQ(of_file.pad, 0);
  EXPECT_EQ(of_file.capacity, 35);
  EXPECT_EQ(of_file.min_length, 8);
  EXPECT_TRUE(of_file.do_sample);
  EXPECT_EQ(of_file.temperature, 0.6);
  EXPECT_EQ(of_file.top_k, 20);
  EXPECT_EQ(of_file.top_p, 0.95);
  EXPECT_EQ(of_file.min_p, 0.1);
  EXPECT_EQ(of_file.repetition_penalty, 1.1);
  EXPECT_FALSE(of_file.use_cache);
  const auto of_call = settings_of({.max_new_tokens = 4,
                                    .eos_token_id = {3},
                                    .stop_token_ids = {4},
                                    .do_sample = false,
                                    .temperature = 2.0,
                                    .use_cache = true},
                                   file);
  EXPECT_THAT(of_call.ends, ElementsAre(3, 4));
  EXPECT_THAT(of_call.eos, ElementsAre(3));
  EXPECT_EQ(of_call.capacity, 9);
  EXPECT_FALSE(of_call.do_sample);
  EXPECT_EQ(of_call.temperature, 2.0);
  EXPECT_EQ(of_call.top_k, 20);
  EXPECT_TRUE(of_call.use_cache);
}

TEST(GenerateSettings, NewTokensGoBeforeALengthAndPositionsBoundTheDefault) {
  EXPECT_EQ(settings_of({.max_length = 11}, "{}").capacity, 11);
  EXPECT_EQ(settings_of({.max_length = 11, .max_new_tokens = 2}, "{}").capacity, 7);
  EXPECT_EQ(
      settings_of({}, R"({"eos_token_id": 1})", R"({"max_position_embeddings": 12})").capacity, 12);
  EXPECT_EQ(settings_of({.min_length = 9}, R"({"eos_token_id": 1})").min_length, 9);
}

TEST(GenerateSettings, WhatCannotBeIsAnError) {
  const auto id = [](const GenerateOptions& options, const std::string& file = "{}") {
    return error_id([&] { settings_of(options, file); });
  };
  const std::string wrong = "models.generate.options";
  EXPECT_EQ(id({.max_new_tokens = 0}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .temperature = 0.0}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .top_k = -1}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .top_p = 1.5}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .min_p = -0.1}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .repetition_penalty = 0.0}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .num_return_sequences = 2}), wrong);
  EXPECT_EQ(id({.max_new_tokens = 1, .num_return_sequences = 0}), wrong);
  EXPECT_EQ(id({.max_length = 5}), "models.generate.length");
  EXPECT_EQ(id({}), "models.generate.length");  // nothing would end it
  EXPECT_EQ(id({.max_new_tokens = 1, .stop_strings = {"x"}}), "models.generate.tokenizer");
  EXPECT_EQ(id({.max_new_tokens = 1, .on_text = [](int64_t, std::string_view) {}}),
            "models.generate.tokenizer");
  EXPECT_EQ(id({.max_new_tokens = 1}, R"({"num_beams": 4})"), "models.generate.config");
  EXPECT_EQ(id({.max_new_tokens = 1}, R"({"bad_words_ids": [[3]]})"), "models.generate.config");
  EXPECT_EQ(id({.max_new_tokens = 1}, R"({"top_k": "many"})"), "models.config");
  EXPECT_THAT(error_of([&] { settings_of({}, "{}"); }), HasSubstr("eos_token_id"));
  EXPECT_THAT(error_of([&] { settings_of({}, R"({"num_beams": 4})"); }),
              HasSubstr("generation_config.json has num_beams = 4"));
  EXPECT_EQ(error_id([&] { settings_of({.max_new_tokens = 4}, "{}", "{}", 5, /*longest=*/8); }),
            "models.length");
  EXPECT_EQ(error_id([&] { settings_of({}, R"({"eos_token_id": 1})", "{}", 8, /*longest=*/8); }),
            "models.generate.length");
}

TEST(GenerationConfig, IsReadKeptAndWritten) {
  const test::Scratch scratch;
  const auto made = small(test::small_qwen3(), "text-generation");
  made->save_pretrained(scratch.str());
  EXPECT_EQ(Config::from_folder(scratch.str()).text("model_type"), "qwen3");
  const auto file = scratch / "generation_config.json";
  test::put(
      file,
      R"({"eos_token_id": [5, 6], "top_p": 0.8, "do_sample": true, "of_the_reader": [1, {"a": 2}]})");
  const auto net = from_pretrained(scratch.str());
  EXPECT_THAT(net->generation_config().integers("eos_token_id"), ElementsAre(5, 6));
  net->set_generation_defaults({.max_new_tokens = 9, .stop_token_ids = {7}, .temperature = 0.5});
  const test::Scratch other;
  net->save_pretrained(other.str());
  const auto again = from_pretrained(other.str());
  const Config& config = again->generation_config();
  EXPECT_THAT(config.integers("eos_token_id"), ElementsAre(5, 6, 7));
  EXPECT_EQ(config.integer("max_new_tokens"), 9);
  EXPECT_EQ(config.number("temperature"), 0.5);
  EXPECT_EQ(config.number("top_p"), 0.8);
  EXPECT_TRUE(config.boolean("do_sample", false));
  EXPECT_TRUE(config.has("of_the_reader"));
}

TEST(GenerationConfig, OfAConfigAloneHasItsTokens) {
  auto config = Config::from_json(test::small_qwen3());
  config.set("eos_token_id", std::vector<int64_t>{3, 4});
  const auto net = from_config(config, {.task = "text-generation"});
  EXPECT_THAT(net->generation_config().integers("eos_token_id"), ElementsAre(3, 4));
  EXPECT_EQ(net->generation_config().integer("pad_token_id"), 0);
  EXPECT_FALSE(net->generation_config().has("bos_token_id"));
}

}  // namespace
}  // namespace levin::models
