// Texts written by models whose weights are bfloat16 or float16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/data/batch.h"
#include "levin/models/generate/options.h"
#include "levin/models/lora.h"
#include "tests/models/small_models.h"

namespace levin::models {
namespace {

using test::small;

/// How far below the likeliest token a written one is at most, of the spread of a position's scores, by one
/// forward pass over all of the text in float32 on the same weights.
double largest_gap(Pretrained& wide, const at::Tensor& sequences, int64_t prompt) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = wide.forward({{"input_ids", sequences}}).logits;
  const int64_t written = sequences.size(1) - prompt;
  const at::Tensor scores = logits.narrow(1, prompt - 1, written);
  const at::Tensor chosen = scores.gather(2, sequences.narrow(1, prompt, written).unsqueeze(2));
  const at::Tensor gap = scores.amax(2) - chosen.squeeze(2);
  return (gap / (scores.amax(2) - scores.amin(2))).max().item<double>();
}

struct Half {
  const char* dtype;
  std::string (*config)();
};
class HalfPrecision : public ::testing::TestWithParam<Half> {};

/// Half types round where the cache puts keys and values in other places, so that of two tokens that are
/// nearly as likely another one may be written; never one that is not.
TEST_P(HalfPrecision, WritesTheLikeliestTokensWithAndWithoutACache) {
  torch::manual_seed(3);
  const auto net = small(GetParam().config(), "text-generation", {.dtype = GetParam().dtype});
  const auto wide = small(GetParam().config(), "text-generation");
  lora::add(net, {.r = 4, .target_modules = {"all-linear"}});
  lora::add(wide, {.r = 4, .target_modules = {"all-linear"}});
  const at::NoGradGuard no_grad;
  const auto theirs = wide->named_parameters();
  for (const auto& parameter : net->named_parameters()) {
    at::Tensor own = parameter.value();
    if (parameter.key().ends_with("lora_B.weight")) own.normal_(0, 0.1);
    theirs[parameter.key()].data().copy_(own);
  }
  net->eval();
  wide->eval();
  const at::Tensor ids = at::randint(3, 61, {3, 6}, at::kLong);
  for (const bool use_cache : {true, false}) {
    const at::Tensor written =
        net->generate(ids, {.max_new_tokens = 16, .use_cache = use_cache}).sequences;
    ASSERT_EQ(written.sizes(), at::IntArrayRef({3, 22}));
    EXPECT_LT(largest_gap(*wide, written, 6), 0.02) << "with a cache: " << use_cache;
  }
  // Drawn tokens: probabilities are float32 and none of them is NaN.
  const at::Tensor drawn =
      net->generate(ids, {.max_new_tokens = 16, .do_sample = true, .top_k = 3}).sequences;
  EXPECT_EQ(drawn.size(1), 22);
  EXPECT_LT(largest_gap(*wide, drawn, 6), 0.8);
  EXPECT_TRUE(drawn.ge(0).logical_and(drawn < 61).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(All, HalfPrecision,
                         ::testing::Values(Half{"bfloat16", test::small_qwen3},
                                           Half{"float16", test::small_qwen3},
                                           Half{"bfloat16", test::small_gpt2},
                                           Half{"float16", test::small_gpt2}),
                         [](const auto& info) {
                           return std::string(info.param.dtype) + "_" + std::to_string(info.index);
                         });

}  // namespace
}  // namespace levin::models
