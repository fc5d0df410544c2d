// ./02_fashion_mnist --max-epochs 3
// last line: val_acc=0.91
//
// A convolutional network on Fashion-MNIST. `make demo` runs this program.

#include <cstdio>

#include <levin/levin.h>

namespace nn = torch::nn;

struct Cnn : levin::Module {
  nn::Sequential net{nullptr};

  Cnn() {
    net = register_module(
        "net",
        nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 32, 3).padding(1)), nn::ReLU(),
                       nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)),
                       nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64 * 7 * 7, 128),
                       nn::ReLU(), nn::Dropout(0.25), nn::Linear(128, 10)));
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto loss = nn::functional::cross_entropy(net->forward(batch["image"]), batch["label"]);
    log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["image"]), batch["label"]),
        {.prog_bar = true});
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 2e-3}).schedule(levin::optim::cosine({.warmup_steps = 100}));
  }
};

int main(int argc, char** argv) {
  levin::TrainerOptions options = {.max_epochs = 3, .seed = 1};
  levin::data::MnistOptions mnist;
  levin::parse_into(argc, argv, options, mnist);
  options.callbacks = {levin::model_checkpoint({.monitor = "val_acc", .mode = "max"})};
  auto data = levin::data::fashion_mnist(mnist);
  levin::Trainer trainer(options);  // seeds what the network draws
  auto net = std::make_shared<Cnn>();
  trainer.fit(net, data);
  const double accuracy = trainer.validate(net, data).at("val_acc");
  if (trainer.accelerator().is_main_process()) std::printf("val_acc=%.4f\n", accuracy);
}
