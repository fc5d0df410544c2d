// The engine on the devices of an XLA plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "levin/base/random.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "levin/optim/optim.h"
#include "levin/xla/device/runtime.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/scratch.h"

namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

AcceleratorOptions on_xla(int64_t devices) {
  AcceleratorOptions options;
  options.accelerator = "xla";
  options.engine.pjrt_plugin = "cpu";
  options.devices = devices;
  return options;
}

/// The mean squared weights of a net trained by a loop of one's own.
double trained(const AcceleratorOptions& options, int64_t batch_size) {
  levin::seed_everything(3);
  torch::nn::Linear net(4, 2);
  const auto x = torch::randn({64, 4});
  const auto data = levin::data::tensors({{"x", x}, {"y", x.narrow(1, 0, 2).square()}});
  Accelerator accelerator(options);
  auto [model, optimizer, loader] = accelerator.prepare(
      net, levin::optim::sgd({.lr = 0.1}), levin::DataLoader(data, {.batch_size = batch_size}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const levin::Batch& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(torch::mse_loss(model->forward(batch["x"]), batch["y"]));
      optimizer.step();
    }
  }
  return net->weight.square().mean().item<double>();
}

TEST(AcceleratorOnXla, ALoopOfOnesOwnTrainsAsOnTheCpu) {
  LEVIN_NEEDS_CPU_PLUGIN();
  AcceleratorOptions on_cpu;
  on_cpu.cpu = true;
  const double wanted = trained(on_cpu, 16);
  EXPECT_NEAR(trained(on_xla(1), 16), wanted, 1e-6);
  EXPECT_NEAR(trained(on_xla(2), 8), wanted, 1e-6);  // a loader's batch size is that of a device
}

// Memory of an XLA device is no bytes that tensors look at: each is copied as a whole.
TEST(AcceleratorOnXla, RefusesModelsAndSizesThatItDoesNotPlace) {
  LEVIN_NEEDS_CPU_PLUGIN();
  Accelerator accelerator(on_xla(1));
  EXPECT_EQ(levin::test::error_id([&] {
              accelerator.prepare_model(torch::nn::Linear(4, 3), {.evaluation_mode = true});
            }),
            "accelerator.evaluation_mode");
  AcceleratorOptions sized = on_xla(2);
  sized.engine.parallelism_config.dp_shard_size = 2;
  EXPECT_EQ(levin::test::error_id([&] { Accelerator{sized}; }), "accelerator.parallelism");
}

TEST(AcceleratorOnXla, WeightsAreWrittenInPytorchsForm) {
  LEVIN_NEEDS_CPU_PLUGIN();
  Accelerator accelerator(on_xla(1));
  const levin::test::Scratch scratch;
  torch::manual_seed(2);
  const at::Tensor values = torch::randn({3, 4});
  torch::nn::Linear net(4, 3);
  auto [model] = accelerator.prepare(net);
  const at::Device device = net->weight.device();
  ASSERT_TRUE(device.is_xla());
  levin::State state;
  state.set("a", values.to(device)).set("turned", values.to(device).t());
  state.set("row", values.to(device)[1]).set("b", state.tensor("a"));
  accelerator.save(state, scratch / "state.pt");
  const levin::State read = levin::load_weights(scratch / "state.pt");
  EXPECT_TRUE(torch::equal(read.tensor("a"), values));
  EXPECT_TRUE(torch::equal(read.tensor("turned"), values.t()));
  EXPECT_TRUE(torch::equal(read.tensor("row"), values[1]));
  EXPECT_TRUE(read.tensor("a").is_alias_of(read.tensor("b")));
  accelerator.save(model, scratch / "net.pt");
  EXPECT_TRUE(
      torch::equal(levin::load_weights(scratch / "net.pt").tensor("weight"), net->weight.cpu()));
}

struct Stepped {
  double weights = 0;
  int64_t calls = 0, compiled = 0, lowered = 0;
};

/// By a step that accelerator.compile was given; it may look at its batch on the host.
Stepped stepped(const AcceleratorOptions& options, bool looks) {
  levin::seed_everything(3);
  torch::nn::Linear net(4, 2);
  const auto x = torch::randn({160, 4});
  const auto data = levin::data::tensors({{"x", x}, {"y", x.narrow(1, 0, 2).square()}});
  Accelerator accelerator(options);
  auto [model, optimizer, loader] = accelerator.prepare(net, levin::optim::adam({.lr = 0.05}),
                                                        levin::DataLoader(data, {.batch_size = 8}));
  Stepped done;
  auto step =
      accelerator.compile([&, &model = model, &optimizer = optimizer](const levin::Batch& batch) {
        ++done.calls;
        optimizer.zero_grad();
        at::Tensor loss = torch::mse_loss(model->forward(batch["x"]), batch["y"]);
        if (looks && batch["x"].sum().item<double>() > 0) loss = loss * 3;
        accelerator.backward(loss);
        accelerator.clip_grad_norm(0.7);
        optimizer.step();
        return loss;
      });
  for (const levin::Batch& batch : loader) step(batch);
  if (const auto& runtime = accelerator.xla()) {
    done.compiled = static_cast<int64_t>(runtime->report().programs.size());
    done.lowered = runtime->report().lowerings;
  }
  done.weights = net->weight.square().mean().item<double>();
  return done;
}

