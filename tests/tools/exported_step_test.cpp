// What `levin plan`, `levin graph` and `levin xla check` make of a Trainer's program whose network was exported by Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "levin/data/sources/sources.h"
#include "levin/interchange/load_exported.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "levin/xla/stablehlo/program.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/scratch.h"
#include "tests/tools/libtpu.h"
#include "tools/graph/plan_report.h"
#include "tools/graph/program_graph.h"
#include "tools/xla/xla_check.h"

namespace levin::test::exported_step {
namespace {

using levin::tools::program_graph;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kFile = "LEVIN_EXPORTED_STEP";

json named(const std::string& name) { return tensor_named(name); }

/// conv, batch norm with its count, relu, flatten, dropout, linear; the rows are dynamic.
SmallProgram network() {
  SmallProgram made;
  for (const char* module : {"conv", "bn", "drop", "head"}) made.module(module);
  made.parameter("conv.weight", at::randn({4, 1, 3, 3}) * 0.1);
  made.parameter("bn.weight", at::ones({4}));
  made.parameter("bn.bias", at::zeros({4}));
  made.parameter("head.weight", at::randn({2, 144}) * 0.1);
  made.parameter("head.bias", at::zeros({2}));
  made.buffer("bn.running_mean", at::zeros({4}));
  made.buffer("bn.running_var", at::ones({4}));
  made.tensor("buffer", "bn.num_batches_tracked", at::zeros({}, at::kLong));
  made.graph["tensor_values"]["b_bn.num_batches_tracked"]["dtype"] = 5;
  made.weights_config["bn.num_batches_tracked"]["tensor_meta"]["dtype"] = 5;
  made.input("x", meta_of({-1, 1, 8, 8}));
  made.node("torch.ops.aten.conv2d.default",
            {{"input", named("x")}, {"weight", named("p_conv.weight")}}, "a", "conv");
  made.node("torch.ops.aten.add_.Tensor",
            {{"self", named("b_bn.num_batches_tracked")}, {"other", {{"as_int", 1}}}}, "count",
            "bn");
  made.node("torch.ops.aten.batch_norm.default",
            {{"input", named("a")},
             {"weight", named("p_bn.weight")},
             {"bias", named("p_bn.bias")},
             {"running_mean", named("b_bn.running_mean")},
             {"running_var", named("b_bn.running_var")},
             {"training", {{"as_bool", true}}},
             {"momentum", {{"as_float", 0.1}}},
             {"eps", {{"as_float", 1e-5}}},
             {"cudnn_enabled", {{"as_bool", false}}}},
            "b", "bn");
  made.node("torch.ops.aten.relu_.default", {{"self", named("b")}}, "c");
  made.node("torch.ops.aten.flatten.using_ints",
            {{"self", named("c")}, {"start_dim", {{"as_int", 1}}}}, "d");
  made.node("torch.ops.aten.dropout.default",
            {{"input", named("d")}, {"p", {{"as_float", 0.1}}}, {"train", {{"as_bool", true}}}},
            "e", "drop");
  made.node(
      "torch.ops.aten.linear.default",
      {{"input", named("e")}, {"weight", named("p_head.weight")}, {"bias", named("p_head.bias")}},
      "y", "head");
  made.output("y");
  return made;
}

struct Net : Module {
  std::shared_ptr<ExportedModule> net = register_module("net", load_exported(std::getenv(kFile)));
  at::Tensor training_step(const Batch& batch) override {
    return torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["label"]);
  }
  OptimizerConfig configure_optimizers() override { return optim::adamw({.lr = 1e-3}); }
};

/// The program, which the tests below start.
TEST(ExportedStep, DISABLED_Program) {
  Trainer trainer({.accelerator = "cpu", .max_epochs = 100});
  trainer.fit(std::make_shared<Net>(), DataLoader(data::tensors({{"x", torch::rand({64, 1, 8, 8})},
                                                                 {"label", torch::arange(64) % 2}}),
                                                  {.batch_size = 4}));
  std::_Exit(9);  // it trained
}

/// The command that runs it in a folder.
std::vector<std::string> program(const Scratch& scratch) {
  network().write(scratch / "net.pt2");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return {"sh", "-c",
          "cd '" + scratch.str() + "' && " + kFile + "=net.pt2 exec '" + self +
              "' --gtest_also_run_disabled_tests --gtest_filter=ExportedStep.DISABLED_Program"};
}

TEST(ExportedStep, IsPlannedWithPythonsNamesOfItsModules) {
  const Scratch scratch;
  const auto step = program_graph(program(scratch));
  const auto plan = tools::plan_of(step.graph(), *graph::find_device("cpu"), /*num_largest=*/12);
  const int64_t num_parameters = 36 + 4 + 4 + 288 + 2;
  EXPECT_EQ(plan.num_parameters, num_parameters);
  EXPECT_THAT(to_text(plan), StartsWith("a step of 334 parameters, on cpu"));
  // The convolution: 4 images, 36 places, 4 channels of 9 numbers.
  EXPECT_GT(plan.phases[0].flops, 2.0 * 4 * 36 * 4 * 9);
  EXPECT_GT(plan.phases[2].flops, 0.0);
  std::vector<std::string> modules;
  for (const auto& each : plan.largest) modules.push_back(each.module);
  EXPECT_THAT(modules, AllOf(Contains("net.conv"), Contains("net.bn"), Contains("net.head")));
}

// Each operator of it has a lowering, with the optimizer's.
TEST(ExportedStep, IsAProgramOfXla) {
  const Scratch scratch;
  const auto step = program_graph(program(scratch), /*for_xla=*/true);
  const auto graph = tools::replica_of(step.graph(), 8);
  const auto lowered = xla::lower(graph, {});
  EXPECT_THAT(lowered.text, HasSubstr("stablehlo.convolution"));
  EXPECT_THAT(lowered.text, HasSubstr("stablehlo.all_reduce"));
}

class ExportedStepOnTpu : public WithLibtpu {};

TEST_F(ExportedStepOnTpu, FitsAndExchangesItsGradients) {
  const Scratch scratch;
  const auto step = program_graph(program(scratch), /*for_xla=*/true);
  const auto checked = tools::check_step(step.graph(), topology("v5e:2x4"));
  EXPECT_TRUE(checked.fits()) << checked.refusal;
  EXPECT_EQ(checked.num_cores, 8);
  ASSERT_FALSE(checked.collectives.empty());
  EXPECT_EQ(checked.collectives[0].kind, "all-reduce");
  EXPECT_GE(checked.collectives[0].bytes, 334 * 4);
}

}  // namespace
}  // namespace levin::test::exported_step
