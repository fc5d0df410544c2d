// A run of several ranks: equal to one rank, resumed bit for bit, evaluated to the sample, stopped
// together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/small_disk.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Batch norm over all ranks and no dropout: ranks together can equal one.
struct Plain : Net {
  Plain() : Net(0.0) {}
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

levin::TrainerOptions of_ranks(const std::string& root, const std::string& backend = "auto") {
  auto options = quiet(root);
  options.enable_checkpointing = false;
  options.seed = 11;
  options.engine.sync_batchnorm = true;
  options.engine.comm.backend = backend;
  return options;
}

void save(const std::shared_ptr<Net>& net, const fs::path& folder, const std::string& name) {
  levin::save_weights(folder / (name + ".safetensors"), levin::module_state(*net));
}

struct Form {
  std::string name;
  std::string backend = "auto";
  int64_t accumulate = 1;
  bool weigh = false;
  int64_t workers = 0;
};
std::ostream& operator<<(std::ostream& out, const Form& form) { return out << form.name; }

/// 3 epochs over 96 samples, 24 a step on all ranks together.
void train_form(const Form& form, const fs::path& root, const std::string& name) {
  auto options = of_ranks(root.string(), form.backend);
  options.max_epochs = 3;
  options.accumulate_grad_batches = form.accumulate;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Plain>();
  net->weigh = form.weigh;
  const int64_t ranks = trainer.accelerator().rank().world_size;
  const levin::DataLoader loader(
      dataset(96),
      {.batch_size = 24 / ranks / form.accumulate, .shuffle = true, .num_workers = form.workers});
  trainer.fit(net, loader);
  save(net, root, name);
}

class RanksTraining : public ::testing::TestWithParam<Form> {};

TEST_P(RanksTraining, EqualsOneRank) {
  const Form& form = GetParam();
  const Scratch alone;
  // Batch norm sees a micro-batch: as many of them in one process, of all ranks' size.
  ASSERT_THAT(run_world(1,
                        [&](int64_t, const fs::path&) {
                          train_form(form, alone.path(), "alone");
                          return "";
                        }),
              Each(""));
  for (const int64_t ranks : {2, 3, 4}) {
    EXPECT_THAT(run_world(ranks,
                          [&](int64_t rank, const fs::path& folder) {
                            const std::string name = std::to_string(rank);
                            train_form(form, folder, name);
                            return off_by(folder / (name + ".safetensors"),
                                          alone / "alone.safetensors", 1e-6);
                          }),
                Each(""))
        << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RanksTraining,
    ::testing::Values(Form{"Plain"}, Form{.name = "Gloo", .backend = "gloo"},
                      Form{.name = "Accumulated", .accumulate = 2},
                      Form{.name = "Weighted", .weigh = true},
                      Form{.name = "WeightedAndAccumulated", .accumulate = 2, .weigh = true},
                      Form{.name = "Workers", .workers = 2}),
    [](const auto& info) { return info.param.name; });

/// Logs a metric, which counts, beside the accuracy of each batch.
struct Counting : Net {
  std::shared_ptr<levin::metrics::Accuracy> counted = std::make_shared<levin::metrics::Accuracy>();
  void validation_step(const levin::Batch& batch, int64_t index) override {
    Net::validation_step(batch, index);
    counted->update(net->forward(batch["x"]), batch["y"]);
    log("counted", counted);
  }
};

TEST(Ranks, EvaluationIsExactWhateverTheirNumber) {
  for (const int64_t samples : {101, 3}) {
    std::set<std::string> results;
    for (const int64_t ranks : {1, 2, 3, 4}) {
      const auto words = run_world(ranks, [&](int64_t, const fs::path& folder) {
        levin::Trainer trainer(of_ranks(folder.string()));
        const auto metrics = trainer.validate(
            std::make_shared<Counting>(), levin::DataLoader(dataset(samples), {.batch_size = 8}));
        // A mean of batches' means is rounded for each batch.
        return fmt::format("counted={:.17g} val_acc={:.6f}", metrics.at("counted"),
                           metrics.at("val_acc"));
      });
      results.insert(words.begin(), words.end());
    }
    EXPECT_EQ(results.size(), 1U) << ::testing::PrintToString(results);
    EXPECT_THAT(results, Each(StartsWith("counted=0.")));
  }
}

TEST(Ranks, WhatTheyPredictComesBackInTheOrderOfTheData) {
  EXPECT_THAT(run_world(3,
                        [](int64_t, const fs::path&) {
                          levin::Accelerator accelerator({.cpu = true});
                          const auto numbers = torch::arange(20).unsqueeze(1);
                          levin::DataLoader loader(levin::data::tensors({{"x", numbers}}),
                                                   {.batch_size = 3});
                          loader =
                              accelerator.prepare_loader(loader, levin::LoaderRole::kEvaluation);
                          std::vector<at::Tensor> all;
                          levin::Batch batch;
                          for (int i = 0; i < 3; ++i) {
                            const bool left = loader.next(batch);
                            all.push_back(accelerator.gather_for_metrics(
                                left ? batch["x"] : numbers.narrow(0, 0, 0)));
                          }
                          return at::equal(at::cat(all), numbers) ? "" : c10::str(at::cat(all));
                        }),
              Each(""));
}

struct StopAfter : levin::Callback {
  int64_t step;
  explicit StopAfter(int64_t step) : step(step) {}
  std::string state_key() const override { return "stop_after"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.global_step() == step) trainer.request_stop("far enough");
  }
};

/// With dropout, which each rank draws for itself, and values logged over the epoch.
std::string train_noisy(const fs::path& root, int64_t stop_after, const std::string& ckpt_path) {
  auto options = quiet(root.string());
  options.seed = 5;
  options.max_epochs = 3;
  options.log_every_n_steps = 1;
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root.string();
  options.logger = recorder;
  options.callbacks = {levin::model_checkpoint({.dirpath = root.string() + "/ckpt"}),
                       std::make_shared<StopAfter>(stop_after)};
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Net>();
  trainer.fit(net, levin::DataLoader(dataset(100), {.batch_size = 8, .shuffle = true}),
              levin::DataLoader(dataset(30, 6), {.batch_size = 8}), {.ckpt_path = ckpt_path});
  save(net, root, std::to_string(trainer.accelerator().rank().rank));
  std::string rows;
  for (const auto& row : recorder->rows) {
    rows += fmt::format("{} {} {} {:.17g}\n", row.epoch, row.step, row.name, row.value);
  }
  return rows;
}

TEST(Ranks, AResumedRunRepeatsBitForBit) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t rank, const fs::path& folder) {
                  for (const char* name : {"whole", "broken"})
                    fs::create_directories(folder / name);
                  const std::string whole = train_noisy(folder / "whole", -1, "");
                  train_noisy(folder / "broken", 10, "");
                  // What the broken run says at its end about an unfinished epoch is not repeated.
                  const auto last = folder / "broken/ckpt/last";
                  const std::string rest = train_noisy(folder / "broken", -1, last.string());
                  const std::string file = std::to_string(rank) + ".safetensors";
                  const std::string off =
                      off_by(folder / "whole" / file, folder / "broken" / file, 0);
                  if (!off.empty()) return off;
                  const bool same = rest.empty() || whole.ends_with(rest);
                  return same ? std::string() : "logged\n" + rest + "wanted the end of\n" + whole;
                }),
      Each(""));
}

