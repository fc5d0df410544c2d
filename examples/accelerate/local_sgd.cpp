// ./local_sgd --devices 2
// last line: accuracy=1.00
//
// Local SGD: each process steps on its own, and every eighth step the processes average their weights.
// That is an eighth of the communication.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  int64_t local_sgd_steps = 8;

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("local_sgd_steps", local_sgd_steps, "steps between two averages of the weights");
  }
};

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  // Two clouds of points.
  const auto label = torch::arange(400).remainder(2);
  const auto x = torch::randn({400, 2}) + 4 * label.unsqueeze(1);

  levin::Accelerator accelerator(
      {.dataloader_config = {.split_batches = true}, .devices = options.devices.count()});
  torch::nn::Sequential net(torch::nn::Linear(2, 16), torch::nn::ReLU(), torch::nn::Linear(16, 2));
  auto [model, optimizer, loader] =
      accelerator.prepare(net, levin::optim::sgd({.lr = 0.1}),
                          levin::DataLoader(levin::data::tensors({{"x", x}, {"label", label}}),
                                            {.batch_size = 16, .shuffle = true}));

  levin::LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = options.local_sgd_steps});
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(
          torch::nn::functional::cross_entropy(model->forward(batch["x"]), batch["label"]));
      optimizer.step();
      local_sgd.step();
    }
  }
  local_sgd.end();
  const torch::NoGradGuard no_grad;
  const auto right = model->forward(x).argmax(1).eq(label).to(torch::kFloat).mean();
  accelerator.on_main_process([&] { std::printf("accuracy=%.2f\n", right.item<double>()); });
}
