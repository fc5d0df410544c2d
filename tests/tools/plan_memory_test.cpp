// What `levin plan` says of memory beside what a step really takes.

#include <gtest/gtest.h>

#include "levin/models/gpt2.h"
#include "tests/graph/allocation_meter.h"
#include "tests/support/scratch.h"
#include "tests/tools/step.h"
#include "tools/graph/plan_report.h"
#include "tools/graph/program_graph.h"

namespace {

using levin::NamedTensor;
using levin::graph::MemoryUse;
using levin::test::TrainingStep;
using levin::tools::Plan;

int64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += static_cast<int64_t>(named.tensor.nbytes());
  return bytes;
}

/// From the file that a program writes, which holds no tensors.
Plan plan_from_file(const levin::graph::GraphModule& step) {
  const levin::test::Scratch scratch;
  step.save(scratch / "step.safetensors", {.state = false});
  const auto loaded = levin::tools::program_graph({(scratch / "step.safetensors").string()});
  return levin::tools::plan_of(loaded.graph(), *levin::graph::find_device("cpu"), 10);
}

/// What stays is known to the byte; what comes and goes, to a tenth of what ATen allocates.
template <class Net>
void expect_measured(Net net, const at::Tensor& x, const at::Tensor& y) {
  TrainingStep<Net> step(net, levin::optim::adamw({.lr = 1e-3}), x, y);
  const Plan plan = plan_from_file(step.traced(x, y));
  const auto planned = [&](MemoryUse use) { return plan.memory[static_cast<size_t>(use)]; };
  EXPECT_EQ(planned(MemoryUse::kParameter), bytes_of(step.parameters));
  EXPECT_EQ(planned(MemoryUse::kInput), static_cast<int64_t>(x.nbytes() + y.nbytes()));
  EXPECT_EQ(planned(MemoryUse::kState), bytes_of(step.state()));

  step.optimizer->zero_grad();
  const auto measured = static_cast<double>(levin::test::peak_of([&] { step(x, y); }));
  const auto came = planned(MemoryUse::kGradient) + planned(MemoryUse::kValue);
  EXPECT_NEAR(static_cast<double>(came), measured, 0.1 * measured);
  const int64_t resident = bytes_of(step.parameters) + bytes_of(step.state()) +
                           static_cast<int64_t>(x.nbytes() + y.nbytes());
  const double whole = static_cast<double>(resident) + measured;
  EXPECT_NEAR(static_cast<double>(plan.peak_bytes), whole, 0.1 * whole);
}

TEST(PlannedMemory, IsWhatTheFirstExampleTakes) {
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 10));
  expect_measured(net, torch::randn({64, 1, 28, 28}), torch::randint(10, {64}));
}

TEST(PlannedMemory, IsWhatAGptTakes) {
  levin::models::GPT2 net(levin::models::GPT2Config{
      .vocab_size = 256, .n_positions = 64, .n_embd = 64, .n_layer = 3, .n_head = 4});
  expect_measured(net, torch::randint(256, {8, 64}), torch::randint(256, {8 * 64}));
}

}  // namespace
