#include "levin/accelerator/stepping/precision.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>

#include "levin/accelerator/engine/device.h"
#include "tests/support/error_of.h"

namespace {

using levin::check_precision;
using levin::parse_precision;
using levin::PrecisionScope;
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(Precision, NamesOfFloat16MeanAutocastToItAndALossScale) {
  for (const char* name : {"16-mixed", "16", "fp16"}) {
    EXPECT_EQ(parse_precision(name).name, "16-mixed");
    EXPECT_EQ(parse_precision(name).autocast, at::kHalf);
    EXPECT_TRUE(parse_precision(name).scales_loss);
  }
}

TEST(Precision, TrueOnesConvertParametersAndInputs) {
  const std::map<std::string, at::ScalarType> types = {
      {"64-true", at::kDouble}, {"bf16-true", at::kBFloat16}, {"16-true", at::kHalf}};
  for (const auto& [name, type] : types) {
    const levin::Precision precision = parse_precision(name);
    EXPECT_EQ(precision.autocast, std::nullopt);
    torch::nn::BatchNorm1d norm(3);
    const c10::TensorImpl* weight = norm->weight.unsafeGetTensorImpl();
    precision.convert(*norm);
    EXPECT_EQ(norm->weight.scalar_type(), type);
    EXPECT_EQ(norm->running_mean.scalar_type(), type);
    EXPECT_EQ(norm->num_batches_tracked.scalar_type(), at::kLong);
    EXPECT_EQ(norm->weight.unsafeGetTensorImpl(), weight);  // an optimizer still knows it
    const levin::Batch batch =
        precision.convert({{"x", torch::ones({2})}, {"label", torch::ones({2}, at::kLong)}});
    EXPECT_EQ(batch["x"].scalar_type(), type);
    EXPECT_EQ(batch["label"].scalar_type(), at::kLong);
  }
}

TEST(Precision, AnUnknownNameIsAnErrorThatListsThoseThereAre) {
  EXPECT_THAT(error_of([&] { parse_precision("bf16-mix"); }),
              AllOf(StartsWith("accelerator.precision: got 'bf16-mix', wanted one of 32-true,"),
                    HasSubstr("did you mean 'bf16-mixed'?")));
  EXPECT_THAT(error_of([&] { parse_precision("float"); }), HasSubstr("set --precision"));
}

TEST(Precision, Bfloat16OnAGpuWithoutItIsAnError) {
  const at::Device gpu(at::kCUDA, 0);
  for (const char* name : {"bf16-mixed", "bf16-true"}) {
    EXPECT_EQ(error_of([&] { check_precision(parse_precision(name), gpu, std::pair(7, 5)); }),
              "accelerator.precision.device: " + std::string(name) +
                  " needs a GPU of compute capability 8.0, but cuda:0 has 7.5; set --precision "
                  "16-mixed or 32-true");
    EXPECT_EQ(error_of([&] { check_precision(parse_precision(name), gpu, std::pair(9, 0)); }),
              "no error");
  }
  EXPECT_EQ(error_of([&] { check_precision(parse_precision("16-mixed"), gpu, std::pair(7, 5)); }),
            "no error");
  EXPECT_EQ(levin::compute_capability(at::kCPU), std::nullopt);
}

TEST(PrecisionScope, LastsAsLongAsTheObject) {
  {
    const PrecisionScope guard(parse_precision("bf16"), at::kCPU);
    EXPECT_EQ(dtype_of_a_product(), at::kBFloat16);
  }
  EXPECT_EQ(dtype_of_a_product(), at::kFloat);
}

TEST(PrecisionScope, OfFloat32ChangesNothing) {
  const PrecisionScope outer(parse_precision("bf16"), at::kCPU);
  const PrecisionScope guard(parse_precision("no"), at::kCPU);
  EXPECT_EQ(dtype_of_a_product(), at::kBFloat16);
}

TEST(PrecisionScope, AnInnerOneEndsWithoutEndingTheOuter) {
  const PrecisionScope outer(parse_precision("bf16"), at::kCPU);
  {
    const PrecisionScope inner(parse_precision("bf16"), at::kCPU);
  }
  EXPECT_EQ(dtype_of_a_product(), at::kBFloat16);
}

TEST(PrecisionScope, GivesBackTheDtypeFromBefore) {
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  {
    const PrecisionScope guard(parse_precision("bf16"), at::kCPU);
  }
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
  at::autocast::set_autocast_dtype(at::kCPU, before);
}

TEST(PrecisionScope, AWeightThatChangedSinceTheLastOneIsSeenByTheNext) {
  const at::Tensor weight = torch::ones({2, 2}).requires_grad_();
  const at::Tensor x = torch::ones({2, 2});
  const auto product = [&] {
    const PrecisionScope guard(parse_precision("bf16"), at::kCPU);
    return torch::matmul(x, weight).sum().item<double>();
  };
  EXPECT_EQ(product(), 8.0);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(2.0);
  }
  EXPECT_EQ(product(), 16.0);
}

// A cast of a parameter that was made without a graph must not serve a forward pass with one.
TEST(PrecisionScope, AForwardPassWithoutGradientsLeavesTheNextOneItsGradients) {
  const at::Tensor weight = torch::ones({2, 2}).requires_grad_();
  const PrecisionScope guard(parse_precision("bf16"), at::kCPU);
  {
    const torch::NoGradGuard no_grad;
    torch::matmul(torch::ones({2, 2}), weight);
  }
  const at::Tensor product = torch::matmul(torch::ones({2, 2}), weight);
  EXPECT_TRUE(product.requires_grad());
}

}  // namespace
