// A run whose batches carry the numbers of their samples, and a module that keeps which it saw.
#pragma once

#include <numeric>

#include "tests/trainer/small_run.h"

namespace numbered_run {

using namespace small_run;  // NOLINT

inline levin::TrainerOptions bare() {
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  return options;
}

/// Keeps the numbers of the samples that it sees.
struct Seeing : levin::Module {
  torch::nn::Linear layer{nullptr};
  std::vector<int64_t> trained, validated;

  Seeing() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(1, 1));
  }
  static void note(std::vector<int64_t>& list, const levin::Batch& batch) {
    for (int64_t i = 0; i < batch.size(); ++i) list.push_back(batch["number"][i].item<int64_t>());
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    note(trained, batch);
    return layer->forward(batch["x"]).square().mean();
  }
  void validation_step(const levin::Batch& batch, int64_t) override { note(validated, batch); }
  void test_step(const levin::Batch& batch, int64_t) override { note(validated, batch); }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override { return batch["number"]; }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

inline levin::DataLoader numbers(int64_t count, int64_t batch_size, int64_t from = 0) {
  return {levin::data::tensors(
              {{"x", torch::ones({count, 1})}, {"number", torch::arange(from, from + count)}}),
          {.batch_size = batch_size}};
}

inline std::vector<int64_t> range(int64_t from, int64_t to) {
  std::vector<int64_t> list(static_cast<size_t>(to - from));
  std::iota(list.begin(), list.end(), from);
  return list;
}

}  // namespace numbered_run
