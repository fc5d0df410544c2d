// ./checkpointing --devices 2
// last line: loss=0.0000
//
// Checkpoint and resume: the run saves itself after every epoch, keeps the last two checkpoints, and
// resumes from the newest when it starts again. The last checkpoint also holds the weights, for Python
// too.

#include <cstdio>
#include <filesystem>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  int64_t epochs = 8;
  std::string project_dir = "project";

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("epochs", epochs, "total number of epochs, including those of earlier runs");
    field("project_dir", project_dir, "folder of the checkpoints");
  }
};

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  const auto x = torch::randn({160, 8});
  const auto y = x.sum(1, /*keepdim=*/true);

  levin::Accelerator accelerator(
      {.dataloader_config = {.split_batches = true},
       .project_dir = options.project_dir,
       .project_config = {.automatic_checkpoint_naming = true, .total_limit = 2},
       .devices = options.devices.count()});
  torch::nn::Linear net(8, 1);
  auto [model, optimizer, loader] =
      accelerator.prepare(net, levin::optim::sgd({.lr = 0.1}),
                          levin::DataLoader(levin::data::tensors({{"x", x}, {"y", y}}),
                                            {.batch_size = 16, .shuffle = true}));
  if (std::filesystem::exists(options.project_dir)) accelerator.load_state();

  double last = 0;
  while (loader.loader().epoch() < options.epochs) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model->forward(batch["x"]), batch["y"]);
      accelerator.backward(loss);
      optimizer.step();
      last = accelerator.reduce(loss, levin::ReduceOp::kMean).item<double>();
    }
    accelerator.save_state();
  }
  accelerator.save_model(model, std::filesystem::path(options.project_dir) / "model");
  accelerator.on_main_process([&] { std::printf("loss=%.4f\n", last); });
}
