// Each of a user's mistakes and of the world's: a clear error, nothing lost.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <fstream>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/trainer/small_run.h"

namespace {

using levin::test::error_of;
using namespace small_run;  // NOLINT
using ::testing::HasSubstr;

levin::DataLoader train() { return {dataset(40), {.batch_size = 8}}; }

TEST(BadInput, OptionsOutOfRangeAreNamed) {
  struct Case {
    std::string wanted;
    std::function<void(levin::TrainerOptions&)> set;
  };
  for (const Case& one : std::vector<Case>{
           {"trainer.options: got limit_train_batches = 1.5",
            [](auto& o) { o.limit_train_batches = 1.5; }},
           {"trainer.options: got accumulate_grad_batches = 0",
            [](auto& o) { o.accumulate_grad_batches = 0; }},
           {"trainer.options: got max_epochs = -2", [](auto& o) { o.max_epochs = -2; }},
           {"trainer.options: got gradient_clip_algorithm = 'l2'",
            [](auto& o) { o.gradient_clip_algorithm = "l2"; }},
           {"trainer.options: got max_time = 'soon'", [](auto& o) { o.max_time = "soon"; }},
           {"trainer.options: got devices = -1, wanted auto or at least 1",
            [](auto& o) { o.devices = -1; }},
           {"trainer.options: got devices = 0, wanted auto or at least 1",
            [](auto& o) { from_text("0", o.devices); }},
           {"strategy.name: got 'dpp', wanted auto or single", [](auto& o) { o.strategy = "dpp"; }},
           {"accelerator.device: got 'npu', wanted auto, cpu, gpu, tpu or xla",
            [](auto& o) { o.accelerator = "npu"; }},
           {"accelerator.precision: got '8-mixed'", [](auto& o) { o.precision = "8-mixed"; }}}) {
    levin::TrainerOptions options;
    one.set(options);
    EXPECT_THAT(error_of([&] { levin::Trainer trainer(options); }), HasSubstr(one.wanted));
  }
}

TEST(BadInput, AMonitorThatNobodyLogsNamesWhatIsLoggedAndLosesNothing) {
  const Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  options.callbacks = {levin::early_stopping({.monitor = "val_ac"}), levin::model_checkpoint({})};
  levin::Trainer trainer(options);
  const std::string error =
      error_of([&] { trainer.fit(std::make_shared<Net>(), train(), train()); });
  EXPECT_THAT(error, HasSubstr("trainer.monitor: nothing named 'val_ac' was logged"));
  EXPECT_THAT(error, HasSubstr("did you mean 'val_acc'?"));
  EXPECT_EQ(levin::load_checkpoint(root.str() + "/checkpoints/last")
                .training.child("progress")
                .integer("global_step"),
            5);
}

TEST(BadInput, MissingLoadersAndModulesAreNamed) {
  levin::Trainer trainer(quiet("."));
  EXPECT_THAT(error_of([&] { trainer.fit(std::make_shared<Net>()); }),
              HasSubstr("trainer.dataloader: got no train_dataloader"));
  EXPECT_THAT(error_of([&] { trainer.fit(nullptr, train()); }), HasSubstr("trainer.module"));
  EXPECT_THAT(error_of([&] { trainer.global_step(); }), HasSubstr("trainer."));
}

TEST(BadInput, WhatOnlyARunKnowsIsNotAskedOutsideOfOne) {
  const levin::Trainer trainer;
  EXPECT_EQ(levin::test::error_id([&] { trainer.current_epoch(); }), "trainer.run");
}

TEST(BadInput, ALossOfSeveralElementsOrWithoutGraphIsNamed) {
  struct Wrong : Net {
    bool detach = false;
    at::Tensor training_step(const levin::Batch& batch, int64_t) override {
      auto out = net->forward(batch["x"]);
      return detach ? out.sum().detach() : out;
    }
  };
  auto options = quiet(".");
  options.enable_checkpointing = false;
  auto net = std::make_shared<Wrong>();
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(net, train()); }),
              HasSubstr("accelerator.loss: got a loss of shape [8, 3], wanted a scalar"));
  net->detach = true;
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(net, train()); }),
              HasSubstr("accelerator.loss: this loss depends on no parameter"));
}

TEST(BadInput, WhatManualOptimizationIgnoresIsRefused) {
  struct Manual : Net {
    Manual() { automatic_optimization = false; }
  };
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.gradient_clip_val = 1.0;
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(std::make_shared<Manual>(), train()); }),
              HasSubstr("trainer.manual_optimization"));
}

TEST(BadInput, LossWeightsOfOnlySomeBatchesAreRefused) {
  struct Sometimes : Net {
    at::Tensor training_step(const levin::Batch& batch, int64_t index) override {
      weigh = index % 2 == 0;
      return Net::training_step(batch, index);
    }
  };
  auto options = quiet(".");
  options.enable_checkpointing = false;
  options.accumulate_grad_batches = 2;
  EXPECT_THAT(
      error_of([&] { levin::Trainer(options).fit(std::make_shared<Sometimes>(), train()); }),
      HasSubstr("trainer.loss_weight"));
}

