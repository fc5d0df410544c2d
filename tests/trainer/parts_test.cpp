// accumulate_grad_batches = "auto": a batch that does not fit into memory is trained on in parts, equal to the batch that
// fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "levin/optim/optim.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace parts_test {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kMegabyte = int64_t{1} << 20;

/// Takes about 8 MB for each sample.
struct Wide : levin::Module {
  torch::nn::Linear first{nullptr}, last{nullptr};
  std::vector<int64_t> sizes;  ///< samples of each training step
  bool weighs = false;
  int64_t width = 0;  ///< of the activations for each sample

  explicit Wide(int64_t width = kMegabyte) : width(width) {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(6, 4));
    last = register_module("last", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = first->forward(x);
    // Two tensors of width floats for each sample, whose mean is the hidden value again.
    const at::Tensor wide = hidden.unsqueeze(2).expand({-1, -1, width / 4}).exp();
    return last->forward(wide.log().mean(2));
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    sizes.push_back(batch.size());
    const at::Tensor losses = torch::nn::functional::cross_entropy(
        forward(batch["x"]), batch["y"],
        torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    log("ones", torch::ones({}), {.on_step = true, .on_epoch = false, .reduce = "sum"});
    log("largest", batch["x"].max(), {.on_step = true, .on_epoch = true, .reduce = "max"});
    // A sample counts as its label says.
    const at::Tensor counts = weighs ? batch["y"] + 1 : torch::ones_like(batch["y"]);
    const at::Tensor loss = (losses * counts).sum() / counts.sum();
    log("loss", loss,
        {.on_step = true, .on_epoch = true, .batch_size = counts.sum().item<int64_t>()});
    if (weighs) set_loss_weight(counts.sum());
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2}).schedule(levin::optim::cosine({.total_steps = 20}));
  }
};

struct Setting {
  std::string strategy = "single";
  bool is_auto = true;
  bool weighs = false;
  int64_t samples = 128, batch_size = 64, epochs = 3;
  int64_t width = kMegabyte;
};

struct Outcome {
  std::shared_ptr<Wide> module;
  std::vector<Recorder::Row> rows;
  int64_t steps = 0;
};

Outcome train(const Setting& setting) {
  levin::TrainerOptions options = quiet(".");
  auto recorder = std::make_shared<Recorder>();
  options.logger = recorder;
  options.enable_checkpointing = false;
  options.log_every_n_steps = 1;
  options.strategy = setting.strategy;
  options.max_epochs = setting.epochs;
  options.gradient_clip_val = 0.05;
  if (setting.is_auto) options.accumulate_grad_batches = "auto";
  Outcome run{std::make_shared<Wide>(setting.width)};
  run.module->weighs = setting.weighs;
  levin::Trainer trainer(options);
  trainer.fit(run.module,
              levin::DataLoader(dataset(setting.samples), {.batch_size = setting.batch_size}));
  run.rows = recorder->rows;
  run.steps = trainer.global_step();
  return run;
}

/// Lets this process have so many more bytes.
void limit_memory(int64_t bytes) {
  std::ifstream in("/proc/self/status");
  int64_t used = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmData:")) used = std::stoll(line.substr(7)) * 1024;
  }
  const rlimit limit{static_cast<rlim_t>(used + bytes), static_cast<rlim_t>(used + bytes)};
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) throw std::runtime_error("setrlimit failed");
}

std::string differs(const Outcome& a, const Outcome& b) {
  if (a.steps != b.steps) return c10::str("steps: ", a.steps, " and ", b.steps);
  const auto mine = a.module->parameters(), theirs = b.module->parameters();
  for (size_t i = 0; i < mine.size(); ++i) {
    const double off = (mine[i] - theirs[i]).abs().max().item<double>();
    if (!(off <= 1e-6)) return c10::str("parameter ", i, " is off by ", off);
  }
  return "";
}

