// ./14_tpu
// last line: programs=2
//
// Training on TPU cores, or on any device with an XLA plugin. The default here is two devices made of
// this machine's CPU (`make xla` fetches the plugin). On a TPU host, use its cores:
//
//   ./14_tpu --accelerator tpu --devices 8       (or --tpu-cores 8; needs `pip install libtpu`)
//
// The module and its steps are those of any other training. A step becomes one program, compiled
// once, with the all-reduce of gradients in it. It is called once for all devices, with the batches
// of all devices together: here 128 samples.

#include <cstdio>

#include <levin/levin.h>

struct Regression : levin::Module {
  torch::nn::Sequential net{nullptr};

  Regression() {
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(16, 64), torch::nn::GELU(),
                                                       torch::nn::Linear(64, 1)));
  }

  torch::Tensor training_step(const levin::Batch& batch) override {
    const auto loss = torch::mse_loss(net->forward(batch["x"]), batch["y"]);
    log("train_loss", loss);  // stays on the device until somebody looks
    return loss;
  }

  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2});
  }
};

int main(int argc, char** argv) {
  auto options = levin::parse<levin::TrainerOptions>(
      argc, argv, {.max_epochs = 5, .enable_model_summary = false, .seed = 1});
  const bool is_asked = options.accelerator != "auto" || options.tpu_cores > 0;
  if (!is_asked) {  // two devices made of this machine's CPU
    options.accelerator = "xla";
    if (options.engine.pjrt_plugin.empty()) options.engine.pjrt_plugin = "cpu";
    if (options.devices.count() == 0) options.devices = 2;
  }

  // A batch size that the devices can divide, of batches that are all alike: a last one that is
  // shorter would be a program of its own.
  const auto x = torch::randn({2048, 16});
  const auto y = x.square().sum(1, /*keepdim=*/true).sqrt();
  levin::DataLoader loader(levin::data::tensors({{"x", x}, {"y", y}}),
                           {.batch_size = 64, .shuffle = true, .drop_last = true});

  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Regression>(), loader);
  std::fputs(levin::xla::metrics_report().c_str(), stdout);
  std::printf("programs=%zu\n", trainer.accelerator().xla()->report().programs.size());
}
