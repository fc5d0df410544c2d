// Pretrained::generate beside a loop over forward. tests/oracle/generation_test.cpp holds it against transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/random.h"
#include "levin/data/batch.h"
#include "levin/models/generate/options.h"
#include "levin/models/lora.h"
#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"

namespace levin::models {
namespace {

using test::error_id;
using test::small;
using ::testing::Each;

/// Llama's kin with a window shorter than the texts.
std::string windowed() {
  return R"({"model_type": "mistral", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 5,
             "max_position_embeddings": 64, "initializer_range": 0.2})";
}

std::shared_ptr<Pretrained> network(const std::string& config) {
  torch::manual_seed(3);
  const auto net = small(config, "text-generation");
  net->eval();
  return net;
}

at::Tensor prompts_of(int64_t rows, int64_t length, int64_t seed) {
  torch::manual_seed(seed);
  return at::randint(3, 61, {rows, length}, at::kLong);
}

/// The likeliest token each time, by forward passes over all of the text.
at::Tensor by_hand(Pretrained& net, at::Tensor ids, int64_t count) {
  const at::NoGradGuard no_grad;
  for (int64_t i = 0; i < count; ++i)
    ids =
        at::cat({ids, net.forward({{"input_ids", ids}}).logits.select(1, -1).argmax(-1, true)}, 1);
  return ids;
}

class Generation : public ::testing::TestWithParam<std::string (*)()> {};

TEST_P(Generation, IsTheLikeliestTokenOfForwardEachTime) {
  const auto net = network(GetParam()());
  const at::Tensor ids = prompts_of(3, 7, 1);
  const at::Tensor wanted = by_hand(*net, ids, 20);
  for (const bool use_cache : {true, false}) {
    const Generated written = net->generate(ids, {.max_new_tokens = 20, .use_cache = use_cache});
    EXPECT_TRUE(at::equal(written.sequences, wanted)) << use_cache;
    EXPECT_THAT(written.counts, Each(20));
    EXPECT_THAT(written.endings, Each(Ending::kLength));
    EXPECT_TRUE(written.texts.empty());
  }
}

// Rows of several lengths, padded on the left; each ends by itself, and padding follows.
TEST_P(Generation, OfABatchIsThatOfEachRow) {
  const auto net = network(GetParam()());
  const at::Tensor text = prompts_of(4, 9, 2);
  const std::vector<int64_t> lengths{9, 3, 6, 1};
  at::Tensor ids = text.clone(), mask = at::ones_like(ids);
  for (int64_t row = 0; row < 4; ++row) {
    ids[row].narrow(0, 0, 9 - lengths[row]).zero_();
    mask[row].narrow(0, 0, 9 - lengths[row]).zero_();
  }
  std::vector<at::Tensor> alone;
  for (int64_t row = 0; row < 4; ++row)
    alone.push_back(
        by_hand(*net, text.narrow(0, row, 1).narrow(1, 9 - lengths[row], lengths[row]), 16)
            .narrow(1, lengths[row], 16)
            .squeeze(0));
  // The fifth token of one row and the eleventh of another end a text.
  const std::vector<int64_t> ends{alone[1][4].item<int64_t>(), alone[2][10].item<int64_t>()};
  const Generated written =
      net->generate({{"input_ids", ids}, {"attention_mask", mask}},
                    {.max_new_tokens = 16, .eos_token_id = ends, .pad_token_id = 1});
  const int64_t longest = *std::ranges::max_element(written.counts);
  EXPECT_EQ(written.sequences.size(1), 9 + longest);
  for (int64_t row = 0; row < 4; ++row) {
    const int64_t count = written.counts[row];
    const at::Tensor new_ones = written.sequences[row].narrow(0, 9, longest);
    EXPECT_TRUE(at::equal(new_ones.narrow(0, 0, count), alone[row].narrow(0, 0, count))) << row;
    EXPECT_TRUE((new_ones.narrow(0, count, longest - count) == 1).all().item<bool>()) << row;
    const bool ends_early = std::ranges::count(ends, new_ones[count - 1].item<int64_t>()) > 0;
    EXPECT_EQ(written.endings[row], ends_early ? Ending::kToken : Ending::kLength) << row;
    EXPECT_TRUE(ends_early || count == 16) << row;
  }
  EXPECT_LE(written.counts[1], 5);
}

