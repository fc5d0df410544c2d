#pragma once
// A small training run for the trainer's tests: a network with dropout and batch norm on random
// data, whose every step and logged value can be compared.

#include <torch/torch.h>

#include <filesystem>
#include <vector>

#include "levin/base/random.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "levin/observe/logger.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "tests/support/off_disk.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"

namespace small_run {

namespace fs = std::filesystem;
using levin::test::expect_same_weights;
using levin::test::Scratch;

/// Keeps what was logged.
struct Recorder : levin::Logger {
  struct Row {
    int64_t epoch, step;
    std::string name;
    double value;
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> rows;
  std::string folder;

  void log_metrics(const levin::Scalars& values, int64_t epoch, int64_t step) override {
    for (const auto& [name, value] : values) rows.push_back({epoch, step, name, value});
  }
  void log_hyperparams(const std::map<std::string, std::string>&) override {}
  void flush() override {}
  std::string log_dir() const override { return folder; }
};

struct Net : levin::Module {
  torch::nn::Sequential net{nullptr};
  bool weigh = false;
  double dropout = 0.3;

  explicit Net(double dropout = 0.3) : dropout(dropout) {
    net = register_module(
        "net",
        torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                              torch::nn::Dropout(dropout), torch::nn::Linear(8, 3)));
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    auto loss = torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["y"]);
    if (weigh) set_loss_weight(static_cast<double>(batch.size()));
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["x"]), batch["y"]));
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2}).schedule(levin::optim::cosine({.warmup_steps = 3}));
  }
};

inline std::shared_ptr<levin::Dataset> dataset(int64_t size, int64_t seed = 5) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto x = torch::randn({size, 6}, generator);
  return levin::test::off_disk(levin::data::tensors(
      {{"x", x}, {"y", x.sum(1).gt(0).to(torch::kLong) + x.select(1, 0).gt(1)}}));
}

/// Samples that know their number.
inline std::shared_ptr<levin::Dataset> numbered(int64_t size) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto x = torch::randn({size, 6}, generator);
  return levin::test::off_disk(levin::data::tensors(
      {{"x", x}, {"y", x.sum(1).gt(0).to(torch::kLong)}, {"number", torch::arange(size)}}));
}

/// "" where the weights of two files are as near as that.
inline std::string off_by(const fs::path& a, const fs::path& b, double tolerance) {
  const auto mine = levin::load_weights(a), theirs = levin::load_weights(b);
  for (const auto& [name, value] : mine.values()) {
    const double off =
        (mine.tensor(name) - theirs.tensor(name)).abs().max().to(at::kDouble).item<double>();
    if (!(off <= tolerance)) return c10::str(name, " is off by ", off);
  }
  return "";
}

inline levin::TrainerOptions quiet(const std::string& root) {
  levin::TrainerOptions options;
  options.enable_progress_bar = false;
  options.enable_model_summary = false;
  options.logger = false;
  options.num_sanity_val_steps = 0;
  options.default_root_dir = root;
  options.exit_on_signal = false;
  return options;
}

}  // namespace small_run
