// A Trainer and a module tell about a run: sizes of its loops, its callbacks, dtypes, the names
// of rates; and options that set them.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace getters {
namespace {

using levin::test::error_of;
using levin::test::run_world;
using levin::test::Scratch;
using small_run::dataset;
using small_run::Net;
using small_run::quiet;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::StartsWith;

levin::DataLoader loader(int64_t samples, int64_t batch_size = 4) {
  return {dataset(samples), {.batch_size = batch_size}};
}

/// Calls a function at the start of training.
struct AtStart : levin::Callback {
  std::function<void(levin::Trainer&, levin::Module&)> look;
  std::string state_key() const override { return "at_start"; }
  void on_train_start(levin::Trainer& trainer, levin::Module& module) override {
    look(trainer, module);
  }
};

TEST(Getters, TellTheBatchesOfValidationAndOfTheSanityCheck) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_steps = 1;
  options.limit_val_batches = 3;
  options.num_sanity_val_steps = 2;
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), loader(8), std::vector{loader(4), loader(20)});
  EXPECT_THAT(trainer.num_val_batches(), ElementsAre(1, 3));
  EXPECT_THAT(trainer.num_sanity_val_batches(), ElementsAre(1, 2));
  EXPECT_EQ(trainer.node_rank(), 0);
}

TEST(Getters, AMetricThatWasNotLoggedIsAnErrorWithTheNames) {
  const levin::Metrics none;
  EXPECT_THAT(
      error_of([&] { none.at("loss"); }),
      StartsWith("trainer.metric: no metric 'loss' was logged in this run; there are none; "));
  const levin::Metrics some = std::map<std::string, double>{{"val_acc", 0.5}, {"val_loss", 2.0}};
  EXPECT_EQ(some.at("val_acc"), 0.5);
  EXPECT_THAT(error_of([&] { some.at("loss"); }),
              ::testing::HasSubstr("there are val_acc, val_loss; log"));
}

TEST(Getters, TellNoSanityCheckIfThereIsNone) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_steps = 1;
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), loader(8), loader(8));
  EXPECT_THAT(trainer.num_sanity_val_batches(), ElementsAre(0));
  EXPECT_THAT(trainer.num_val_batches(), ElementsAre(2));
}

TEST(Getters, FindCallbacksByClass) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_steps = 1;
  const auto first = levin::model_checkpoint({.save_last = false}),
             second = levin::model_checkpoint({.filename = "{step}-b"});
  const auto stops = levin::early_stopping({.monitor = "val_acc"});
  options.callbacks = {first, stops, second};
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), loader(8), loader(8));
  EXPECT_EQ(trainer.checkpoint_callback(), first);
  EXPECT_EQ(trainer.early_stopping_callback(), stops);
  EXPECT_THAT(trainer.callbacks_of<levin::ModelCheckpoint>(), ElementsAre(first, second));
  EXPECT_THAT(trainer.callbacks_of<levin::EarlyStopping>(), ElementsAre(stops));
}

TEST(Getters, AreNullWithoutSuchACallback) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_steps = 1;
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Net>(), loader(8));
  EXPECT_EQ(trainer.checkpoint_callback(), nullptr);
  EXPECT_EQ(trainer.early_stopping_callback(), nullptr);
}

TEST(NodeRank, IsTheNumberOfTheMachine) {
  const auto words = run_world(2, [](int64_t, const auto& folder) {
    ::setenv("GROUP_RANK", "1", 1);  // as torchrun's second machine
    levin::Trainer trainer(quiet(folder.string()));
    return std::to_string(trainer.node_rank());
  });
  EXPECT_THAT(words, Each("1"));
}

TEST(ModuleDtype, IsThatOfTheParametersInTheRun) {
  for (const auto& [precision, wanted] : {std::pair{"32-true", at::kFloat},
                                          {"64-true", at::kDouble},
                                          {"bf16-true", at::kBFloat16},
                                          {"bf16-mixed", at::kFloat}}) {
    const Scratch scratch;
    levin::TrainerOptions options = quiet(scratch.str());
    options.precision = precision;
    options.max_steps = 1;
    auto looks = std::make_shared<AtStart>();
    at::ScalarType seen = at::kByte;
    looks->look = [&](levin::Trainer&, levin::Module& module) { seen = module.dtype(); };
    options.callbacks = {looks};
    levin::Trainer(options).fit(std::make_shared<Net>(), loader(8));
    EXPECT_EQ(seen, wanted) << precision;
  }
  EXPECT_EQ(std::make_shared<levin::Module>()->dtype(), at::kFloat);
}

/// Two optimizers whose schedules may have names.
struct Named : Net {
  std::vector<std::string> names;
  explicit Named(std::vector<std::string> names) : names(std::move(names)) {
    automatic_optimization = true;
  }
  levin::OptimizerConfig configure_optimizers() override {
    const auto rate = [&](double lr, const std::string& pattern, size_t i) {
      auto config = levin::optim::sgd({.lr = lr});
      config.parameters(pattern);
      if (names[i] != "-") config.schedule(levin::optim::constant().named(names[i]));
      return config;
    };
    return {rate(0.1, "net.0.*", 0), rate(0.2, "net.1.*", 1), rate(0.3, "net.4.*", 2)};
  }
};

