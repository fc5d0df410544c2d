#include "levin/accelerator/precision.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/error_of.h"

namespace {

using levin::AutocastGuard;
using levin::parse_precision;
using levin::test::error_of;

at::ScalarType dtype_of_a_product() {
  return torch::matmul(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Precision, NamesOfFloat32MeanNoAutocast) {
  for (const char* name : {"32-true", "32", "no"}) {
    EXPECT_EQ(parse_precision(name).name, "32-true");
    EXPECT_EQ(parse_precision(name).autocast, std::nullopt);
  }
}

TEST(Precision, NamesOfBfloat16MeanAutocastToIt) {
  for (const char* name : {"bf16-mixed", "bf16"}) {
    EXPECT_EQ(parse_precision(name).name, "bf16-mixed");
    EXPECT_EQ(parse_precision(name).autocast, at::kBFloat16);
  }
}

TEST(Precision, AnUnknownNameIsAnErrorThatListsThoseThereAre) {
  for (const std::string name : {"fp16", "", "BF16", "64-true"}) {
    EXPECT_EQ(error_of([&] { parse_precision(name); }),
              "accelerator.precision: got '" + name +
                  "', wanted 32-true (also 32, no) or bf16-mixed (also bf16)");
  }
}

TEST(AutocastGuard, LastsAsLongAsTheObject) {
  {
    const AutocastGuard guard(parse_precision("bf16"), at::kCPU);
    EXPECT_EQ(dtype_of_a_product(), at::kBFloat16);
  }
  EXPECT_EQ(dtype_of_a_product(), at::kFloat);
}

TEST(AutocastGuard, OfFloat32ChangesNothing) {
  const AutocastGuard outer(parse_precision("bf16"), at::kCPU);
  const AutocastGuard guard(parse_precision("no"), at::kCPU);
  EXPECT_EQ(dtype_of_a_product(), at::kBFloat16);
}

TEST(AutocastGuard, AnInnerOneEndsWithoutEndingTheOuter) {
  const AutocastGuard outer(parse_precision("bf16"), at::kCPU);
  {
    const AutocastGuard inner(parse_precision("bf16"), at::kCPU);
  }
  EXPECT_EQ(dtype_of_a_product(), at::kBFloat16);
}

TEST(AutocastGuard, GivesBackTheDtypeFromBefore) {
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  {
    const AutocastGuard guard(parse_precision("bf16"), at::kCPU);
  }
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  at::autocast::set_autocast_dtype(at::kCPU, before);
}

TEST(AutocastGuard, AWeightThatChangedSinceTheLastOneIsSeenByTheNext) {
  const at::Tensor weight = torch::ones({2, 2}).requires_grad_();
  const at::Tensor x = torch::ones({2, 2});
  const auto product = [&] {
    const AutocastGuard guard(parse_precision("bf16"), at::kCPU);
    return torch::matmul(x, weight).sum().item<double>();
  };
  EXPECT_EQ(product(), 8.0);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(2.0);
  }
  EXPECT_EQ(product(), 16.0);
}

}  // namespace
