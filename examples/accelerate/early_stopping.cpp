// ./early_stopping --devices 2
// last line: epochs=11
//
// Early stopping over several processes: one process sees that the loss no longer falls and sets a
// trigger. All processes see the trigger and stop at the same epoch.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  double least_gain = 0.02;

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("least_gain", least_gain, "minimum decrease of the loss per epoch");
  }
};

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  const auto x = torch::randn({200, 8});
  const auto y = x.sin().sum(1, /*keepdim=*/true);

  levin::Accelerator accelerator(
      {.dataloader_config = {.split_batches = true}, .devices = options.devices.count()});
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  auto [model, optimizer, loader] = accelerator.prepare(
      net, levin::optim::sgd({.lr = 0.1}),
      levin::DataLoader(levin::data::tensors({{"x", x}, {"y", y}}), {.batch_size = 20}));

  int64_t epochs = 0;
  double best = 1e9;
  while (!accelerator.check_trigger()) {
    double sum = 0;
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model->forward(batch["x"]), batch["y"]);
      accelerator.backward(loss);
      optimizer.step();
      sum += accelerator.reduce(loss, levin::ReduceOp::kMean).item<double>();
    }
    ++epochs;
    const double mean = sum / static_cast<double>(loader.size());
    accelerator.on_main_process([&] {
      if (mean > best - options.least_gain) accelerator.set_trigger();
      best = std::min(best, mean);
    });
  }
  accelerator.on_main_process([&] { std::printf("epochs=%d\n", static_cast<int>(epochs)); });
}
