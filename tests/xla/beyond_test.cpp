// Indices and labels that name nothing, which the CPU refuses: an error where they come from the
// host with the operator, else NaN, so that a loss says it.
#include <gmock/gmock.h>

#include "levin/base/error.h"
#include "tests/xla/on_both_devices.h"

namespace {

using at::Tensor;
using levin::test::OperatorTensors;
using levin::test::xla_runtime;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
namespace F = torch::nn::functional;

Tensor there(const Tensor& tensor) { return tensor.to(xla_runtime().device()); }
Tensor places(at::ArrayRef<int64_t> values) { return torch::tensor(values, at::kLong); }

/// What stands before and after the place that is none is as ever.
TEST(BeyondOnXla, ReadsNaN) {
  const Tensor table = torch::arange(12, at::kFloat).view({4, 3});
  const Tensor named = places({1, 4, 3});
  const Tensor below = places({1, -1, 3});
  const Tensor offsets = places({0, 1, 2});
  const Tensor rows = there(table);
  std::vector<std::pair<std::string, Tensor>> came;
  came.emplace_back("embedding", at::embedding(rows, there(named)));
  came.emplace_back("embedding of -1", at::embedding(rows, there(below)));
  came.emplace_back("index_select", rows.index_select(0, there(named)));
  came.emplace_back("index", rows.index({there(named)}));
  came.emplace_back("embedding_bag",
                    std::get<0>(at::embedding_bag(rows, there(named), there(offsets))));
  const Tensor wanted = table.index({places({1, 1, 3})});
  wanted[1].fill_(std::numeric_limits<float>::quiet_NaN());
  for (const auto& [name, tensor] : came) {
    EXPECT_TRUE(tensor.cpu().allclose(wanted, 0, 0, /*equal_nan=*/true)) << name << tensor.cpu();
  }
  const Tensor taken = rows.t().gather(1, there(named.view({1, 3}).expand({3, 3}))).t().cpu();
  EXPECT_TRUE(taken.allclose(wanted, 0, 0, /*equal_nan=*/true)) << "gather" << taken;
  const Tensor whole = there(table.to(at::kLong)).index_select(0, there(named)).cpu();
  EXPECT_TRUE(whole.equal(table.to(at::kLong).index({places({1, 3, 3})}))) << whole;
}

TEST(BeyondOnXla, ALabelThatIsNoClassMakesLossAndGradientNaN) {
  for (const int64_t label : {4, -1, 1000}) {
    for (const bool has_shares : {false, true}) {
      const Tensor scores = there(torch::randn({3, 4})).requires_grad_();
      const auto options = F::CrossEntropyFuncOptions().label_smoothing(has_shares ? 0.1 : 0.0);
      const Tensor loss = F::cross_entropy(scores, there(places({1, label, 2})), options);
      loss.backward();
      EXPECT_TRUE(std::isnan(loss.item<float>())) << label;
      EXPECT_TRUE(scores.grad().cpu()[1].isnan().all().item<bool>()) << label;
    }
    const Tensor scores = there(torch::randn({3, 4}));
    const Tensor labels = there(places({1, label, 2}));
    EXPECT_TRUE(std::isnan(F::multi_margin_loss(scores, labels).item<float>())) << label;
    const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
    EXPECT_TRUE(std::isnan(F::cross_entropy(scores, labels, sum).item<float>())) << label;
  }
  const Tensor sets = there(torch::tensor({{2, 4, -1, 0}}, at::kLong));
  EXPECT_TRUE(
      std::isnan(F::multilabel_margin_loss(there(torch::randn({1, 4})), sets).item<float>()));
}

TEST(BeyondOnXla, WhatIsIgnoredIsNoError) {
  const Tensor scores = torch::randn({3, 4});
  const Tensor labels = places({1, -100, 2});
  EXPECT_FLOAT_EQ(F::cross_entropy(there(scores), there(labels)).item<float>(),
                  F::cross_entropy(scores, labels).item<float>());
  EXPECT_FLOAT_EQ(F::cross_entropy(there(scores), labels).item<float>(),
                  F::cross_entropy(scores, labels).item<float>());
}

/// Indices that are on the host when the operator is called.
TEST(BeyondOnXla, OfTheHostIsAnError) {
  const Tensor table = there(torch::randn({4, 3}));
  const auto refusal = [](const char* name) {
    return ThrowsMessage<levin::Error>(
        AllOf(HasSubstr("xla.index"), HasSubstr(name), HasSubstr("wanted 0 to")));
  };
  EXPECT_THAT([&] { at::embedding(table, places({0, 4})); }, refusal("embedding"));
  EXPECT_THAT([&] { at::embedding(table, places({-1})); }, refusal("embedding"));
  EXPECT_THAT([&] { table.index_select(1, places({3})); }, refusal("index_select"));
  EXPECT_THAT([&] { table.gather(1, torch::full({4, 1}, 3, at::kLong)); }, refusal("gather"));
  EXPECT_THAT([&] { F::nll_loss(table, places({0, 1, 3, 0})); }, refusal("nll_loss"));
  EXPECT_TRUE(
      at::embedding(table, places({3, 0})).cpu().equal(table.cpu().index({places({3, 0})})));
}

}  // namespace