/// Rows of the values that are means or maxima.
std::string rows_differ(const Outcome& a, const Outcome& b) {
  if (a.rows.size() != b.rows.size()) return c10::str(a.rows.size(), " rows and ", b.rows.size());
  for (size_t i = 0; i < a.rows.size(); ++i) {
    const auto& [epoch, step, name, value] = a.rows[i];
    if (name != b.rows[i].name || step != b.rows[i].step) return "names";
    if (name != "ones" && !(std::abs(value - b.rows[i].value) <= 1e-6))
      return c10::str(name, " is ", value, " and ", b.rows[i].value);
  }
  return "";
}

/// A batch needs 512 MB beside the small tensors, and 64 MB are there.
std::string train_in_little_memory(Setting setting) {
  setting.is_auto = false;
  const Outcome whole = train(setting);
  if (whole.module->sizes.front() != setting.batch_size) return "the reference is cut";
  setting.is_auto = true;
  limit_memory(64 * kMegabyte);
  const Outcome parts = train(setting);
  const int64_t largest = *std::ranges::max_element(parts.module->sizes);
  if (largest > 8) return c10::str("a part of ", largest, " samples cannot have fitted");
  if (largest < 2) return "the parts stayed at one sample";
  if (std::string words = rows_differ(parts, whole); !words.empty()) return words;
  return differs(parts, whole);
}

TEST(BatchParts, ABatchEightTimesTooLarge) {
  const auto words =
      run_world(1, [](int64_t, const fs::path&) { return train_in_little_memory({}); });
  EXPECT_THAT(words, Each(""));
}

TEST(BatchParts, OnTwoRanks) {
  for (const std::string strategy : {"ddp", "fsdp", "zero"}) {
    const auto words = run_world(2, [&](int64_t, const fs::path&) {
      return train_in_little_memory({.strategy = strategy});
    });
    EXPECT_THAT(words, Each("")) << strategy;
  }
}

TEST(BatchParts, WithWeightsOfTheLoss) {
  const auto words = run_world(
      1, [](int64_t, const fs::path&) { return train_in_little_memory({.weighs = true}); });
  EXPECT_THAT(words, Each(""));
}

TEST(BatchParts, OfAnUnevenBatch) {
  const Setting uneven{.samples = 45, .batch_size = 29, .width = 64};
  Setting whole = uneven;
  whole.is_auto = false;
  const Outcome a = train(uneven), b = train(whole);
  EXPECT_EQ(differs(a, b), "");
  EXPECT_EQ(rows_differ(a, b), "");
  // The first batch is cut, and later ones need not be.
  EXPECT_EQ(a.module->sizes.front(), 1);
  EXPECT_EQ(a.module->sizes.back(), 16);
}

TEST(BatchParts, ABatchThatFitsIsTrainedOnAtOnce) {
  const Outcome run = train({.epochs = 4, .width = 64});
  const std::vector<int64_t>& sizes = run.module->sizes;
  EXPECT_EQ(std::vector<int64_t>(sizes.end() - 6, sizes.end()), std::vector<int64_t>(6, 64));
}

TEST(BatchParts, ValuesThatEachPartAddsAreSummed) {
  const Outcome run = train({.epochs = 1, .width = 64});
  double parts = 0;
  for (const auto& row : run.rows) parts += row.name == "ones" ? row.value : 0;
  EXPECT_EQ(static_cast<size_t>(parts), run.module->sizes.size());
}

TEST(BatchParts, WhatCannotBeCutIsRefusedByName) {
  levin::TrainerOptions options = quiet(".");
  options.accumulate_grad_batches = "auto";
  struct Odd : Wide {
    levin::Batch on_after_batch_transfer(levin::Batch batch) override {
      batch.set("table", torch::ones({3, 3}));
      return batch;
    }
  };
  EXPECT_THAT(error_of([&] {
                levin::Trainer(options).fit(std::make_shared<Odd>(),
                                            levin::DataLoader(dataset(8), {.batch_size = 4}));
              }),
              HasSubstr("trainer.accumulate: accumulate_grad_batches = auto cuts a batch by its "
                        "samples, but dim 0 of 'table' is 3"));
  options.engine.compile = "replay";
  EXPECT_THAT(error_of([&] { levin::Trainer trainer(options); }),
              HasSubstr("with compile = replay"));
}

}  // namespace
}  // namespace parts_test
