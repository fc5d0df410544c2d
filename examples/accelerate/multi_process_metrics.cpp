// ./multi_process_metrics --devices 2
// last line: samples=103
//
// Evaluation metrics over several processes, exact to the sample: 103 samples, which no number of
// processes divides. Each sample counts once, in order.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
  }
};

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  const auto x = torch::randn({103, 4});

  levin::Accelerator accelerator({.devices = options.devices.count()});
  torch::nn::Linear net(4, 1);
  auto [model, loader] = accelerator.prepare(
      net, levin::DataLoader(levin::data::tensors({{"x", x}}), {.batch_size = 10}));

  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> outputs;
  for (const auto& batch : loader) {
    outputs.push_back(accelerator.gather_for_metrics(model->forward(batch["x"])));
  }
  const auto all = torch::cat(outputs);
  const bool right = torch::allclose(all, model->forward(x));
  accelerator.on_main_process([&] {
    std::printf("in order: %s\nsamples=%d\n", right ? "yes" : "no", static_cast<int>(all.size(0)));
  });
}
