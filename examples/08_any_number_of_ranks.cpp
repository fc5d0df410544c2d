// ./08_any_number_of_ranks --devices 4 --max-steps 200
// last line: train_loss=0.82
//
// Resume with another world size: stop the run and start it again on another number of processes.
//
//   ./08_any_number_of_ranks --devices 3 --max-steps 400 --ckpt-path last
//
// All processes write the checkpoint asynchronously, while training continues. It is plain safetensors,
// and any number of processes reads it. A resumed run reads the rest of the epoch, each image once. The network
// is built on the meta device (deferred initialization) and gets its values when the Trainer places it.

#include <cstdio>

#include <levin/levin.h>

struct Classifier : levin::Module {
  torch::nn::Sequential net{nullptr};

  Classifier() {
    net = register_module("net",
                          torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 128),
                                                torch::nn::ReLU(), torch::nn::Linear(128, 10)));
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto loss = torch::nn::functional::cross_entropy(net->forward(batch["image"]), batch["label"]);
    log("train_loss", loss, {.on_step = false, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.05}); }
};

int main(int argc, char** argv) {
  levin::TrainerOptions options = {.max_epochs = 1, .seed = 1};
  levin::data::MnistOptions mnist;
  levin::parse_into(argc, argv, options, mnist);
  options.callbacks = {levin::model_checkpoint({.every_n_train_steps = 50, .async_save = true})};
  levin::Trainer trainer(options);
  mnist.batch_size = 48 / trainer.accelerator().num_processes();  // 48 in all, on however many
  auto net = levin::init_on_meta([] { return std::make_shared<Classifier>(); });
  auto data = levin::data::fashion_mnist(mnist);
  trainer.fit(net, *data->train_dataloader());
  if (!trainer.accelerator().is_main_process()) return 0;
  std::printf("train_loss=%.4f\n", trainer.callback_metrics().at("train_loss"));
}
