// ./tracking --devices 2
// last line: steps=40
//
// Experiment tracking: the main process writes losses and settings of a run to a CSV file and for
// TensorBoard. Look at them with `tensorboard --logdir tracked`.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  std::string project_dir = "tracked";

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("project_dir", project_dir, "folder of the logs");
  }
};

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  const auto x = torch::randn({160, 8});
  const auto y = x.sum(1, /*keepdim=*/true);

  levin::Accelerator accelerator({.dataloader_config = {.split_batches = true},
                                  .log_with = {"all"},
                                  .project_dir = options.project_dir,
                                  .devices = options.devices.count()});
  torch::nn::Linear net(8, 1);
  auto [model, optimizer, loader] = accelerator.prepare(
      net, levin::optim::sgd({.lr = 0.05}),
      levin::DataLoader(levin::data::tensors({{"x", x}, {"y", y}}), {.batch_size = 16}));
  accelerator.init_trackers("linear", {{"lr", "0.05"}, {"batch_size", "16"}});

  int64_t step = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model->forward(batch["x"]), batch["y"]);
      accelerator.backward(loss);
      optimizer.step();
      const auto mean = accelerator.reduce(loss, levin::ReduceOp::kMean).item<double>();
      accelerator.log({{"train_loss", mean}}, ++step);
    }
  }
  accelerator.end_training();
  accelerator.on_main_process([&] { std::printf("steps=%d\n", static_cast<int>(step)); });
}
