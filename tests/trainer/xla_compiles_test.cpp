// What a run on XLA says of a program that takes long to compile, and how a signal ends it meanwhile.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <regex>
#include <thread>

#include "tests/support/child_process.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/places.h"
#include "tests/support/variable.h"
#include "tests/trainer/on_xla.h"

namespace {

using namespace small_run;  // NOLINT
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kLayers = 24;

/// Of many parameters: two a layer.
struct Deep : levin::Module {
  std::vector<torch::nn::Linear> layers;
  levin::OptimizerConfig optimizer;
  explicit Deep(levin::OptimizerConfig optimizer) : optimizer(std::move(optimizer)) {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(6, 6)));
    }
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    at::Tensor x = batch["x"];
    for (auto& layer : layers) x = layer->forward(x);
    return x.square().mean();
  }
  levin::OptimizerConfig configure_optimizers() override { return optimizer; }
};

std::string said_in_a_step_of(const levin::OptimizerConfig& optimizer) {
  const Scratch root;
  const levin::test::Variable uncached("LEVIN_XLA_CACHE", "off");
  levin::TrainerOptions options = on_xla(root.str(), 1, 1);
  options.max_steps = 1;
  options.enable_checkpointing = false;
  ::testing::internal::CaptureStderr();
  levin::Trainer(options).fit(std::make_shared<Deep>(optimizer),
                              levin::DataLoader(dataset(8), {.batch_size = 8}));
  return ::testing::internal::GetCapturedStderr();
}

TEST(XlaCompiles, ALargeProgramIsToldOfBeforeWithItsOptimizersPart) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const std::string said = said_in_a_step_of(
      levin::optim::torch_optimizer<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-3)));
  const std::regex line(
      R"(xla: compiling (\d+) operators, (\d+) of them the optimizer's \(torch::optim runs several per parameter; levin::optim's )");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(said, found, line)) << said;
  const int64_t all = std::stoll(found[1]), of_optimizer = std::stoll(found[2]);
  // Of each parameter: two moments with two operators each, and what comes of them.
  EXPECT_GE(of_optimizer, 2 * kLayers * 6);
  EXPECT_LT(of_optimizer, all - 2 * kLayers);  // forward and backward have some too
  EXPECT_LT(said.find("xla: compiling"), said.find("xla: compiled " + found[1].str()));
}

TEST(XlaCompiles, ASmallOneIsToldOfAfterwards) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const std::string said = said_in_a_step_of(levin::optim::adamw({.lr = 1e-3}));
  EXPECT_THAT(said, HasSubstr("xla: compiled "));
  EXPECT_THAT(said, Not(HasSubstr("xla: compiling")));
}

TEST(XlaCompiles, DISABLED_ForEver) {
  const std::string sign = std::getenv("LEVIN_FAKE_PJRT_SIGN");
  levin::TrainerOptions options = on_xla(fs::path(sign).parent_path().string(), 1, 1);
  options.engine.pjrt_plugin = levin::test::fake_pjrt();
  options.exit_on_signal = true;
  std::thread([sign] {
    while (!fs::exists(sign)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(::getpid(), SIGTERM);
  }).detach();
  levin::Trainer(options).fit(std::make_shared<Deep>(levin::optim::sgd({.lr = 0.1})),
                              levin::DataLoader(dataset(8), {.batch_size = 8}));
  FAIL() << "fit has returned";
}

TEST(XlaCompiles, ASignalEndsARunThatIsCompiling) {
  if (levin::test::fake_pjrt().empty()) GTEST_SKIP() << "levin was built without XLA";
  const Scratch scratch;
  const levin::test::Variable mode("LEVIN_FAKE_PJRT_DOES", "compiles for ever");
  const levin::test::Variable sign("LEVIN_FAKE_PJRT_SIGN", scratch / "compiling");
  const levin::test::Variable uncached("LEVIN_XLA_CACHE", "off");
  EXPECT_EQ(levin::test::run_in_own_process("XlaCompiles.DISABLED_ForEver", scratch / "log"), 143)
      << levin::test::get(scratch / "log");
  EXPECT_THAT(levin::test::get(scratch / "log"),
              HasSubstr("levin warn: trainer: got SIGTERM while "));
}

}  // namespace
