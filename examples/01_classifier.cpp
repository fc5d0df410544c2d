// ./01_classifier --max-epochs 5
// last epoch: val_acc=0.87
//
// A complete training program: a network, its training step, its optimizer, and a Trainer. Replace the
// network with your own; every option of the run is a flag (--help).

#include <levin/levin.h>

// clang-format off

struct Classifier : levin::Module {
  torch::nn::Sequential net{nullptr};

  Classifier() {
    net = register_module("net", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10)));
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto loss = torch::nn::functional::cross_entropy(net->forward(batch["image"]), batch["label"]);
    log("train_loss", loss);
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["image"]), batch["label"]));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::adamw({.lr = 1e-3}); }
};

int main(int argc, char** argv) {
  auto options = levin::parse<levin::TrainerOptions>(argc, argv, {.max_epochs = 5});   // flags and TOML; --help, --print-config
  options.callbacks = {levin::model_checkpoint({.monitor = "val_acc", .mode = "max"}), levin::early_stopping({.monitor = "val_acc", .mode = "max"})};
  auto data = levin::data::fashion_mnist({.root = "data"});
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Classifier>(), data);
}