/// Twenty steps of one shape.
TEST(AcceleratorOnXla, AStepIsCalledEachTimeUnlessItIsToBeReplayed) {
  LEVIN_NEEDS_CPU_PLUGIN();
  AcceleratorOptions on_cpu, replayed = on_xla(1);
  on_cpu.cpu = true;
  replayed.engine.compile = "replay";
  const double wanted = stepped(on_cpu, false).weights;
  const Stepped called = stepped(on_xla(1), false), once = stepped(replayed, false);
  EXPECT_NEAR(called.weights, wanted, 1e-6);
  EXPECT_NEAR(once.weights, wanted, 1e-6);
  EXPECT_EQ(called.calls, 20);
  EXPECT_EQ(once.calls,
            8);  // once as it is, twice recorded, and the 1st, 2nd, 4th, 8th and 16th replay
  EXPECT_LE(called.compiled, 4) << levin::xla::metrics_report();
  EXPECT_LE(called.lowered, called.compiled + 1) << "others are found";
}

TEST(AcceleratorOnXla, AStepThatLooksAtItsBatchFollowsEach) {
  LEVIN_NEEDS_CPU_PLUGIN();
  AcceleratorOptions on_cpu, replayed = on_xla(1);
  on_cpu.cpu = true;
  replayed.engine.compile = "replay";
  const double wanted = stepped(on_cpu, true).weights;
  const Stepped called = stepped(on_xla(1), true);
  const Stepped refused = stepped(replayed, true);  // and called each time
  EXPECT_NEAR(called.weights, wanted, 1e-6);
  EXPECT_NEAR(refused.weights, wanted, 1e-6);
  EXPECT_EQ(refused.calls, 20);
  // A recording's own: the step up to what the host reads, that value alone, and the gradients.
  EXPECT_LE(refused.compiled, called.compiled + 3) << levin::xla::metrics_report();
}

/// Its batches are those of a device: two make a step of two devices, and what is missing in the
/// last comes from the first.
TEST(AcceleratorOnXla, ALoaderOfTorchIsSplitOverTheDevices) {
  LEVIN_NEEDS_CPU_PLUGIN();
  Accelerator accelerator(on_xla(2));
  auto torch_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      torch::data::datasets::TensorDataset(torch::arange(11).view({11, 1})), 3);
  auto [loader] = accelerator.prepare(torch_loader);
  std::vector<std::vector<int64_t>> steps;
  std::vector<int64_t> gathered;
  for (const auto& batch : loader) {
    std::vector<at::Tensor> samples;
    for (const auto& sample : batch) samples.push_back(sample.data);
    const at::Tensor rows = torch::stack(samples).flatten();
    EXPECT_TRUE(rows.is_xla());
    const auto values = [](const at::Tensor& tensor) {
      const at::Tensor host = tensor.cpu();
      const auto* data = host.const_data_ptr<int64_t>();
      return std::vector<int64_t>(data, data + host.numel());
    };
    steps.push_back(values(rows));
    const std::vector<int64_t> real = values(accelerator.gather_for_metrics(rows));
    gathered.insert(gathered.end(), real.begin(), real.end());
  }
  const std::vector<std::vector<int64_t>> wanted = {{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 0}};
  EXPECT_EQ(steps, wanted);
  EXPECT_THAT(gathered, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST(AcceleratorOnXla, WhatItCannotDoIsAnError) {
  LEVIN_NEEDS_CPU_PLUGIN();
  Accelerator accelerator(on_xla(2));
  EXPECT_THAT(
      [&] {
        const auto stream = levin::test::numbers_in_shards({9, 9});
        accelerator.prepare_loader(levin::DataLoader(levin::IterableDatasetPtr(stream)),
                                   levin::LoaderRole::kTraining);
      },
      ThrowsMessage<levin::Error>(HasSubstr("accelerator.batch_size")));
}

TEST(AcceleratorOnXla, APluginIsForXlaAlone) {
  AcceleratorOptions options;
  options.cpu = true;
  options.engine.pjrt_plugin = "cpu";
  EXPECT_THAT([&] { Accelerator accelerator(options); },
              ThrowsMessage<levin::Error>(HasSubstr("accelerator.device")));
}

}  // namespace
