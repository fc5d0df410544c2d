// ./07_ddp --devices 2
// last line: accuracy=0.87
//
// Your own training loop under DDP, over several processes. --devices 2 starts the processes from here;
// `levin run`, torchrun, mpirun and srun start them on several machines, with no change to this file.
// Each process reads its part of the data, and gradients are averaged while backward runs.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  int64_t epochs = 3;
  std::string backend = "auto";
  levin::data::MnistOptions data;

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("epochs", epochs, "epochs to train");
    field("backend", backend,
          "communication backend: auto, shm, gloo, mpi, hierarchical or "
          "hierarchical-mpi");
    data.fields(field);
  }
};

/// Of all processes' parts, each sample counted once.
double accuracy(levin::Accelerator& accelerator, auto& model, levin::DataLoader loader) {
  const torch::NoGradGuard no_grad;
  loader = accelerator.prepare_loader(loader, levin::LoaderRole::kEvaluation);
  levin::metrics::Accuracy mine;
  model->eval();
  for (const auto& batch : loader) mine.update(model->forward(batch["image"]), batch["label"]);
  model->train();
  levin::metrics::Accuracy all;
  for (const levin::State& part : accelerator.gather_object(mine.state_dict())) all.merge(part);
  return all.compute().item<double>();
}

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  levin::Accelerator accelerator(
      {.devices = options.devices.count(), .engine = {.comm = {.backend = options.backend}}});

  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 10));
  auto data = levin::data::fashion_mnist(options.data);
  auto [model, optimizer, loader] =
      accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}), *data->train_dataloader());

  double result = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      auto loss =
          torch::nn::functional::cross_entropy(model->forward(batch["image"]), batch["label"]);
      accelerator.backward(loss);
      optimizer.step();
    }
    result = accuracy(accelerator, model, *data->val_dataloader());
    if (accelerator.is_main_process()) {
      std::printf("epoch %d accuracy %.4f\n", static_cast<int>(epoch + 1), result);
    }
  }
  if (accelerator.is_main_process()) std::printf("accuracy=%.4f\n", result);
}
