#pragma once
// A run whose network is a program of torch.export: linear, batch norm with its count, relu, dropout, linear.

#include <filesystem>
#include <memory>

#include "levin/interchange/load_exported.h"
#include "tests/interchange/small_programs.h"
#include "tests/trainer/small_run.h"

namespace exported_run {

/// For small_run's dataset: 6 numbers a row, 3 classes.
inline void write(const std::filesystem::path& file) {
  using namespace levin::test;  // NOLINT
  torch::manual_seed(8);
  SmallProgram made;
  for (const char* module : {"first", "norm", "drop", "last"}) made.module(module);
  made.parameter("first.weight", at::randn({8, 6}) * 0.4);
  made.parameter("first.bias", at::zeros({8}));
  made.parameter("norm.weight", at::ones({8}));
  made.parameter("norm.bias", at::zeros({8}));
  made.parameter("last.weight", at::randn({3, 8}) * 0.4);
  made.parameter("last.bias", at::zeros({3}));
  made.buffer("norm.running_mean", at::zeros({8}));
  made.buffer("norm.running_var", at::ones({8}));
  made.buffer("norm.num_batches_tracked", at::zeros({}));
  made.input("x", meta_of({-1, 6}));
  const auto linear = [&](const std::string& name, const std::string& x, const std::string& y) {
    made.node("torch.ops.aten.linear.default",
              {{"input", tensor_named(x)},
               {"weight", tensor_named("p_" + name + ".weight")},
               {"bias", tensor_named("p_" + name + ".bias")}},
              y, name);
  };
  linear("first", "x", "a");
  made.node("torch.ops.aten.add_.Tensor",
            {{"self", tensor_named("b_norm.num_batches_tracked")}, {"other", {{"as_int", 1}}}},
            "count", "norm");
  made.node("torch.ops.aten.batch_norm.default",
            {{"input", tensor_named("a")},
             {"weight", tensor_named("p_norm.weight")},
             {"bias", tensor_named("p_norm.bias")},
             {"running_mean", tensor_named("b_norm.running_mean")},
             {"running_var", tensor_named("b_norm.running_var")},
             {"training", {{"as_bool", true}}},
             {"momentum", {{"as_float", 0.1}}},
             {"eps", {{"as_float", 1e-5}}},
             {"cudnn_enabled", {{"as_bool", false}}}},
            "b", "norm");
  made.node("torch.ops.aten.relu_.default", {{"self", tensor_named("b")}}, "c");
  made.node(
      "torch.ops.aten.dropout.default",
      {{"input", tensor_named("c")}, {"p", {{"as_float", 0.3}}}, {"train", {{"as_bool", true}}}},
      "d", "drop");
  linear("last", "d", "y");
  made.output("y");
  made.write(file);
}

struct Net : levin::Module {
  std::shared_ptr<levin::ExportedModule> net;

  explicit Net(const std::filesystem::path& file)
      : net(register_module("net", levin::load_exported(file))) {}
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    return torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2}).schedule(levin::optim::cosine({.warmup_steps = 3}));
  }
};

}  // namespace exported_run
