// python3 make_net.py && ./18_from_python --devices 2 && python3 use_net.py
// last line: trained.pt2: val_acc=1
//
// A network from Python (torch.export) trains here and goes back to Python. Kill the run and start it again with
// --ckpt-path last: it loses nothing. --strategy fsdp, --precision bf16-mixed and --compile replay work as usual.
//
// make_net.py, where the network can be imported:
//   import torch
//   from torch import nn
//   from torch.export import Dim, export, save
//
//   net = nn.Sequential(
//       nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
//       nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 4))
//   program = export(net.train(), (torch.randn(8, 1, 8, 8),), dynamic_shapes=({0: Dim("batch")},))
//   save(program, "net.pt2")
//
// use_net.py:
//   import torch
//
//   net = torch.export.load("trained.pt2").module()
//   rows = torch.zeros(3, 1, 8, 8)
//   rows[:, :, ::2] = 1
//   print(net(rows).argmax(1))  # tensor([0, 0, 0])

#include <cstdio>

#include <levin/levin.h>

struct FromPython : levin::Module {
  std::shared_ptr<levin::ExportedModule> net =
      register_module("net", levin::load_exported("net.pt2"));

  torch::Tensor training_step(const levin::Batch& batch) override {
    return torch::cross_entropy_loss(net->forward(batch["image"]), batch["label"]);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["image"]), batch["label"]));
  }
  torch::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["image"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2});
  }
};

/// Images of 8 x 8: stripes along rows (label 0), along columns (1), a chessboard (2), and noise alone (3).
levin::DataLoader stripes(int64_t count, bool shuffle) {
  const auto label = torch::arange(count) % 4;
  const auto places = torch::arange(8);
  const auto row = places.view({8, 1}).expand({8, 8}), column = places.expand({8, 8});
  const auto patterns = torch::stack({row % 2, column % 2, (row + column) % 2, row * 0});
  const auto image = 1 - patterns.to(torch::kFloat).index_select(0, label).unsqueeze(1);
  return {
      levin::data::tensors({{"image", image + 0.3 * torch::randn_like(image)}, {"label", label}}),
      {.batch_size = 32, .shuffle = shuffle}};
}

int main(int argc, char** argv) {
  auto options = levin::parse<levin::TrainerOptions>(argc, argv, {.max_epochs = 3, .seed = 1});
  options.callbacks = {levin::model_checkpoint({.monitor = "val_acc", .mode = "max"})};
  levin::Trainer trainer(options);
  const auto module = std::make_shared<FromPython>();
  trainer.fit(module, stripes(2048, true), stripes(256, false));
  const double accuracy = trainer.callback_metrics().at("val_acc");

  const levin::WholeScope whole(*module);  // fsdp has divided it over the processes
  if (trainer.accelerator().is_main_process()) {
    module->net->eval();
    const auto image = torch::randn({4, 1, 8, 8}, trainer.accelerator().device());
    levin::export_program(module->net, {{"image", image}}, "trained.pt2",
                          {.dynamic = {{"image", 0}}});
    std::printf("trained.pt2: val_acc=%.2f\n", accuracy);
  }
}
