// ./gradient_accumulation --devices 2
// last line: loss=0.1216
//
// Gradient accumulation: batches of 4 whose gradients add up to those of 16. It takes one line,
// accumulate(); the optimizer steps in between do nothing. The last window of an epoch has the
// remaining batches.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  int64_t gradient_accumulation_steps = 4;

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("gradient_accumulation_steps", gradient_accumulation_steps,
          "gradient accumulation: batches per optimizer step");
  }
};

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  const auto x = torch::randn({200, 8});
  const auto y = x.sin().sum(1, /*keepdim=*/true);

  levin::Accelerator accelerator(
      {.gradient_accumulation_steps = options.gradient_accumulation_steps,
       .dataloader_config = {.split_batches = true},
       .devices = options.devices.count()});
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  auto [model, optimizer, loader] = accelerator.prepare(
      net, levin::optim::sgd({.lr = 0.1}),
      levin::DataLoader(levin::data::tensors({{"x", x}, {"y", y}}), {.batch_size = 4}));

  for (int epoch = 0; epoch < 20; ++epoch) {
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate(model);
      accelerator.backward(torch::mse_loss(model->forward(batch["x"]), batch["y"]));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  const torch::NoGradGuard no_grad;
  const auto loss = torch::mse_loss(model->forward(x), y).item<double>();
  accelerator.on_main_process([&] { std::printf("loss=%.4f\n", loss); });
}