std::map<std::string, double> rates_of(std::vector<std::string> names) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  const auto rows = std::make_shared<small_run::Recorder>();
  rows->folder = scratch.str();
  options.logger = rows;
  options.max_steps = 1;
  options.log_every_n_steps = 1;
  options.enable_checkpointing = false;
  options.callbacks = {
      levin::learning_rate_monitor({.logging_interval = "step", .log_key_prefix = "p/"})};
  levin::Trainer(options).fit(std::make_shared<Named>(std::move(names)), loader(8));
  std::map<std::string, double> rates;
  for (const auto& row : rows->rows) {
    if (row.name.starts_with("p/")) rates[row.name] = row.value;
  }
  return rates;
}

// The names are those that Lightning 2.6.6 gives three SGDs in `_find_names_from_schedulers`.
TEST(NamesOfRates, AreThoseOfTheSchedules) {
  using Rates = std::map<std::string, double>;
  EXPECT_EQ(rates_of({"", "", ""}),
            (Rates{{"p/lr-SGD", 0.1}, {"p/lr-SGD-1", 0.2}, {"p/lr-SGD-2", 0.3}}));
  EXPECT_EQ(rates_of({"warm", "", "-"}),
            (Rates{{"p/warm", 0.1}, {"p/lr-SGD", 0.2}, {"p/lr-SGD-1", 0.3}}));
  EXPECT_EQ(rates_of({"", "", "last"}),
            (Rates{{"p/lr-SGD", 0.1}, {"p/lr-SGD-1", 0.2}, {"p/last-1", 0.3}}));
}

TEST(Deterministic, MayWarn) {
  const Scratch scratch;
  const auto set = [&](const levin::Deterministic& value) {
    levin::TrainerOptions options = quiet(scratch.str());
    options.deterministic = value;
    const levin::Trainer trainer(options);
    return std::pair{at::globalContext().deterministicAlgorithms(),
                     at::globalContext().deterministicAlgorithmsWarnOnly()};
  };
  EXPECT_EQ(set("warn"), (std::pair{true, true}));
  EXPECT_EQ(set(true), (std::pair{true, false}));
  EXPECT_EQ(set(false), (std::pair{false, false}));
  EXPECT_EQ(set("true"), (std::pair{true, false}));
  EXPECT_EQ(
      levin::options_as_text(levin::TrainerOptions{.deterministic = "warn"}).at("deterministic"),
      "warn");
  EXPECT_EQ(levin::options_as_text(levin::TrainerOptions{}).at("deterministic"), "false");
  EXPECT_THAT(error_of([] { levin::Deterministic("often"); }),
              StartsWith("base.text: got 'often', wanted true, false or warn"));
}

/// Steps, batches of a window and weights of a run with 48 samples in batches of 4 a rank.
std::string trained(const std::string& root, levin::CountOrAuto accumulate,
                    int64_t train_batch_size) {
  levin::TrainerOptions options = quiet(root);
  options.max_epochs = 2;
  options.enable_checkpointing = false;
  options.accelerator = "cpu";
  options.accumulate_grad_batches = accumulate;
  options.engine.train_batch_size = train_batch_size;
  levin::seed_everything(3);
  const auto net = std::make_shared<Net>(/*dropout=*/0.0);
  levin::Trainer trainer(options);
  trainer.fit(net, loader(48));
  const auto sum = net->parameters()[0].to(at::kDouble).abs().sum().item<double>();
  return fmt::format("{} {} {} {:.10f}", trainer.accumulate_grad_batches(), trainer.global_step(),
                     trainer.estimated_stepping_batches(), sum);
}

TEST(TrainBatchSize, SetsAccumulateGradBatches) {
  const Scratch scratch;
  const std::string by_hand = trained(scratch.str(), 3, 0);
  EXPECT_THAT(by_hand, StartsWith("3 8 8 "));
  EXPECT_EQ(trained(scratch.str(), 1, 12), by_hand);
  EXPECT_EQ(trained(scratch.str(), 3, 12), by_hand);
}

TEST(TrainBatchSize, OfTwoRanksIsThatOfBoth) {
  const auto words = run_world(2, [](int64_t, const auto& folder) {
    const std::string by_hand = trained(folder.string(), 3, 0);
    return trained(folder.string(), 1, 24) == by_hand ? by_hand : "differs from " + by_hand;
  });
  EXPECT_THAT(words, Each(StartsWith("3 4 4 ")));
}

TEST(TrainBatchSize, ThatDoesNotFitIsAnError) {
  const Scratch scratch;
  EXPECT_THAT(
      error_of([&] { trained(scratch.str(), 1, 10); }),
      StartsWith("accelerator.train_batch_size: got train_batch_size = 10, wanted a multiple "
                 "of 4"));
  EXPECT_THAT(
      error_of([&] { trained(scratch.str(), 2, 12); }),
      StartsWith("accelerator.train_batch_size: got train_batch_size = 12 with "
                 "accumulate_grad_batches = 2, but 2 batches of 4 samples on 1 ranks are 8"));
  EXPECT_THAT(
      error_of([&] { trained(scratch.str(), "auto", 12); }),
      StartsWith("trainer.options: got train_batch_size = 12 with accumulate_grad_batches = "
                 "auto"));
}

}  // namespace
}  // namespace getters
