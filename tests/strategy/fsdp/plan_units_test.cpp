// Which parameters make up a unit.
#include "levin/strategy/fsdp/plan_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/module/wrap.h"
#include "tests/support/error_of.h"

namespace {

using levin::fsdp::Plan;
using levin::fsdp::plan_units;
using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kLarge = int64_t{1} << 30;

std::vector<std::string> texts(const Plan& plan) {
  std::vector<std::string> all;
  for (const auto& unit : plan.units) {
    std::string text = unit.name + (unit.is_rest ? " (rest):" : ":");
    for (const auto& parameter : unit.parameters) text += " " + parameter.name;
    all.push_back(text);
  }
  return all;
}

torch::nn::Sequential three_layers() {
  return torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 4),
                               torch::nn::Linear(4, 2));
}

TEST(PlanUnits, CutsWhatIsNotMarkedBySize) {
  const auto net = three_layers();
  EXPECT_THAT(texts(plan_units(*net, kLarge)),
              ElementsAre("0: 0.weight 0.bias 2.weight 2.bias 3.weight 3.bias"));
  EXPECT_THAT(texts(plan_units(*net, 100)),
              ElementsAre("0: 0.weight 0.bias", "2: 2.weight 2.bias", "3: 3.weight 3.bias"));
}

TEST(PlanUnits, TakesMarkedModulesAndTheRest) {
  const auto net = three_layers();
  levin::wrap(net->ptr(2));
  EXPECT_THAT(texts(plan_units(*net, kLarge)),
              ElementsAre("0 (rest): 0.weight 0.bias 3.weight 3.bias", "2: 2.weight 2.bias"));
}

TEST(PlanUnits, LeavesOutOfAUnitWhatIsInAUnitWithinIt) {
  torch::nn::ModuleList inner(torch::nn::Linear(3, 3), levin::wrap(torch::nn::Linear(3, 3)));
  torch::nn::ModuleList net(levin::wrap(inner), torch::nn::Linear(3, 1));
  EXPECT_THAT(texts(plan_units(*net, kLarge)),
              ElementsAre("0: 0.0.weight 0.0.bias", "0.1: 0.1.weight 0.1.bias",
                          "1 (rest): 1.weight 1.bias"));
}

TEST(PlanUnits, HasATiedParameterOnceWhateverModulesHoldIt) {
  const auto net = three_layers();
  torch::nn::ModuleList tied(levin::wrap(net->ptr(0)), net->ptr(1), net->ptr(0));
  EXPECT_THAT(texts(plan_units(*tied, kLarge)), ElementsAre("0: 0.weight 0.bias"));
}

TEST(PlanUnits, HasAUnitForEachType) {
  const auto net = three_layers();
  net->ptr(2)->to(at::kBFloat16);
  EXPECT_THAT(texts(plan_units(*net, kLarge)),
              ElementsAre("0: 0.weight 0.bias 3.weight 3.bias", "2: 2.weight 2.bias"));
}

TEST(PlanUnits, LeavesWhatHasNoRowsWhole) {
  struct Net : torch::nn::Module {
    Net() {
      register_parameter("scale", torch::ones({}));
      register_parameter("none", torch::ones({0, 4}));
      register_parameter("weight", torch::ones({2, 4}));
    }
  };
  const Plan plan = plan_units(*std::make_shared<Net>(), kLarge);
  EXPECT_THAT(texts(plan), ElementsAre("the module: weight"));
  ASSERT_EQ(plan.replicated.size(), 2U);
  EXPECT_EQ(plan.replicated[0].name, "scale");
  EXPECT_EQ(plan.replicated[1].name, "none");
}

TEST(PlanUnits, HasTheOptionsOfMarkedModules) {
  auto net = three_layers();
  levin::wrap(net->ptr(2), {.reshard_after_forward = false, .reduce_dtype = at::kBFloat16});
  levin::wrap_every<torch::nn::LinearImpl>(*net, {.reshard_after_forward = 4});
  levin::wrap(net->ptr(3), {.reduce_dtype = at::kDouble});
  std::vector<std::string> options;
  for (const auto& unit : plan_units(*net, kLarge).units) {
    const levin::WrapOptions& own = unit.options;
    options.push_back(levin::to_text(own.reshard_after_forward) + " " +
                      (own.reduce_dtype ? c10::toString(*own.reduce_dtype) : "none"));
  }
  EXPECT_THAT(options, ElementsAre("4 none", "4 none", " Double"));
  levin::wrap(net.ptr(), {.reshard_after_forward = true});
  net->push_back(torch::nn::Linear(2, 2));
  EXPECT_EQ(levin::to_text(plan_units(*net, kLarge).units.back().options.reshard_after_forward),
            "true");
}

TEST(PlanUnits, RefusesComplexParametersInAUnitWithAReduceDtype) {
  struct Net : torch::nn::Module {
    Net() { register_parameter("phase", torch::ones({4}, at::kComplexFloat)); }
  };
  const auto net = levin::wrap(std::make_shared<Net>(), {.reduce_dtype = at::kFloat});
  EXPECT_THAT(error_of([&] { plan_units(*net, kLarge); }), HasSubstr("strategy.fsdp.parameter"));
}

TEST(PlanUnits, RefusesSparseParameters) {
  struct Net : torch::nn::Module {
    Net() { register_parameter("table", torch::eye(3).to_sparse()); }
  };
  EXPECT_THAT(error_of([] { plan_units(*std::make_shared<Net>(), kLarge); }),
              HasSubstr("strategy.fsdp.parameter: parameter table"));
}

TEST(Wrap, MarksByTypeBySizeAndAll) {
  const auto marked = [](const torch::nn::Module& net) {
    std::vector<std::string> names;
    for (const auto& item : net.named_modules()) {
      if (levin::is_unit(*item.value())) names.push_back(item.key());
    }
    return names;
  };
  auto net = three_layers();
  EXPECT_THAT(marked(*net), IsEmpty());
  levin::wrap_every<torch::nn::LinearImpl>(*net);
  EXPECT_THAT(marked(*net), ElementsAre("0", "2", "3"));
  net = three_layers();
  levin::wrap_by_size(*net, 20);  // a layer of 4 x 4 has 20 parameters, the last one 10
  EXPECT_THAT(marked(*net), ElementsAre("0", "2"));
  net = three_layers();
  levin::wrap_all(*net);
  EXPECT_THAT(marked(*net), ElementsAre("0", "2", "3"));
  EXPECT_THAT(error_of([&] { levin::wrap_by_size(*net, 0); }), HasSubstr("module.wrap"));
}

TEST(Wrap, ReturnsWhatItWasGivenAndForgetsModulesThatAreGone) {
  torch::nn::Linear layer(2, 2);
  const auto* address = layer.get();
  EXPECT_EQ(levin::wrap(layer).get(), address);
  EXPECT_TRUE(levin::is_unit(*layer));
  const auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(layer->clone());
  EXPECT_FALSE(levin::is_unit(*copy));
}

TEST(Wrap, RefusesAReduceDtypeThatIsNoFloatingPointType) {
  torch::nn::Linear layer(2, 2);
  EXPECT_THAT(error_of([&] { levin::wrap(layer, {.reduce_dtype = at::kLong}); }),
              ::testing::AllOf(HasSubstr("module.wrap"), HasSubstr("Long")));
  EXPECT_FALSE(levin::is_unit(*layer));
}

}  // namespace