TEST(Ranks, ARunOfTwoIsResumedByThreeAndByOne) {
  for (const int64_t ranks : {1, 3}) {
    const Scratch root;
    EXPECT_THAT(run_world(2,
                          [&](int64_t, const fs::path&) {
                            train_noisy(root.path(), 10, "");
                            return "";
                          }),
                Each(""));
    EXPECT_THAT(run_world(ranks,
                          [&](int64_t, const fs::path& folder) {
                            train_noisy(folder, 12, (root / "ckpt/last").string());
                            return "";
                          }),
                Each(""))
        << ranks;
  }
}

/// Rank r has 3 + 2 r batches, of a gradient of r + 1.
std::string uneven_inputs(int64_t rank, const levin::JoinOptions& options, double wanted) {
  levin::Accelerator accelerator({.cpu = true});
  torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false)));
  {
    const at::NoGradGuard no_grad;
    net->parameters()[0].zero_();
  }
  auto [model, optimizer] = accelerator.prepare(net, levin::optim::sgd({.lr = 1, .momentum = 0.5}));
  // `model` cannot be captured: it is a structured binding.
  auto& forward = model;
  auto& updates = optimizer;
  accelerator.join_uneven_inputs(
      [&, &model = forward, &optimizer = updates] {
        for (int64_t i = 0; i < 3 + 2 * rank; ++i) {
          optimizer.zero_grad();
          accelerator.backward(-double(rank + 1) * model->forward(torch::ones({1, 1})).sum());
          optimizer.step();
        }
      },
      options);
  const double got = net->parameters()[0].item<double>();
  return std::abs(got - wanted) < 1e-5 ? "" : "got " + std::to_string(got);
}

/// The weight after steps of these gradients.
double stepped(const std::vector<double>& gradients) {
  double weight = 0, momentum = 0;
  for (const double gradient : gradients) weight += momentum = 0.5 * momentum + gradient;
  return weight;
}

TEST(Ranks, OneThatHasNoMoreBatchesMakesTheOthersSteps) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const fs::path&) {
                          return uneven_inputs(rank, {}, stepped({1.5, 1.5, 1.5, 1, 1}));
                        }),
              Each(""));
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const fs::path&) {
                          return uneven_inputs(rank, {.divide_by_initial_world_size = false},
                                               stepped({1.5, 1.5, 1.5, 2, 2}));
                        }),
              Each(""));
  EXPECT_THAT(
      run_world(1, [](int64_t rank,
                      const fs::path&) { return uneven_inputs(rank, {}, stepped({1, 1, 1})); }),
      Each(""));
}