INSTANTIATE_TEST_SUITE_P(Bodies, Generation,
                         ::testing::Values(test::small_qwen3, test::small_gpt2, windowed));

TEST(Generate, ASeedGivesTheSameTextAndLeavesTheDefaultGeneratorAlone) {
  const auto net = network(test::small_qwen3());
  const at::Tensor ids = prompts_of(2, 5, 4);
  const auto drawn = [&](std::optional<uint64_t> seed) {
    return net
        ->generate(ids, {.max_new_tokens = 12, .do_sample = true, .temperature = 2.0, .seed = seed})
        .sequences;
  };
  const at::Tensor before = random_state().tensor("cpu").clone();
  const at::Tensor first = drawn(5);
  EXPECT_TRUE(at::equal(drawn(5), first));
  EXPECT_FALSE(at::equal(drawn(6), first));
  EXPECT_TRUE(at::equal(random_state().tensor("cpu"), before));
  torch::manual_seed(5);
  EXPECT_TRUE(at::equal(drawn({}), first));
  EXPECT_FALSE(at::equal(random_state().tensor("cpu"), before));
}

TEST(Generate, SeveralTextsAPromptAreNeighbours) {
  const auto net = network(test::small_qwen3());
  const at::Tensor ids = prompts_of(2, 5, 4);
  const Generated written = net->generate(ids, {.max_new_tokens = 8,
                                                .do_sample = true,
                                                .temperature = 3.0,
                                                .num_return_sequences = 3,
                                                .seed = 1});
  ASSERT_EQ(written.sequences.size(0), 6);
  EXPECT_TRUE(at::equal(written.sequences.narrow(1, 0, 5), ids.repeat_interleave(3, 0)));
  EXPECT_FALSE(at::equal(written.sequences[0], written.sequences[1]));
}

TEST(Generate, LeavesModesAndGradientsAsTheyWere) {
  const auto net = network(test::small_qwen3());
  net->train();
  const auto part = net->modules()[3];
  part->eval();
  const Generated written = net->generate(prompts_of(1, 3, 5), {.max_new_tokens = 2});
  EXPECT_TRUE(net->is_training());
  EXPECT_FALSE(part->is_training());
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_FALSE(written.sequences.requires_grad());
  for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Generate, CallersSeeTokensAndMayEndIt) {
  const auto net = network(test::small_qwen3());
  std::vector<int64_t> seen;
  const Generated written = net->generate(
      prompts_of(1, 3, 6), {.max_new_tokens = 9, .on_tokens = [&](const at::Tensor& chosen) {
                              seen.push_back(chosen.item<int64_t>());
                              return seen.size() < 4;
                            }});
  EXPECT_EQ(written.counts[0], 4);
  EXPECT_EQ(written.endings[0], Ending::kCaller);
  const at::Tensor last = written.sequences[0].narrow(0, 3, 4);
  EXPECT_TRUE(at::equal(last, torch::tensor(seen)));
}

TEST(Generate, PaddingIsInferredWhereNobodyMasksIt) {
  auto config = Config::from_json(test::small_qwen3());  // pad_token_id 0
  torch::manual_seed(3);
  const auto net = from_config(config, {.task = "text-generation"});
  at::Tensor ids = prompts_of(2, 6, 7);
  ids[1].narrow(0, 0, 3).zero_();
  const auto mask = ids.ne(0).to(at::kLong);
  EXPECT_TRUE(
      at::equal(net->generate(ids, {.max_new_tokens = 9}).sequences,
                net->generate({{"input_ids", ids}, {"attention_mask", mask}}, {.max_new_tokens = 9})
                    .sequences));
}

