// ./cross_validation --devices 2
// last line: accuracy=0.97
//
// Cross-validation: five networks, each trained on four fifths of the data and evaluated on the fifth
// that it has not seen. The result is the mean over the five folds.

#include <cstdio>

#include <levin/levin.h>

struct Options {
  levin::Devices devices = "auto";
  int64_t num_folds = 5;

  void fields(levin::FieldVisitor& field) {
    field("devices", devices, "number of processes; auto: as many as a launcher started, else one");
    field("num_folds", num_folds, "number of folds of the data");
  }
};

/// Of the rows that are picked, or of the others.
levin::DataLoader loader_of(const torch::Tensor& x, const torch::Tensor& label,
                            const torch::Tensor& picked) {
  const auto rows = picked.nonzero().squeeze(1);
  return {levin::data::tensors(
              {{"x", x.index_select(0, rows)}, {"label", label.index_select(0, rows)}}),
          {.batch_size = 16}};
}

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  levin::seed_everything(1);
  const auto x = torch::randn({320, 2});
  const auto label = x.square().sum(1).gt(1.4).to(torch::kLong);
  const auto fold_of = torch::arange(x.size(0)).remainder(options.num_folds);

  levin::Accelerator accelerator(
      {.dataloader_config = {.split_batches = true}, .devices = options.devices.count()});
  levin::metrics::Accuracy metric;
  for (int64_t fold = 0; fold < options.num_folds; ++fold) {
    torch::manual_seed(fold);
    torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(),
                              torch::nn::Linear(32, 2));
    auto [model, optimizer, train_loader, eval_loader] = accelerator.prepare(
        net, levin::optim::sgd({.lr = 0.2, .momentum = 0.9}), loader_of(x, label, fold_of.ne(fold)),
        loader_of(x, label, fold_of.eq(fold)));
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (const auto& batch : train_loader) {
        optimizer.zero_grad();
        accelerator.backward(
            torch::nn::functional::cross_entropy(model->forward(batch["x"]), batch["label"]));
        optimizer.step();
      }
    }
    const torch::NoGradGuard no_grad;
    for (const auto& batch : eval_loader) {
      const auto logits = accelerator.gather_for_metrics(model->forward(batch["x"]));
      metric.update(logits, accelerator.gather_for_metrics(batch["label"]));
    }
    accelerator.free_memory();
  }
  const auto accuracy = metric.compute().item<double>();
  accelerator.on_main_process([&] { std::printf("accuracy=%.2f\n", accuracy); });
}