/// Where nobody would divide by them.
TEST(BadInput, LossWeightsOfManualStepsAndOfWaitingGradientsAreRefused) {
  struct Manual : Net {
    Manual() {
      automatic_optimization = false;
      weigh = true;
    }
  };
  struct Seldom : Net {
    Seldom() { weigh = true; }
    levin::OptimizerConfig configure_optimizers() override {
      return levin::OptimizerConfig(levin::optim::sgd({.lr = 0.1})).frequency(2);
    }
  };
  auto options = quiet(".");
  options.enable_checkpointing = false;
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(std::make_shared<Manual>(), train()); }),
              HasSubstr("Manual uses manual optimization"));
  EXPECT_THAT(
      error_of([&] { levin::Trainer(options).fit(std::make_shared<Seldom>(), train()); }),
      HasSubstr("trainer.loss_weight: loss weights do not work with an optimizer of frequency 2"));
}

TEST(BadInput, TwoCallbacksOfOneKeyAndAWrongOptimizerIndex) {
  auto options = quiet(".");
  options.callbacks = {levin::early_stopping({.monitor = "loss"}),
                       levin::early_stopping({.monitor = "loss"})};
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(std::make_shared<Net>(), train()); }),
              HasSubstr("trainer.callbacks"));
  struct Reaching : Net {
    at::Tensor training_step(const levin::Batch&, int64_t) override {
      optimizer(3);
      return {};
    }
  };
  options.callbacks.clear();
  options.enable_checkpointing = false;
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(std::make_shared<Reaching>(), train()); }),
              HasSubstr("trainer.optimizer: got optimizer(3), but configure_optimizers gave 1"));
}

/// A finished run's checkpoint folder.
std::string trained(const std::string& root) {
  auto options = quiet(root);
  options.max_epochs = 1;
  levin::Trainer(options).fit(std::make_shared<Net>(), train());
  return root + "/checkpoints/last";
}

std::string resume(const std::string& root, const std::string& ckpt_path) {
  auto options = quiet(root);
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  return error_of([&] {
    levin::Trainer(options).fit(std::make_shared<Net>(), train(), std::nullopt,
                                {.ckpt_path = ckpt_path});
  });
}

void flip_bit(const fs::path& file, int64_t byte) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(byte);
  const char value = static_cast<char>(stream.get() ^ 4);
  stream.seekp(byte);
  stream.put(value);
}

TEST(BadInput, AnyFlippedBitOfACheckpointIsNoticed) {
  const Scratch root;
  const fs::path folder = fs::canonical(trained(root.str()));
  for (const auto& entry : fs::directory_iterator(folder)) {
    const int64_t size = static_cast<int64_t>(fs::file_size(entry.path()));
    for (const int64_t byte : {int64_t{20}, size / 2, size - 3}) {
      flip_bit(entry.path(), byte);
      EXPECT_THAT(resume(root.str(), folder), HasSubstr("checkpoint.corrupt"))
          << entry.path() << byte;
      flip_bit(entry.path(), byte);
    }
  }
  EXPECT_EQ(resume(root.str(), folder), "no error");
}

TEST(BadInput, ATruncatedOrMissingCheckpointIsNamed) {
  const Scratch root;
  const fs::path folder = fs::canonical(trained(root.str()));
  EXPECT_THAT(resume(root.str(), root.str() + "/nowhere"),
              HasSubstr("checkpoint.missing: the checkpoint folder"));
  EXPECT_THAT(resume(root.str(), root.str()), HasSubstr("holds no manifest.json"));
  fs::resize_file(folder / "model.safetensors", 100);
  EXPECT_THAT(resume(root.str(), folder), HasSubstr("model.safetensors: it has 100 bytes, wanted"));
  fs::remove(folder / "model.safetensors");
  EXPECT_THAT(resume(root.str(), folder), HasSubstr("model.safetensors: the file is missing"));
}

TEST(BadInput, AFullDiskLeavesTheCheckpointBeforeAndNamesIt) {
  const Scratch root;
  const int code = levin::test::run_child([&] {
    at::set_num_threads(1);
    std::signal(SIGXFSZ, SIG_IGN);
    struct FullLater : Net {
      void on_train_epoch_start() override {
        // No file may grow past 1 kB from the second epoch on: a disk that is full.
        const rlimit limit{1000, 1000};
        if (current_epoch() == 1) setrlimit(RLIMIT_FSIZE, &limit);
      }
    };
    auto options = quiet(root.str());
    options.max_epochs = 3;
    const std::string error =
        error_of([&] { levin::Trainer(options).fit(std::make_shared<FullLater>(), train()); });
    const bool good =
        error.find("trainer.checkpoint: step 10 could not be saved") != std::string::npos &&
        error.find("checkpoints/epoch=0-step=5") != std::string::npos;
    return good ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  const auto checkpoint = levin::load_checkpoint(root.str() + "/checkpoints/last");
  EXPECT_EQ(checkpoint.training.child("progress").integer("global_step"), 5);
}

TEST(BadInput, TheCheckpointOfAnotherModelOrDataIsRefused) {
  const Scratch root;
  const std::string folder = trained(root.str());
  struct Wider : Net {
    Wider() { register_module("extra", torch::nn::Linear(2, 2)); }
  };
  auto options = quiet(root.str());
  options.enable_checkpointing = false;
  EXPECT_THAT(error_of([&] {
                levin::Trainer(options).fit(std::make_shared<Wider>(), train(), std::nullopt,
                                            {.ckpt_path = folder});
              }),
              HasSubstr("module.state.missing"));
  EXPECT_THAT(error_of([&] {
                levin::Trainer(options).fit(std::make_shared<Net>(),
                                            levin::DataLoader(dataset(17), {.batch_size = 8}),
                                            std::nullopt, {.ckpt_path = folder});
              }),
              HasSubstr("data.loader.state"));
}

}  // namespace
