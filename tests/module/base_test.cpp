#include "levin/module/base.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "levin/module/parameters.h"
#include "tests/support/error_of.h"

namespace levin {
namespace {

std::shared_ptr<torch::nn::LinearImpl> marked(const std::string& digest) {
  auto linear = std::make_shared<torch::nn::LinearImpl>(3, 2);
  mark_base(linear, {.name = "folder", .digest = [digest] { return digest; }},
            {linear->weight, linear->bias});
  return linear;
}

TEST(Base, IsLeftOutWhereItIsFrozen) {
  const auto linear = marked("aa");
  EXPECT_EQ(trained_state(*linear).values().size(), 2U);
  EXPECT_TRUE(base_state(*linear).empty());
  linear->weight.set_requires_grad(false);
  EXPECT_FALSE(trained_state(*linear).contains("weight"));
  EXPECT_TRUE(trained_state(*linear).contains("bias"));
  EXPECT_EQ(module_state(*linear).values().size(), 2U);
  EXPECT_EQ(base_state(*linear).child("0").text("digest"), "aa");
}

// Thawed, trained and frozen again: the files do not have it.
TEST(Base, IsSavedWhereItWasWrittenTo) {
  const auto linear = marked("aa");
  {
    const torch::NoGradGuard no_grad;
    linear->weight.add_(1);
  }
  for (at::Tensor* each : {&linear->weight, &linear->bias}) each->set_requires_grad(false);
  const State state = trained_state(*linear);
  ASSERT_TRUE(state.contains("weight"));
  EXPECT_TRUE(at::equal(state.tensor("weight"), linear->weight));
  EXPECT_FALSE(state.contains("bias"));
  const auto other = marked("aa");
  for (at::Tensor* each : {&other->weight, &other->bias}) each->set_requires_grad(false);
  load_module_state(*other, state);
  EXPECT_TRUE(at::equal(other->weight, linear->weight));
}

TEST(Base, OfOtherContentsIsRefused) {
  const auto linear = marked("aa"), other = marked("bb");
  for (const auto& each : {linear, other}) each->weight.set_requires_grad(false);
  EXPECT_NO_THROW(check_bases(*linear, base_state(*linear)));
  EXPECT_EQ(test::error_id([&] { check_bases(*other, base_state(*linear)); }), "module.base");
}

}  // namespace
}  // namespace levin
