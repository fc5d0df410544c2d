// Values logged with sync_dist, rank_zero_only and per class: on two ranks the rows of one, under
// ddp, fsdp and with compile = "replay". And what the Trainer tells its loggers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace logged_ranks {
namespace {

using namespace small_run;  // NOLINT
using levin::test::run_world;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Synced : Net {
  std::shared_ptr<levin::metrics::Recall> recall = std::make_shared<levin::metrics::Recall>(
      levin::metrics::ClassificationOptions{.num_classes = 3, .average = "none"});

  Synced() : Net(0.0) {
    levin::wrap(net->ptr(0));
    levin::wrap(net->ptr(4));
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    const auto loss = torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["y"]);
    const auto number = batch["number"].to(torch::kDouble);
    log("mean", number.mean(), {.prog_bar = true, .on_epoch = true, .sync_dist = true});
    log("sum", number.sum(), {.reduce = "sum", .sync_dist = true});
    log("max", number.max(), {.reduce = "max", .sync_dist = true});
    log("first", number.min(), {.rank_zero_only = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    const auto number = batch["number"].to(torch::kDouble);
    log("val_sum", number.sum(), {.on_step = true, .reduce = "sum", .sync_dist = true});
    // Class 2 is always found and the others never.
    recall->update(torch::full_like(batch["number"], 2), batch["number"] % 3);
    log("recall", recall, {.labels = {"a", "b", "c"}});
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

struct Way {
  std::string name;
  std::string strategy = "ddp";
  std::string compile = "no";
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

/// The rows of two epochs of 6 steps over 48 samples, 8 a step over all ranks; what rank 0 logs by itself is left out.
std::string rows_of(const Way& way, const fs::path& root, double* first = nullptr) {
  torch::manual_seed(9);
  auto options = quiet(root.string());
  const auto recorder = std::make_shared<Recorder>();
  recorder->folder = root.string();
  options.logger = recorder;
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  options.log_every_n_steps = 2;
  options.strategy = way.strategy;
  options.engine.compile = way.compile;
  levin::Trainer trainer(options);
  const int64_t ranks = trainer.accelerator().rank().world_size;
  const levin::DataLoader loader(numbered(48), {.batch_size = 8 / ranks});
  trainer.fit(std::make_shared<Synced>(), loader, loader);
  if (way.compile == "replay" && levin::test::num_replayed(trainer.compile_report()) == 0) {
    return "nothing was replayed";
  }
  std::string rows;
  for (const Recorder::Row& row : recorder->rows) {
    if (row.name == "first" && first != nullptr) *first = row.value;
    if (row.name == "first") continue;
    rows += fmt::format("{} {} {}={}\n", row.epoch, row.step, row.name, row.value);
  }
  return rows;
}

class SyncedRowsOfRanks : public ::testing::TestWithParam<Way> {};

TEST_P(SyncedRowsOfRanks, OfTwoRanksAreThoseOfOne) {
  const Scratch alone;
  const Way& way = GetParam();
  ASSERT_THAT(run_world(1,
                        [&](int64_t, const fs::path&) {
                          levin::test::put(alone / "rows", rows_of(way, alone.path()));
                          return "";
                        }),
              Each(""));
  const std::string wanted = levin::test::get(alone / "rows");
  EXPECT_THAT(wanted, HasSubstr("0 2 mean_step=11.5\n0 2 sum=92\n0 2 max=15\n"));
  EXPECT_THAT(wanted, HasSubstr("recall/a=0\n"));
  EXPECT_THAT(wanted, HasSubstr("recall/b=0\n"));
  EXPECT_THAT(wanted, HasSubstr("recall/c=1\n"));
  EXPECT_THAT(wanted, HasSubstr("val_sum_step=92\n"));
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) {
    double first = -1;
    const std::string rows = rows_of(way, folder, &first);
    if (rank != 0) return rows;
    // The last batch of rank 0 begins with the global one's first sample.
    return first == 40 ? rows : fmt::format("first is {}", first);
  });
  EXPECT_THAT(words, ElementsAre(wanted, ""));
}

INSTANTIATE_TEST_SUITE_P(All, SyncedRowsOfRanks,
                         ::testing::Values(Way{"Ddp"}, Way{"Fsdp", "fsdp"},
                                           Way{"Replay", "ddp", "replay"}),
                         [](const auto& info) { return info.param.name; });

/// Asks to stop on rank 1 alone, whose step then has a row of its own.
struct StopsOneRank : levin::Callback {
  std::string state_key() const override { return "stops_one_rank"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (trainer.accelerator().process_index() == 1 && trainer.global_step() == 3)
      trainer.request_stop("enough");
  }
};

TEST(SyncedRows, ARankThatAsksToStopDoesNotWaitForTheOthers) {
  const auto words = run_world(2, [&](int64_t, const fs::path& root) -> std::string {
    auto options = quiet(root.string());
    const auto recorder = std::make_shared<Recorder>();
    recorder->folder = root.string();
    options.logger = recorder;
    options.enable_checkpointing = false;
    options.max_epochs = 2;
    options.log_every_n_steps = 2;
    options.strategy = "ddp";
    options.callbacks = {std::make_shared<StopsOneRank>()};
    levin::Trainer trainer(options);
    trainer.fit(std::make_shared<Synced>(), levin::DataLoader(numbered(48), {.batch_size = 4}));
    return trainer.global_step() >= 3 && trainer.global_step() < 12 ? "" : "did not stop";
  });
  EXPECT_THAT(words, Each(""));
}

/// Keeps what the Trainer tells it.
struct Told : Recorder {
  std::string words;
  bool fails = false;
  void log_graph(const torch::nn::Module& module) override {
    words += "graph " + module.name() + ";";
  }
  void after_save_checkpoint(const std::string& folder) override {
    words += "saved " + fs::path(folder).filename().string() + ";";
  }
  void finalize(std::string_view status) override {
    words += status;
    words += ';';
    if (fails) throw std::runtime_error("no space");
  }
};

struct Stops : levin::Callback {
  bool throws = false;
  std::string state_key() const override { return "stops"; }
  void on_train_batch_end(levin::Trainer&, levin::Module&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    if (throws) throw std::runtime_error("broken");
    ::raise(SIGTERM);
  }
};

struct Plain : Net {
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

levin::TrainerOptions told_options(const Scratch& root, const std::shared_ptr<Told>& told) {
  auto options = quiet(root.str());
  told->folder = root.str();
  options.logger = told;
  options.max_epochs = 2;
  return options;
}

TEST(LoggersOfARun, AreToldOfModuleCheckpointsAndTheEnd) {
  const Scratch root;
  const auto told = std::make_shared<Told>();
  levin::Trainer trainer(told_options(root, told));
  const levin::DataLoader loader(dataset(8), {.batch_size = 4});
  const auto net = std::make_shared<Plain>();
  trainer.fit(net, loader, loader);
  EXPECT_THAT(told->words,
              ::testing::MatchesRegex("graph .*Plain;saved [^;]*;saved [^;]*;success;"));
  told->words.clear();
  trainer.validate(net, loader);
  EXPECT_EQ(told->words, "success;");
}

TEST(LoggersOfARun, AreToldOfASignalAndOfAnError) {
  for (const bool throws : {false, true}) {
    const Scratch root;
    const auto told = std::make_shared<Told>();
    auto options = told_options(root, told);
    options.enable_checkpointing = false;
    const auto stops = std::make_shared<Stops>();
    stops->throws = throws;
    options.callbacks = {stops};
    try {
      levin::Trainer(options).fit(std::make_shared<Plain>(),
                                  levin::DataLoader(dataset(8), {.batch_size = 4}));
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(throws) << error.what();
    }
    EXPECT_THAT(told->words, HasSubstr(throws ? ";failed;" : ";killed;"));
  }
}

TEST(LoggersOfARun, ThatFailAtItsEndDoNotFailIt) {
  const Scratch root;
  const auto told = std::make_shared<Told>();
  told->fails = true;
  ::testing::internal::CaptureStderr();
  levin::Trainer(told_options(root, told))
      .fit(std::make_shared<Plain>(), levin::DataLoader(dataset(8), {.batch_size = 4}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("trainer: a logger failed at the end of the run: no space"));
}

}  // namespace
}  // namespace logged_ranks
