// Training on XLA devices of several processes, as on the hosts of a TPU slice: equal to one
// process, resumed bit for bit, evaluated to the sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/checkpoint/checkpoint.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/joined_plugin.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using ::testing::Each;

constexpr int64_t kHosts = 2;
constexpr int64_t kDevices = 2;  // of each

/// With batch norm over all devices and no dropout they can equal one process.
struct Even : Net {
  explicit Even(double dropout = 0.0) : Net(dropout) {}
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["x"]).argmax(1);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::sgd({.lr = 0.1, .momentum = 0.5});
  }
};

levin::TrainerOptions on_hosts(const fs::path& root, int64_t epochs) {
  levin::TrainerOptions options = quiet(root.string());
  options.accelerator = "xla";
  options.engine.pjrt_plugin = levin::test::joined_plugin(kDevices);
  options.devices = kDevices;
  options.seed = 11;
  options.max_epochs = epochs;
  return options;
}

levin::DataLoader loader_of(int64_t samples, int64_t batch_size, bool shuffle) {
  return {dataset(samples), {.batch_size = batch_size, .shuffle = shuffle}};
}

std::string hosts_off_by(const levin::State& a, const levin::State& b, double tolerance) {
  for (const auto& [name, value] : a.values()) {
    const double off = (a.tensor(name) - b.tensor(name)).abs().max().to(at::kDouble).item<double>();
    if (!(off <= tolerance)) return c10::str(name, " is off by ", off);
  }
  return "";
}

levin::State weights_of(const Net& net) {
  levin::State weights;
  const levin::State state = levin::module_state(net);
  for (const auto& [name, value] : state.values()) weights.set(name, state.tensor(name).cpu());
  return weights;
}

/// 3 epochs over 96 samples, 24 a step on all devices together; 21 samples are evaluated.
struct HostsTraining {
  levin::State weights;
  double val_acc = 0.0;
  int64_t predicted = 0;
};
HostsTraining train_on_hosts(levin::TrainerOptions options, int64_t batch_size) {
  options.engine.sync_batchnorm = true;
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Even>();
  trainer.fit(net, loader_of(96, batch_size, /*shuffle=*/true));
  HostsTraining trained{.weights = weights_of(*net)};
  trained.val_acc = trainer.validate(net, loader_of(21, 4, /*shuffle=*/false)).at("val_acc");
  for (const at::Tensor& part : trainer.predict(net, loader_of(21, 4, /*shuffle=*/false))) {
    trained.predicted += part.size(0);
  }
  return trained;
}

TEST(JoinedHosts, EqualOneProcess) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  EXPECT_THAT(run_world(1,
                        [&](int64_t, const fs::path&) {
                          levin::TrainerOptions options = quiet(scratch.str());
                          options.accelerator = "cpu";
                          options.seed = 11;
                          options.max_epochs = 3;
                          const HostsTraining alone = train_on_hosts(options, 24);
                          levin::save_weights(scratch / "alone.safetensors", alone.weights);
                          levin::test::put(scratch / "val_acc", std::to_string(alone.val_acc));
                          return alone.predicted == 21 ? "" : std::to_string(alone.predicted);
                        }),
              Each(""));
  const auto words = run_world(kHosts, [&](int64_t, const fs::path& folder) -> std::string {
    const HostsTraining together = train_on_hosts(on_hosts(folder, 3), 24 / kHosts / kDevices);
    const double wanted = std::stod(levin::test::get(scratch / "val_acc"));
    if (std::abs(together.val_acc - wanted) > 1e-5) {
      return c10::str("val_acc ", together.val_acc, ", wanted ", wanted);
    }
    const auto alone = levin::load_weights(scratch / "alone.safetensors");
    return hosts_off_by(together.weights, alone, 2e-4);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(JoinedHosts, GoOnBitForBitFromACheckpoint) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = run_world(kHosts, [](int64_t, const fs::path& folder) -> std::string {
    const auto run = [&](const char* name, int64_t epochs, const std::string& from) {
      levin::TrainerOptions options = on_hosts(folder / name, epochs);
      options.ckpt_path = from;
      levin::Trainer trainer(options);
      const auto net = std::make_shared<Even>(0.3);  // batch norm is each host's own
      trainer.fit(net, loader_of(96, 6, /*shuffle=*/true));
      return weights_of(*net);
    };
    const levin::State whole = run("whole", 4, "");
    run("parts", 2, "");
    return hosts_off_by(run("parts", 4, "last"), whole, 0.0);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(JoinedHosts, GatherAndReduceTensorsOfTheirDevices) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = run_world(kHosts, [](int64_t rank, const fs::path& folder) -> std::string {
    levin::Trainer trainer(on_hosts(folder, 1));
    levin::Accelerator& accelerator = trainer.accelerator();
    const at::Tensor own = at::full({2}, static_cast<float>(rank + 1)).to(accelerator.device());
    const at::Tensor all = accelerator.gather(own);
    const at::Tensor sum = accelerator.reduce(own, levin::ReduceOp::kSum);
    if (!all.is_xla() || !sum.is_xla()) return "on another device";
    if (!torch::equal(all.cpu(), torch::tensor({1.F, 1.F, 2.F, 2.F}))) return "gather";
    return torch::equal(sum.cpu(), torch::full({2}, 3.F)) ? "" : "reduce";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