TEST(Generate, AdaptersCountMergedOrNot) {
  const auto net = network(test::small_qwen3());
  const at::Tensor ids = prompts_of(1, 6, 8);
  const auto written = [&] { return net->generate(ids, {.max_new_tokens = 12}).sequences; };
  const at::Tensor before = written();
  lora::add(*net, {.r = 4, .lora_alpha = 64});
  EXPECT_TRUE(at::equal(written(), before));
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : net->named_parameters())
      if (parameter.key().find("lora_B") != std::string::npos) parameter.value().normal_();
  }
  const at::Tensor adapted = written();
  EXPECT_FALSE(at::equal(adapted, before));
  EXPECT_TRUE(at::equal(adapted, by_hand(*net, ids, 12)));
  lora::merge(*net);
  EXPECT_TRUE(at::equal(written(), adapted));
  lora::unmerge(*net);
  const lora::WithoutAdapter scope(*net);
  EXPECT_TRUE(at::equal(written(), before));
}

TEST(Generate, RunsOnWeightsOfHalfPrecision) {
  torch::manual_seed(3);
  const auto net = small(test::small_qwen3(), "text-generation", {.dtype = "bfloat16"});
  net->eval();
  const at::Tensor ids = prompts_of(2, 6, 9);
  const at::Tensor written = net->generate(ids, {.max_new_tokens = 10}).sequences;
  EXPECT_TRUE(at::equal(written.narrow(1, 0, 7), by_hand(*net, ids, 1)));
  EXPECT_EQ(written.size(1), 16);
}

TEST(Generate, PromptsOfTextsArePaddedOnTheLeft) {
  const auto tokenizer =
      text::Tokenizer::from_json(R"({"pre_tokenizer": {"type": "WhitespaceSplit"},
      "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "so": 1, "it": 2, "goes": 3}}})");
  const Batch batch = to_prompts(tokenizer, {"so it goes", "it"});
  EXPECT_TRUE(at::equal(batch["input_ids"], torch::tensor({{1, 2, 3}, {0, 0, 2}})));
  EXPECT_TRUE(at::equal(batch["attention_mask"], torch::tensor({{1, 1, 1}, {0, 0, 1}})));
  const auto net = network(test::small_qwen3());
  const Generated written = net->generate(batch, {.max_new_tokens = 3, .tokenizer = &tokenizer});
  EXPECT_EQ(written.texts.size(), 2U);
}

TEST(Generate, WhatCannotBeWrittenIsAnError) {
  const auto net = network(test::small_qwen3());
  const at::Tensor ids = prompts_of(2, 4, 1);
  const GenerateOptions few{.max_new_tokens = 2};
  const auto id = [&](const Batch& batch) { return error_id([&] { net->generate(batch, few); }); };
  at::Tensor mask = at::ones_like(ids);
  mask[1][3] = 0;
  EXPECT_EQ(id({{"input_ids", ids}, {"attention_mask", mask}}), "models.generate.padding");
  EXPECT_EQ(id({{"input_ids", ids}, {"document", ids}}), "models.input");
  EXPECT_EQ(id({{"input_ids", ids.narrow(1, 0, 0)}}), "models.input");
  EXPECT_EQ(id({{"input_ids", ids.to(at::kInt)}}), "models.input");
  for (const char* task : {"fill-mask", "feature-extraction"})
    EXPECT_EQ(error_id([&] { small(test::small_bert(), task)->generate(ids, few); }),
              "models.generate.task");
  EXPECT_EQ(
      error_id([&] { small(test::small_qwen3(), "text-classification")->generate(ids, few); }),
      "models.generate.task");
  EXPECT_EQ(error_id([&] { network(test::small_gpt2())->generate(ids, {.max_new_tokens = 29}); }),
            "models.length");
  EXPECT_EQ(error_id([&] { net->generate(ids); }), "models.generate.length");
  const auto tokenizer = text::Tokenizer::from_json(
      R"({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}}})");
  EXPECT_EQ(error_id([&] {
              network(windowed())
                  ->generate(ids,
                             {.max_new_tokens = 2, .stop_strings = {"x"}, .tokenizer = &tokenizer});
            }),
            "models.generate.options");
}

}  // namespace
}  // namespace levin::models