TEST(Ranks, BatchNormOverAllNeedsABatchOfEach) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const fs::path&) {
                  levin::Accelerator accelerator({.cpu = true, .engine = {.sync_batchnorm = true}});
                  accelerator.join_uneven_inputs([] {});
                  return "";
                }),
      Each(StartsWith("strategy.join: synchronized batch norm needs")));
}

TEST(Ranks, LogsAndCheckpointsAreWrittenOnce) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path& folder) {
                          auto options = quiet(folder.string());
                          options.logger = true;
                          options.max_epochs = 2;
                          levin::Trainer trainer(options);
                          trainer.fit(std::make_shared<Net>(),
                                      levin::DataLoader(dataset(40), {.batch_size = 8}));
                          trainer.accelerator().wait_for_everyone();
                          const auto runs = levin::test::names_in(folder / "levin_logs");
                          if (runs != std::vector<std::string>{"version_0"}) {
                            return ::testing::PrintToString(runs);
                          }
                          const auto last = folder / "levin_logs/version_0/checkpoints/last";
                          return std::string(fs::exists(last) ? "" : "no checkpoint");
                        }),
              Each(""));
}

struct OnOneRank : levin::Callback {
  std::function<void(levin::Trainer&)> act;
  std::string state_key() const override { return "on_one_rank"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.accelerator().rank().rank == 1 && trainer.global_step() == 3) act(trainer);
  }
};

std::string stopped_at(const fs::path& folder, std::function<void(levin::Trainer&)> act) {
  auto options = quiet(folder.string());
  options.max_epochs = 50;
  auto callback = std::make_shared<OnOneRank>();
  callback->act = std::move(act);
  options.callbacks = {callback};
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(64), {.batch_size = 8}));
  return fmt::format("step {}, signal {}", trainer.global_step(), trainer.interrupted());
}

TEST(Ranks, AStopThatOneAsksForStopsAll) {
  EXPECT_THAT(run_world(3,
                        [](int64_t, const fs::path& folder) {
                          return stopped_at(folder,
                                            [](auto& trainer) { trainer.request_stop("x"); });
                        }),
              Each("step 3, signal 0"));
}

TEST(Ranks, ASignalToOneStopsAllAndTheySave) {
  const Scratch root;
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const fs::path&) {
                          return stopped_at(root.path(), [](auto&) { std::raise(SIGTERM); });
                        }),
              Each("step 3, signal 15"));
  const auto training = levin::load_checkpoint(root / "checkpoints/last").training;
  EXPECT_EQ(training.child("progress").integer("global_step"), 3);
}

TEST(Ranks, DataOfAnotherSizeOnOneRankIsAnError) {
  const auto words = run_world(2, [](int64_t rank, const fs::path& folder) {
    levin::Trainer trainer(of_ranks(folder.string()));
    trainer.fit(std::make_shared<Net>(), levin::DataLoader(dataset(40 + rank), {.batch_size = 8}));
    return "";
  });
  EXPECT_THAT(words[1], StartsWith("data.loader.state"));
}

struct PutsAFile : Net {
  fs::path place;
  explicit PutsAFile(fs::path place) : place(std::move(place)) {}
  void on_train_start() override { levin::test::put(place, ""); }
};

TEST(Ranks, ACheckpointThatCannotBeWrittenIsAnErrorOnAll) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path& folder) {
                          auto options = quiet(folder.string());
                          // A file stands where the folder should be, once training has begun.
                          options.callbacks = {levin::model_checkpoint(
                              {.dirpath = (folder / "taken/ckpt").string()})};
                          options.max_epochs = 1;
                          levin::Trainer trainer(options);
                          trainer.fit(std::make_shared<PutsAFile>(folder / "taken"),
                                      levin::DataLoader(dataset(40), {.batch_size = 8}));
                          return "";
                        }),
              Each(HasSubstr("trainer.checkpoint: step 3 could not be saved")));
}

TEST(Ranks, OtherDevicesThanWereStartedAreAnError) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path& folder) {
                          auto options = of_ranks(folder.string());
                          options.devices = 4;
                          levin::Trainer trainer(options);
                          return "";
                        }),
              Each(StartsWith("accelerator.devices: got --devices 4, but torchrun has started 2")));
  EXPECT_THAT(run_world(1,
                        [](int64_t, const fs::path& folder) {
                          for (const char* name :
                               {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
                            ::unsetenv(name);
                          }
                          auto options = of_ranks(folder.string());
                          options.num_nodes = 2;
                          levin::Trainer trainer(options);
                          return "";
                        }),
              Each(StartsWith(
                  "accelerator.devices: got --num-nodes 2, but no launcher started this program")));
}

}  // namespace
