#include <iostream>

#include <levin/levin.h>

struct Classifier : levin::Module {
  torch::nn::Sequential net{nullptr};
  int64_t steps = 0;

  Classifier() { net = register_module("net", torch::nn::Sequential(torch::nn::Linear(4, 3))); }
  torch::Tensor training_step(const levin::Batch& batch) override {
    ++steps;
    auto loss = torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["label"]);
    log("train_loss", loss);
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2});
  }
};

int main(int argc, char** argv) {
  auto options = levin::parse<levin::TrainerOptions>(argc, argv, {.max_epochs = 2});
  auto x = torch::randn({64, 4});
  levin::DataLoader loader(levin::data::tensors({{"x", x}, {"label", x.argmax(1) % 3}}),
                           {.batch_size = 16, .shuffle = true});
  levin::Trainer trainer(options);
  auto classifier = std::make_shared<Classifier>();
  trainer.fit(classifier, loader);
  std::cout << "levin works: " << classifier->steps << " steps\n";
}
