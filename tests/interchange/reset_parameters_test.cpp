// Fresh values for parts of an exported module.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::reset_parameters {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kWide = 400;

/// body and head, Linears; between them scale of somebody's own class.
SmallProgram network(const std::string& head = "torch.nn.modules.linear.Linear") {
  SmallProgram program;
  program.classes = {
      {"body", "torch.nn.modules.linear.Linear"}, {"head", head}, {"scale", "net.Scale"}};
  for (const std::string name : {"body", "head"}) {
    program.module(name);
    program.parameter(name + ".weight", at::full({kWide, kWide}, 7.0));
    program.parameter(name + ".bias", at::full({kWide}, 7.0));
  }
  program.module("scale");
  program.parameter("scale.factor", at::full({kWide}, 7.0));
  program.input("x", meta_of({-1, kWide}));
  const auto linear = [&](const std::string& name, const std::string& x, const std::string& y) {
    program.node("torch.ops.aten.linear.default",
                 {{"input", tensor_named(x)},
                  {"weight", tensor_named("p_" + name + ".weight")},
                  {"bias", tensor_named("p_" + name + ".bias")}},
                 y, name);
  };
  linear("body", "x", "h");
  program.node("torch.ops.aten.mul.Tensor",
               {{"self", tensor_named("h")}, {"other", tensor_named("p_scale.factor")}}, "s",
               "scale");
  linear("head", "s", "y");
  program.output("y");
  return program;
}

std::shared_ptr<ExportedModule> loaded(const SmallProgram& program) {
  const Scratch scratch;
  program.write(scratch / "net.pt2");
  return load_exported(scratch / "net.pt2");
}

TEST(ResetParameters, DrawsThoseWhoseNamesMatchAndNoOthers) {
  const auto net = loaded(network());
  levin::reset_parameters(*net, "head.*");
  for (const NamedTensor& each : named_parameters(*net)) {
    const bool is_as_before = each.tensor.eq(7).all().item<bool>();
    EXPECT_EQ(is_as_before, !each.name.starts_with("head.")) << each.name;
    EXPECT_TRUE(each.tensor.requires_grad() && each.tensor.is_leaf()) << each.name;
  }
}

// U(-1/sqrt(in), 1/sqrt(in)) for both: the variance of that, and no value beyond it.
TEST(ResetParameters, DrawsALinearAsPythonDoes) {
  const auto net = loaded(network());
  levin::reset_parameters(*net, "head.*");
  const double bound = 1 / std::sqrt(static_cast<double>(kWide));
  for (const char* name : {"head.weight", "head.bias"}) {
    const at::Tensor values = net->named_parameters()[name].detach();
    EXPECT_LE(values.abs().max().item<double>(), bound) << name;
    EXPECT_GT(values.abs().max().item<double>(), 0.98 * bound) << name;
    EXPECT_NEAR(values.var().item<double>(), bound * bound / 3, bound * bound / 20) << name;
  }
}

TEST(ResetParameters, OfOneSeedGivesOneSetOfValues) {
  const auto values = [](uint64_t seed) {
    const auto net = loaded(network());
    torch::manual_seed(seed);
    levin::reset_parameters(*net, "*.weight");
    return net->named_parameters()["head.weight"].detach();
  };
  EXPECT_TRUE(at::equal(values(3), values(3)));
  EXPECT_FALSE(at::equal(values(3), values(4)));
}

TEST(ResetParameters, OfAnotherClassIsAnErrorThatNamesItBeforeAnythingChanged) {
  const auto net = loaded(network());
  const std::string told = error_of([&] { levin::reset_parameters(*net); });
  EXPECT_THAT(told, AllOf(StartsWith("interchange.init: "), HasSubstr("scale.factor of net.Scale"),
                          Not(HasSubstr("head.weight"))));
  for (const at::Tensor& each : net->parameters()) EXPECT_TRUE(each.eq(7).all().item<bool>());
  EXPECT_THAT(error_of([&] { levin::reset_parameters(*net, "hed.weight"); }),
              AllOf(StartsWith("interchange.init: no parameter's name matches 'hed.weight'"),
                    HasSubstr("'head.weight'")));
  // A class of that name which is not torch.nn's.
  EXPECT_THAT(error_of([&] { levin::reset_parameters(*loaded(network("net.Linear")), "head.*"); }),
              HasSubstr("head.weight of net.Linear"));
}

// The weights' file is mapped, and stays as it is.
TEST(ResetParameters, LeavesTheFilesOfWeightsAsTheyAre) {
  const Scratch scratch;
  network().write(scratch / "net.pt2");
  save_weights(scratch / "net.safetensors", module_state(*load_exported(scratch / "net.pt2")));
  const auto net = load_exported(scratch / "net.pt2", {.weights = scratch / "net.safetensors"});
  levin::reset_parameters(*net, "head.*");
  const State after = load_weights(scratch / "net.safetensors");
  for (const auto& [name, value] : after.values()) {
    EXPECT_TRUE(after.tensor(name).eq(7).all().item<bool>()) << name;
  }
}

}  // namespace
}  // namespace levin::test::reset_parameters
