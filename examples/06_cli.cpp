// ./06_cli fit --max-epochs 20 && ./06_cli test && ./06_cli predict --output sines.safetensors
// last line: error=0.0174
//
// A module and its data module, each with its own options, as a program with four subcommands.

#include <levin/levin.h>

struct Curve : levin::Module {
  struct Options {
    int64_t hidden = 64;
    double lr = 1e-2;

    void fields(levin::FieldVisitor& field) {
      field("hidden", hidden, "width of the hidden layers");
      field("lr", lr, "learning rate");
    }
  };

  Options options;
  torch::nn::Sequential net{nullptr};

  explicit Curve(Options chosen) : options(chosen) {
    const int64_t hidden = options.hidden;
    net = register_module(
        "net", torch::nn::Sequential(torch::nn::Linear(1, hidden), torch::nn::Tanh(),
                                     torch::nn::Linear(hidden, hidden), torch::nn::Tanh(),
                                     torch::nn::Linear(hidden, 1)));
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    return torch::mse_loss(net->forward(batch["x"]), batch["y"]);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("error", (net->forward(batch["x"]) - batch["y"]).abs().mean(), {.prog_bar = true});
  }
  void test_step(const levin::Batch& batch, int64_t index) override {
    validation_step(batch, index);
  }
  torch::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["x"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adam({.lr = options.lr}).schedule(levin::optim::cosine());
  }
};

struct Sine : levin::DataModule {
  struct Options {
    double noise = 0.05;
    int64_t samples = 2000;

    void fields(levin::FieldVisitor& field) {
      field("noise", noise, "standard deviation of the noise in the training data");
      field("samples", samples, "samples to train on");
    }
  };

  Options options;

  explicit Sine(Options chosen) : options(chosen) {}

  levin::DataLoader loader(int64_t count, double noise, bool shuffle) const {
    auto x = torch::linspace(-3, 3, count).unsqueeze(1);
    auto y = torch::sin(2 * x) + noise * torch::randn_like(x);
    return {levin::data::tensors({{"x", x}, {"y", y}}), {.batch_size = 50, .shuffle = shuffle}};
  }
  std::optional<levin::DataLoader> train_dataloader() override {
    return loader(options.samples, options.noise, true);
  }
  std::optional<levin::DataLoader> val_dataloader() override { return loader(500, 0, false); }
  std::optional<levin::DataLoader> test_dataloader() override { return loader(500, 0, false); }
  std::optional<levin::DataLoader> predict_dataloader() override { return loader(500, 0, false); }
};

int main(int argc, char** argv) {
  return levin::cli<Curve, Sine>(argc, argv, {.max_epochs = 20, .seed = 1});
}
