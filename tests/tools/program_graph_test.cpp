#include "tools/graph/program_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/data/sources/sources.h"
#include "levin/graph/graph.h"
#include "levin/trainer/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/tools/step.h"
#include "tools/graph/plan_report.h"

namespace {

using levin::test::error_of;
using levin::test::mlp_step;
using levin::test::Scratch;
using levin::tools::program_graph;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of_program(const std::vector<std::string>& command) {
  return error_of([&] { program_graph(command); });
}

TEST(ProgramGraph, IsWhatTheProgramWritesWhereItIsTold) {
  const Scratch scratch;
  const auto step = mlp_step();
  step.save(scratch / "step.safetensors", {.state = false});
  const std::string copy = "cp '" + (scratch / "step.safetensors").string() + "' $LEVIN_GRAPH_TO";
  const std::string text = levin::graph::to_text(step.graph());
  EXPECT_EQ(levin::graph::to_text(program_graph({"sh", "-c", copy}).graph()), text);
  EXPECT_EQ(levin::graph::to_text(program_graph({scratch / "step.safetensors"}).graph()), text);
}

/// As the Accelerator writes one within a group: the old gradient is written, as any input may be.
TEST(ProgramGraph, KnowsGradientsThatTheStepAddsTo) {
  const Scratch scratch;
  const std::string file = (scratch / "step.safetensors").string();
  levin::graph::Graph graph = levin::test::step_with_old_gradient(/*adds=*/true);
  std::vector<levin::graph::Update> updates = graph.updates();
  updates[0].target = &graph.find_nodes(levin::graph::Opcode::kPlaceholder).at(1)->output();
  updates[0].is_gradient = false;
  graph.set_updates(updates);
  levin::graph::GraphModule(std::move(graph)).save(file, {.state = false});
  const auto loaded = program_graph({file});
  ASSERT_EQ(loaded.graph().updates().size(), 1U);
  EXPECT_TRUE(loaded.graph().updates()[0].is_gradient);
  EXPECT_EQ(loaded.graph().updates()[0].target->node().name(), "net.w");
}

TEST(ProgramGraph, LeavesNoFileBehind) {
  const Scratch scratch;
  mlp_step().save(scratch / "step.safetensors", {.state = false});
  const std::string note = (scratch / "where").string();
  program_graph({"sh", "-c",
                 "cp '" + (scratch / "step.safetensors").string() + "' $LEVIN_GRAPH_TO && printf " +
                     "%s $LEVIN_GRAPH_TO > '" + note + "'"});
  std::ifstream in(note);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(file, HasSubstr("levin_graph_"));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
}

struct Classifier : levin::Module {
  torch::nn::Linear net = register_module("net", torch::nn::Linear(6, 2));
  torch::Tensor training_step(const levin::Batch& batch, int64_t) override {
    return torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["label"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::adamw(); }
};

levin::DataLoader some_data() {
  return {levin::data::tensors({{"x", torch::ones({64, 6})}, {"label", torch::arange(64) % 2}}),
          {.batch_size = 4}};
}

/// Programs, which the test below starts.
TEST(GraphProgram, DISABLED_Trainer) {
  levin::Trainer trainer({.accelerator = "cpu", .max_epochs = 100});
  trainer.fit(std::make_shared<Classifier>(), some_data());
  std::_Exit(9);  // it trained
}

TEST(GraphProgram, DISABLED_Copies) {
  levin::TrainerOptions options{.accelerator = "cpu", .strategy = "fsdp", .max_epochs = 100};
  options.engine.fsdp.mesh = "replicate=2,fsdp=2";
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Classifier>(), some_data());
  std::_Exit(9);  // it trained
}

TEST(GraphProgram, DISABLED_OwnLoop) {
  levin::Accelerator accelerator({.cpu = true, .log_with = {"csv"}});
  accelerator.init_trackers("own");
  auto [model, optimizer, loader] =
      accelerator.prepare(torch::nn::Linear(6, 2), levin::optim::adamw(), some_data());
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const at::Tensor loss =
          torch::nn::functional::cross_entropy(model->forward(batch["x"]), batch["label"]);
      accelerator.backward(loss);
      optimizer.step();
      accelerator.log({{"loss", loss.item<double>()}}, epoch);
    }
  }
  std::_Exit(9);  // it trained
}

TEST(ProgramGraph, OfTrainersAndOwnLoopsEndsTheRunAndLeavesNoLogsBehind) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const std::string name : {"Trainer", "OwnLoop"}) {
    const Scratch scratch;
    const auto step =
        program_graph({"sh", "-c",
                       "cd '" + scratch.str() + "' && exec '" + self +
                           "' --gtest_also_run_disabled_tests --gtest_filter=*DISABLED_" + name});
    EXPECT_FALSE(step.graph().find_nodes("aten::addmm").empty()) << name;
    EXPECT_THAT(levin::tools::to_text(levin::tools::plan_of(
                    step.graph(), *levin::graph::find_device("cpu"), /*num_largest=*/3)),
                StartsWith("a step of 14 parameters, on cpu"))
        << name;
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path())) << name;
  }
}

// One process is enough, whatever mesh the program is to run on.
TEST(ProgramGraph, OfAMeshIsThatOfOneProcess) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto step =
      program_graph({self, "--gtest_also_run_disabled_tests", "--gtest_filter=*DISABLED_Copies"});
  EXPECT_FALSE(step.graph().find_nodes("aten::addmm").empty());
}

TEST(ProgramGraph, SaysWhatWentWrong) {
  EXPECT_THAT(error_of_program({}), StartsWith("tools.program: got no program"));
  EXPECT_THAT(error_of_program({"/no/such/program"}),
              StartsWith("tools.program: cannot start '/no/such/program': No such file"));
  EXPECT_THAT(error_of_program({"sh", "-c", "exit 7"}), HasSubstr("'sh' ended with code 7"));
  EXPECT_THAT(error_of_program({"sh", "-c", "kill -9 $$"}), HasSubstr("killed by signal 9"));
  EXPECT_THAT(error_of_program({"true"}), HasSubstr("'true' ended and wrote no graph"));
}

}  // namespace
