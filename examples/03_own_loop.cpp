// ./03_own_loop --epochs 3
// last line: accuracy=0.87
//
// Your own training loop with an Accelerator: call prepare and backward; the rest is plain LibTorch.
// Stop it and start it again: it resumes from the last epoch that it saved.

#include <cstdio>
#include <filesystem>

#include <levin/levin.h>

struct Options {
  int64_t epochs = 3;
  int64_t batch_size = 64;
  std::string precision = "no";
  std::string state = "own_loop_state";
  levin::data::MnistOptions data;

  void fields(levin::FieldVisitor& field) {
    field("epochs", epochs, "epochs to train");
    field("precision", precision, "no, bf16, fp16, bf16-true, 16-true or 64-true");
    field("state", state, "folder to save the training state in");
    data.fields(field);
  }
};

double accuracy(auto& model, levin::DataLoader loader) {
  const torch::NoGradGuard no_grad;
  levin::metrics::Accuracy accuracy;
  model->eval();
  for (const auto& batch : loader) {
    accuracy.update(model->forward(batch["image"]), batch["label"]);
  }
  model->train();
  return accuracy.compute().template item<double>();
}

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(784, 128), torch::nn::ReLU(),
                            torch::nn::Linear(128, 10));
  auto data = levin::data::fashion_mnist(options.data);

  levin::Accelerator accelerator({.mixed_precision = options.precision});
  auto [model, optimizer, loader] =
      accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}), *data->train_dataloader());
  if (std::filesystem::exists(options.state)) accelerator.load_state(options.state);

  double result = accuracy(model, *data->val_dataloader());
  while (loader.loader().epoch() < options.epochs) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      auto loss =
          torch::nn::functional::cross_entropy(model->forward(batch["image"]), batch["label"]);
      accelerator.backward(loss);
      optimizer.step();
    }
    result = accuracy(model, *data->val_dataloader());
    std::printf("epoch %d accuracy %.4f\n", static_cast<int>(loader.loader().epoch()), result);
    accelerator.save_state(options.state);
  }
  std::printf("accuracy=%.4f\n", result);
}
