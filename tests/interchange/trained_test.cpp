// A program of torch.export in a Trainer's run: saved, interrupted, resumed, under its own loop of epochs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/module.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/scratch.h"

namespace levin::test::trained_exported {
namespace {

/// linear, dropout: resuming has to have the weights and the place of the random generator.
SmallProgram program() {
  SmallProgram made = small_linear(at::arange(6, at::kFloat).view({2, 3}) * 0.1, at::zeros({2}));
  made.module("drop");
  made.node(
      "torch.ops.aten.dropout.default",
      {{"input", tensor_named("y")}, {"p", {{"as_float", 0.5}}}, {"train", {{"as_bool", true}}}},
      "z", "drop");
  made.graph["outputs"] = json::array({tensor_named("z")});
  made.output_specs[0]["user_output"]["arg"] = tensor_named("z");
  return made;
}

struct Net : Module {
  std::shared_ptr<ExportedModule> net;
  explicit Net(const std::filesystem::path& file)
      : net(register_module("net", load_exported(file))) {}
  at::Tensor training_step(const Batch& batch) override {
    return (net->forward(batch["x"]) - batch["x"].narrow(1, 0, 2)).square().mean();
  }
  void validation_step(const Batch& batch, int64_t) override {
    EXPECT_FALSE(net->is_training());
    log("val", net->forward(batch["x"]).mean());
  }
  OptimizerConfig configure_optimizers() override { return optim::adamw({.lr = 0.05}); }
};

State trained(const std::filesystem::path& root, int64_t epochs, const std::string& ckpt_path) {
  TrainerOptions options;
  options.default_root_dir = root.string();
  options.accelerator = "cpu";
  options.enable_progress_bar = false;
  options.max_epochs = epochs;
  options.seed = 3;
  options.ckpt_path = ckpt_path;
  options.callbacks = {model_checkpoint({.dirpath = (root / "ckpt").string(), .save_last = true})};
  Trainer trainer(options);
  const auto module = std::make_shared<Net>(root / "net.pt2");
  const at::Tensor x = torch::sin(torch::arange(48 * 3).view({48, 3}).to(at::kFloat));
  const DataLoader loader(data::tensors({{"x", x}}), {.batch_size = 8, .shuffle = true});
  trainer.fit(module, loader, loader);
  return module_state(*module);
}

TEST(TrainedExported, ResumedEqualsNoInterruptionBitForBit) {
  const Scratch whole, parts;
  for (const auto* root : {&whole, &parts}) program().write(*root / "net.pt2");
  const State wanted = trained(whole.str(), 3, "");
  trained(parts.str(), 1, "");
  const State resumed = trained(parts.str(), 3, "last");
  ASSERT_TRUE(wanted.contains("net.lin.weight"));
  for (const auto& [name, value] : wanted.values()) {
    EXPECT_TRUE(at::equal(resumed.tensor(name), wanted.tensor(name))) << name;
  }
  const State start = module_state(Net(whole.str() + "/net.pt2"));
  EXPECT_FALSE(at::equal(start.tensor("net.lin.weight"), wanted.tensor("net.lin.weight")));
}

}  // namespace
}  // namespace levin::test::trained_exported
