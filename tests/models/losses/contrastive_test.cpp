#include "levin/models/losses/contrastive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace levin::models {
namespace {

using test::error_of;
using ::testing::Each;
using ::testing::HasSubstr;

at::Tensor drawn(at::IntArrayRef sizes) {
  return torch::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(uint64_t{7}));
}

/// By hand: of each anchor the logarithm of its positive's part.
TEST(InBatchNegatives, IsTheCrossEntropyOfScaledCosines) {
  const at::Tensor embedding = drawn({3, 3, 5}).to(at::kDouble);
  double wanted = 0;
  for (int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (int64_t which = 1; which < 3; ++which) {
      for (int64_t other = 0; other < 3; ++other)
        sum += std::exp(
            20 *
            at::cosine_similarity(embedding[row][0], embedding[other][which], 0).item<double>());
    }
    const double own =
        20 * at::cosine_similarity(embedding[row][0], embedding[row][1], 0).item<double>();
    wanted += (std::log(sum) - own) / 3;
  }
  EXPECT_NEAR(in_batch_negatives(embedding).item<double>(), wanted, 1e-10);
}

TEST(InBatchNegatives, RanksTogetherAreOneRankWithAllTexts) {
  const at::Tensor all = drawn({6, 3, 4});
  at::Tensor weight = drawn({4, 4}).requires_grad_();
  const at::Tensor wanted_loss = in_batch_negatives(all.matmul(weight));
  const at::Tensor wanted = torch::autograd::grad({wanted_loss}, {weight})[0];
  const auto told = test::run_world(2, [&](int64_t rank, const auto&) -> std::string {
    comm::ProcessGroup group = test::connect();
    at::Tensor own_weight = drawn({4, 4}).requires_grad_();
    const at::Tensor loss =
        in_batch_negatives(all.narrow(0, 3 * rank, 3).matmul(own_weight), {.group = group});
    const at::Tensor gradient = torch::autograd::grad({loss}, {own_weight})[0].contiguous();
    const at::Tensor mean = loss.detach().clone().view({1});
    group.all_reduce(gradient, ReduceOp::kMean);
    group.all_reduce(mean, ReduceOp::kMean);
    if (!at::allclose(gradient, wanted, 1e-5, 1e-6)) return "another gradient";
    if (!at::allclose(mean[0], wanted_loss, 1e-6, 1e-6)) return "another loss";
    return "";
  });
  EXPECT_THAT(told, Each(""));
}

TEST(Contrastive, OfPairsAndTriplets) {
  const at::Tensor embedding = torch::tensor({{{1.0, 0.0}, {0.0, 2.0}, {3.0, 0.0}}}, at::kDouble);
  EXPECT_NEAR(cosine_similarity_loss(embedding.narrow(1, 0, 2), at::tensor({0.5})).item<double>(),
              0.25, 1e-12);
  EXPECT_NEAR(triplet_loss(embedding).item<double>(), std::sqrt(5.0) - 2 + 5, 1e-5);
  EXPECT_GT(triplet_loss(embedding, 0.0).item<double>(), 0);
  const at::Tensor near_first = embedding.index_select(1, at::tensor({0, 2, 1}, at::kLong));
  EXPECT_EQ(triplet_loss(near_first, 0.0).item<double>(), 0);
}

TEST(Contrastive, WrongSizesAreErrors) {
  EXPECT_THAT(error_of([] { in_batch_negatives(at::zeros({3, 4})); }), HasSubstr("models.input"));
  EXPECT_THAT(error_of([] { triplet_loss(at::zeros({3, 2, 4})); }), HasSubstr("models.input"));
  EXPECT_THAT(error_of([] { in_batch_negatives(at::zeros({3, 2, 4}), {.scale = 0}); }),
              HasSubstr("models.loss.options"));
  EXPECT_THAT(error_of([] { cosine_similarity_loss(at::zeros({3, 2, 4}), at::zeros({2})); }),
              HasSubstr("models.labels"));
}

}  // namespace
}  // namespace levin::models
