#pragma once
// What the guides' listings may name without making it: small data, a network, a module.

#include <fstream>
#include <memory>
#include <vector>

#include "tests/interchange/small_programs.h"
#include <levin/levin.h>

namespace given {

/// 64 images of 28 x 28 with a label, in batches of 16.
inline levin::DataLoader loader() {
  return levin::DataLoader(levin::data::tensors({{"image", torch::rand({64, 1, 28, 28})},
                                                 {"label", torch::randint(10, {64})}}),
                           {.batch_size = 16});
}

inline torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 16), torch::nn::ReLU(),
                               torch::nn::Linear(16, 10));
}

struct Classifier : levin::Module {
  torch::nn::Sequential net = register_module("net", given::net());

  torch::Tensor training_step(const levin::Batch& batch) override {
    return torch::nn::functional::cross_entropy(net->forward(batch["image"]), batch["label"]);
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["image"]), batch["label"]));
  }
  torch::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["image"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

/// A file as torch.export.save writes it, of a network from images [N, 1, 28, 28] to 10 classes.
inline void write_exported(const std::string& file) {
  using namespace levin::test;
  SmallProgram program;
  program.module("lin");
  program.classes["lin"] = "torch.nn.modules.linear.Linear";
  program.parameter("lin.weight", torch::rand({10, 784}) * 0.01);
  program.parameter("lin.bias", torch::zeros({10}));
  program.input("image", meta_of({-1, 1, 28, 28}));
  program.node("torch.ops.aten.flatten.using_ints",
               {{"self", tensor_named("image")}, {"start_dim", {{"as_int", 1}}}}, "flat");
  program.node("torch.ops.aten.linear.default",
               {{"input", tensor_named("flat")},
                {"weight", tensor_named("p_lin.weight")},
                {"bias", tensor_named("p_lin.bias")}},
               "y", "lin");
  program.output("y");
  program.write(file);
}

/// Others for that network.
inline void write_exported_weights(const std::string& file) {
  levin::save_weights(file, levin::State()
                                .set("lin.weight", torch::rand({10, 784}) * 0.01)
                                .set("lin.bias", torch::ones({10})));
}

/// Copies, to be compared with what training makes of them.
inline std::vector<torch::Tensor> copies(const torch::nn::Module& module) {
  std::vector<torch::Tensor> values;
  for (const auto& parameter : module.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

inline void check_trained(const std::vector<torch::Tensor>& before,
                          const torch::nn::Module& module) {
  const auto after = module.parameters();
  for (size_t i = 0; i < before.size(); ++i) {
    TORCH_CHECK(!torch::equal(before[i], after[i]), "parameter ", i, " was not trained");
  }
}

}  // namespace given
