// ./10_larger_than_memory --max-steps 20
// last line: loss=0.14
//
// Offload (ZeRO-Infinity, NVMe offload): the optimizer's state does not fit into memory, so it lies in a file on a
// disk, and only the part that is being updated is in memory. Compared with other programs one thing changes: the
// options of offload. Run it with --offload no, and the last line stays the same while the memory grows.

#include <cstdio>
#include <fstream>
#include <string>

#include <levin/levin.h>

struct Options {
  int64_t width = 2048;  ///< of the network

  void fields(levin::FieldVisitor& field) { field("width", width, "width of the network"); }
};

/// Two wide layers, in bfloat16: 2 bytes a parameter, 2 of gradients, and 12 of AdamW's state with master weights.
struct Wide : levin::Module {
  torch::nn::Sequential net{nullptr};

  explicit Wide(int64_t width) {
    net = register_module(
        "net", torch::nn::Sequential(torch::nn::Linear(16, width), torch::nn::ReLU(),
                                     torch::nn::Linear(width, 4 * width), torch::nn::ReLU(),
                                     torch::nn::Linear(4 * width, 1)));
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    const auto loss = torch::mse_loss(net->forward(batch["x"]).flatten(), batch["y"]);
    log("loss", loss, {.prog_bar = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-4});
  }
};

/// The most memory that this process has held, in MB.
int64_t most_memory_mb() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) / 1024;
  }
  return 0;
}

int main(int argc, char** argv) {
  Options chosen;
  levin::TrainerOptions options = {.precision = "bf16-true", .max_steps = 20, .seed = 1};
  options.enable_checkpointing = false;
  options.engine.master_weights = true;
  options.engine.offload.state = "optimizer";  // --offload no keeps it in memory
  levin::parse_into(argc, argv, chosen, options);
  const bool offloads = options.engine.offload.state != "no";
  if (offloads && options.engine.offload.memory_mb == levin::OffloadOptions().memory_mb) {
    options.engine.offload.memory_mb = 32;
  }

  levin::Trainer trainer(options);
  torch::manual_seed(2);
  const auto x = torch::randn({640, 16});
  const auto data =
      levin::data::tensors({{"x", x}, {"y", (x.select(1, 0) * x.select(1, 1)).tanh()}});
  auto net = std::make_shared<Wide>(chosen.width);
  int64_t parameters = 0;
  for (const auto& parameter : net->parameters()) parameters += parameter.numel();
  trainer.fit(net, levin::DataLoader(data, {.batch_size = 32, .shuffle = true}));

  if (!trainer.accelerator().is_main_process()) return 0;
  std::printf("%.1f million parameters, %.0f MB of optimizer state %s, at most %ld MB of memory\n",
              static_cast<double>(parameters) / 1e6, static_cast<double>(parameters) * 12 / 1e6,
              offloads ? "in a file" : "in memory", static_cast<long>(most_memory_mb()));
  std::printf("loss=%.2f\n", trainer.callback_metrics().at("loss"));
}
