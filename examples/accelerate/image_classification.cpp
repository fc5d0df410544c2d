// ./image_classification --devices 2
// last line: accuracy=0.84
//
// A complete program: a convolutional network on Fashion-MNIST, in bfloat16 on request, over one or
// several processes. --batch-size is the size over all processes together, so the number of processes
// changes nothing.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  int64_t epochs = 2;
  std::string mixed_precision = "no";
  levin::data::MnistOptions data = {.limit = 6400};

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("epochs", epochs, "epochs to train");
    field("mixed_precision", mixed_precision, "no, bf16 or fp16");
    data.fields(field);
  }
};

torch::nn::Sequential network() {
  using namespace torch::nn;  // NOLINT
  return Sequential(Conv2d(Conv2dOptions(1, 8, 3).padding(1)), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(8, 16, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(),
                    Linear(16 * 7 * 7, 10));
}

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  levin::Accelerator accelerator({.mixed_precision = options.mixed_precision,
                                  .dataloader_config = {.split_batches = true},
                                  .devices = options.devices.count()});
  auto data = levin::data::fashion_mnist(options.data);
  const int64_t steps = data->train_dataloader()->size() * options.epochs;
  auto [model, optimizer, train_loader, eval_loader] =
      accelerator.prepare(network(),
                          levin::optim::sgd({.lr = 0.05, .momentum = 0.9})
                              .schedule(levin::optim::cosine({.total_steps = steps})),
                          *data->train_dataloader(), *data->val_dataloader());

  double accuracy = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    for (const auto& batch : train_loader) {
      optimizer.zero_grad();
      accelerator.backward(
          torch::nn::functional::cross_entropy(model->forward(batch["image"]), batch["label"]));
      optimizer.step();
    }
    const torch::NoGradGuard no_grad;
    levin::metrics::Accuracy metric;
    model->eval();
    for (const auto& batch : eval_loader) {
      const auto logits = accelerator.gather_for_metrics(model->forward(batch["image"]));
      metric.update(logits, accelerator.gather_for_metrics(batch["label"]));
    }
    model->train();
    accuracy = metric.compute().item<double>();
  }
  accelerator.on_main_process([&] { std::printf("accuracy=%.2f\n", accuracy); });
}
