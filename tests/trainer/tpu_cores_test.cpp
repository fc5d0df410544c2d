// tpu_cores = 8, Lightning's flag, on eight devices made of this machine's CPU: alone, beside other flags, and with a
// model that configure_model() builds of wrapped parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/module/wrap.h"
#include "levin/xla/device/runtime.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/trainer/on_xla.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using ::testing::HasSubstr;

/// No dropout and no batch norm, so that the batch of eight devices is one batch.
struct NetOnCores : levin::Module {
  torch::nn::Sequential net{nullptr};
  NetOnCores() { build(); }
  void build() {
    net = register_module(
        "net", torch::nn::Sequential(levin::wrap(torch::nn::Linear(6, 8)), torch::nn::Tanh(),
                                     levin::wrap(torch::nn::Linear(8, 3))));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    auto loss = torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["y"]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }

 protected:
  struct Late {};
  explicit NetOnCores(Late) {}
};

/// Has no layers until the trainer asks for them.
struct ConfiguredOnCores : NetOnCores {
  ConfiguredOnCores() : NetOnCores(Late()) {}
  void configure_model() override {
    if (net.is_empty()) build();
  }
};

struct OnCores {
  std::vector<at::Tensor> weights;
  std::vector<Recorder::Row> rows;
  int64_t devices = 1;
};

template <class Net = NetOnCores>
OnCores fit_on_cores(levin::TrainerOptions options, int64_t batch_size) {
  const auto recorder = std::make_shared<Recorder>();
  options.logger = recorder;
  options.log_every_n_steps = 1;
  options.max_epochs = 2;
  options.seed = 4;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Net>();
  trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = batch_size}));
  OnCores fitted{.rows = recorder->rows};
  if (trainer.accelerator().xla()) fitted.devices = trainer.accelerator().xla()->num_devices();
  net->to(torch::kCPU);
  for (const auto& parameter : net->parameters()) fitted.weights.push_back(parameter.detach());
  return fitted;
}

void expect_same_on_cores(const OnCores& fitted, const OnCores& wanted) {
  EXPECT_EQ(fitted.devices, 8);
  expect_same_rows(fitted.rows, wanted.rows);
  ASSERT_EQ(fitted.weights.size(), wanted.weights.size());
  for (size_t i = 0; i < wanted.weights.size(); ++i) {
    EXPECT_TRUE(torch::allclose(fitted.weights[i], wanted.weights[i], 1e-5, 1e-6)) << i;
  }
}

class TpuCoresOnXla : public ::testing::Test {
 protected:
  void SetUp() override {
    LEVIN_NEEDS_CPU_PLUGIN();
    plain.accelerator = "cpu";
    eight.tpu_cores = 8;
    eight.engine.pjrt_plugin = "cpu";
  }
  const Scratch scratch;
  levin::TrainerOptions plain = quiet(scratch.str()), eight = quiet(scratch.str());
};

TEST_F(TpuCoresOnXla, TrainAsOneDeviceDoesOnTheWholeBatch) {
  expect_same_on_cores(fit_on_cores(eight, 2), fit_on_cores(plain, 16));
}

TEST_F(TpuCoresOnXla, StandBesideFlagsThatSayTheSame) {
  const OnCores wanted = fit_on_cores(plain, 16);
  for (const char* accelerator : {"tpu", "xla"}) {
    eight.accelerator = accelerator;
    expect_same_on_cores(fit_on_cores(eight, 2), wanted);
  }
  eight.devices = 8;
  eight.strategy = "xla";
  expect_same_on_cores(fit_on_cores(eight, 2), wanted);
}

TEST_F(TpuCoresOnXla, AreAnErrorBesideFlagsThatSayOtherwise) {
  eight.devices = 2;
  EXPECT_THAT(
      error_of([&] { levin::Trainer trainer(eight); }),
      HasSubstr("trainer.options: got tpu_cores = 8 with accelerator = auto and devices = 2"));
  eight.devices = "auto";
  eight.accelerator = "cpu";
  EXPECT_THAT(error_of([&] { levin::Trainer trainer(eight); }),
              HasSubstr("trainer.options: got tpu_cores"));
}

TEST_F(TpuCoresOnXla, TrainAModelThatConfigureModelBuildsOfWrappedParts) {
  expect_same_on_cores(fit_on_cores<ConfiguredOnCores>(eight, 2),
                       fit_on_cores<ConfiguredOnCores>(plain, 16));
}

}  // namespace
