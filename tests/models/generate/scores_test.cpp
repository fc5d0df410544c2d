#include "levin/models/generate/scores.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace levin::models {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

GenerateSettings drawing() {
  GenerateSettings settings;
  settings.do_sample = true;
  return settings;
}

at::Tensor scores_of(const GenerateSettings& settings, const at::Tensor& logits,
                     const at::Tensor& ids) {
  at::Tensor seen;
  Scores(settings, {}, at::make_generator<at::CPUGeneratorImpl>(1), [&](const at::Tensor& scores) {
    seen = scores;
  }).choose(logits, ids);
  return seen;
}

/// How often each word is drawn in so many draws, beside its probability.
void expect_frequencies(const GenerateSettings& settings, const at::Tensor& logits,
                        const at::Tensor& probabilities) {
  constexpr int64_t kDraws = 40'000;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const Scores scores(settings, {}, generator);
  const auto drawn =
      scores.choose(logits.unsqueeze(0).repeat({kDraws, 1}), at::zeros({kDraws, 1}, at::kLong));
  const auto counts = at::bincount(drawn, {}, logits.size(0)).to(at::kDouble);
  for (int64_t word = 0; word < logits.size(0); ++word) {
    const auto p = probabilities[word].item<double>();
    const double deviation = std::sqrt(kDraws * p * (1 - p));
    EXPECT_LE(std::abs(counts[word].item<double>() - kDraws * p), 3 * deviation) << word;
  }
}

TEST(Scores, DrawsAsOftenAsTheProbabilitiesSay) {
  const auto logits = torch::tensor({0.3, -1.0, 2.0, 1.9, 0.0, -3.0, 1.0, 0.9});
  auto settings = drawing();
  expect_frequencies(settings, logits, at::softmax(logits.to(at::kDouble), 0));

  settings.temperature = 0.7;
  settings.repetition_penalty = 1.5;  // of word 0, which all have
  auto changed = logits.clone().to(at::kDouble);
  changed[0] /= 1.5;
  expect_frequencies(settings, logits, at::softmax(changed / 0.7, 0));

  settings = drawing();
  settings.top_k = 3;  // 2, 3, 6
  auto of_three = torch::full({8}, kNever, at::kDouble);
  for (const int64_t word : {2, 3, 6}) of_three[word] = logits[word];
  expect_frequencies(settings, logits, at::softmax(of_three, 0));

  settings.top_k = 0;
  settings.top_p = 0.5;  // 2 and 3 make up 0.57
  auto of_two = torch::full({8}, kNever, at::kDouble);
  for (const int64_t word : {2, 3}) of_two[word] = logits[word];
  expect_frequencies(settings, logits, at::softmax(of_two, 0));

  settings.top_p = 1;
  settings.min_p = 0.3;  // exp(-1) of the likeliest passes, exp(-1.1) too, exp(-1.7) does not
  auto of_four = torch::full({8}, kNever, at::kDouble);
  for (const int64_t word : {2, 3, 6, 7}) of_four[word] = logits[word];
  expect_frequencies(settings, logits, at::softmax(of_four, 0));
}

TEST(Scores, WordsAsLikelyAsTheLastOfTopKStay) {
  auto settings = drawing();
  settings.top_k = 2;
  const auto logits = torch::tensor({{1.0, 3.0, 1.0, 0.0, 1.0}, {5.0, 4.0, 3.0, 2.0, 1.0}});
  const auto scores = scores_of(settings, logits, at::zeros({2, 1}, at::kLong));
  EXPECT_TRUE(at::equal(scores.isinf(), torch::tensor({{false, false, false, true, false},
                                                       {false, false, true, true, true}})));
}

TEST(Scores, PaddingIsNoRepetition) {
  GenerateSettings settings;
  settings.repetition_penalty = 2;
  const auto padding = torch::tensor({{true, true, false}});
  at::Tensor seen;
  const Scores scores(settings, padding, {}, [&](const at::Tensor& each) { seen = each; });
  const auto chosen = scores.choose(torch::tensor({{4.0, 3.0, -1.0, 2.5}}),
                                    torch::tensor({{0, 0, 1, 2, 9}}));  // no score is of 9
  EXPECT_TRUE(at::equal(seen, torch::tensor({{4.0, 1.5, -2.0, 2.5}})));
  EXPECT_EQ(chosen.item<int64_t>(), 0);
}

TEST(Scores, NoTextEndsBeforeItsLeastLength) {
  GenerateSettings settings;
  settings.eos = settings.ends = {1};
  settings.min_length = 3;
  const auto logits = torch::tensor({{0.0, 5.0, 1.0}});
  const Scores scores(settings, {}, {});
  EXPECT_EQ(scores.choose(logits, at::zeros({1, 2}, at::kLong)).item<int64_t>(), 2);
  EXPECT_EQ(scores.choose(logits, at::zeros({1, 3}, at::kLong)).item<int64_t>(), 1);
}

TEST(Scores, OfHalfPrecisionAreChosenInFloats) {
  auto settings = drawing();
  settings.temperature = 0.3;
  const auto logits = torch::tensor({{1.0, 2.0}}).to(at::kBFloat16);
  const auto scores = scores_of(settings, logits, at::zeros({1, 1}, at::kLong));
  EXPECT_EQ(scores.scalar_type(), at::kFloat);
  EXPECT_FLOAT_EQ(scores[0][1].item<float>(), 2.0F / 0.3F);
}

}  // namespace
}  // namespace levin::models
