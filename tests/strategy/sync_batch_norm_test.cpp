#include "levin/strategy/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/world.h"

namespace {

using levin::test::run_world;
using ::testing::Each;
using ::testing::StartsWith;

/// Of one batch norm: output, gradients of input, weight and bias, running statistics.
std::vector<at::Tensor> through_batch_norm(const at::Tensor& batch,
                                           levin::comm::ProcessGroup* group, bool affine,
                                           bool tracks) {
  torch::nn::BatchNorm2d norm(
      torch::nn::BatchNorm2dOptions(3).affine(affine).track_running_stats(tracks));
  if (affine) {
    const at::NoGradGuard no_grad;
    norm->weight.copy_(torch::tensor({1.5, -0.5, 2.0}));
    norm->bias.copy_(torch::tensor({0.1, 0.2, 0.3}));
  }
  const at::Tensor x = batch.clone().set_requires_grad(true);
  const levin::SyncBatchNormGuard guard(group);
  const at::Tensor y = norm->forward(x);
  (y * y.detach().sin() * 3).sum().backward();
  std::vector<at::Tensor> all = {y.detach(), x.grad()};
  if (affine) all.insert(all.end(), {norm->weight.grad(), norm->bias.grad()});
  if (tracks) all.insert(all.end(), {norm->running_mean, norm->running_var});
  return all;
}

at::Tensor whole_batch() {
  return torch::randn({6, 3, 4, 5}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{3})) * 2 + 1;
}

/// Rows of two ranks: four of the first, two of the second.
at::Tensor rows_of(int64_t rank, const at::Tensor& all) {
  return rank == 0 ? all.slice(0, 0, 4) : all.slice(0, 4, 6);
}

TEST(SyncBatchNorm, RanksTogetherComputeWhatOneDoes) {
  for (const bool affine : {false, true}) {
    for (const bool tracks : {false, true}) {
      EXPECT_THAT(run_world(2,
                            [&](int64_t rank, const auto&) {
                              auto group = levin::test::connect();
                              const auto wanted =
                                  through_batch_norm(whole_batch(), nullptr, affine, tracks);
                              const auto got = through_batch_norm(rows_of(rank, whole_batch()),
                                                                  &group, affine, tracks);
                              for (size_t i = 0; i < got.size(); ++i) {
                                at::Tensor mine = got[i].clone();
                                at::Tensor all = wanted[i];
                                if (i < 2) all = rows_of(rank, all);
                                const bool parameter = affine && (i == 2 || i == 3);
                                if (parameter) group.all_reduce(mine, levin::ReduceOp::kSum);
                                if (!at::allclose(mine, all, 1e-5, 1e-5)) {
                                  return c10::str("number ", i, ": got ", mine, ", wanted ", all);
                                }
                              }
                              return std::string();
                            }),
                  Each(""))
          << affine << tracks;
    }
  }
}

/// By cuDNN's operators, which batch norms on GPUs run: output, gradients of input, weight and bias,
/// running statistics. They have no kernels here: what gives a result is what takes their place.
std::vector<at::Tensor> through_cudnn(const at::Tensor& batch, levin::comm::ProcessGroup& group) {
  const at::Tensor x = batch.clone().set_requires_grad(true);
  const at::Tensor weight = torch::tensor({1.5, -0.5, 2.0}).set_requires_grad(true);
  const at::Tensor bias = torch::tensor({0.1, 0.2, 0.3}).set_requires_grad(true);
  const at::Tensor mean = torch::zeros({3}), var = torch::ones({3});
  const levin::SyncBatchNormGuard guard(&group);
  const auto [y, saved_mean, saved_var, reserve] =
      at::cudnn_batch_norm(x, weight, bias, mean, var, /*training=*/true, 0.1, 1e-5);
  (y * y.detach().sin() * 3).sum().backward();
  return {y.detach(), x.grad(), weight.grad(), bias.grad(), mean, var};
}

TEST(SyncBatchNorm, OfCudnnIsThatOfTheOthers) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = levin::test::connect();
                          const at::Tensor rows = rows_of(rank, whole_batch());
                          const auto wanted = through_batch_norm(rows, &group, true, true);
                          const auto got = through_cudnn(rows, group);
                          for (size_t i = 0; i < wanted.size(); ++i) {
                            if (!at::equal(got[i], wanted[i])) return c10::str("number ", i);
                          }
                          return std::string(wanted.size() == got.size() ? "" : "another number");
                        }),
              Each(""));
}

// Sums in float16 would be no numbers from 65504 on.
TEST(SyncBatchNorm, OfHalfTypesSumsInFloat32) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t rank, const auto&) {
                          auto group = levin::test::connect();
                          const at::Tensor rows = rows_of(rank, whole_batch()).to(at::kHalf);
                          torch::nn::BatchNorm2d norm(3);
                          const at::Tensor x = rows.clone().set_requires_grad(true);
                          const levin::SyncBatchNormGuard guard(&group);
                          const at::Tensor y = norm->forward(x);
                          y.backward(at::full_like(y, 30000));
                          const at::Tensor wanted = torch::full({3}, 30000.0 * rows.numel() / 3);
                          if (!at::allclose(norm->bias.grad(), wanted))
                            return c10::str(norm->bias.grad());
                          if (x.grad().scalar_type() != at::kHalf) return std::string("x.grad()");
                          return std::string(x.grad().isfinite().all().item<bool>() ? "" : "inf");
                        }),
              Each(""));
}

TEST(SyncBatchNorm, EvaluationUsesTheRunningStatisticsAlone) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const auto&) {
                          auto group = levin::test::connect();
                          torch::nn::BatchNorm2d norm(3);
                          norm->eval();
                          const at::Tensor x = rows_of(rank, whole_batch());
                          const at::Tensor wanted = norm->forward(x);
                          if (rank == 1) return std::string();  // so it may not ask for rank 1
                          const levin::SyncBatchNormGuard guard(&group);
                          const bool same = at::equal(norm->forward(x), wanted);
                          return std::string(same ? "" : "differs");
                        }),
              Each(""));
}

TEST(SyncBatchNorm, WithoutAGroupNothingChanges) {
  const auto wanted = through_batch_norm(whole_batch(), nullptr, true, true);
  const at::Tensor x = whole_batch();
  torch::nn::BatchNorm2d norm(3);
  EXPECT_TRUE(at::equal(norm->forward(x), [&] {
    const levin::SyncBatchNormGuard guard(nullptr);
    return torch::nn::BatchNorm2d(3)->forward(x);
  }()));
}

TEST(SyncBatchNorm, AnotherDeviceIsAnErrorThatNamesIt) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          auto group = levin::test::connect();
                          const levin::SyncBatchNormGuard guard(&group);
                          const at::Tensor x = torch::empty({2, 3, 4, 4}, at::kMeta);
                          at::native_batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5);
                          return std::string();
                        }),
              Each(StartsWith("strategy.sync_batchnorm: got a batch norm over a tensor on meta")));
}

}  // namespace
