// Tuner::lr_find and learning_rate_finder: the rates, what is left of a search, and the fit with the
// rate that was found. tests/oracle/tuner_test.cpp compares the losses with Lightning's.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace lr_find_test {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Without dropout and batch norm: ranks together equal one.
struct Plain : levin::Module {
  torch::nn::Sequential net{nullptr};
  double lr = 0.1;
  double weight = 1.0;  ///< of the loss, to see what the curve is of
  std::vector<int64_t> global_steps;

  Plain() {
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::Tanh(),
                                                       torch::nn::Linear(8, 3)));
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    return weight * torch::nn::functional::cross_entropy(net->forward(batch["x"]), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = lr}); }
};

levin::DataLoader loader(int64_t size = 64, int64_t batch_size = 8) {
  return {dataset(size), {.batch_size = batch_size, .shuffle = true, .seed = 3}};
}

TEST(LrFind, RatesGrowFromTheFirstToTheLast) {
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  const levin::LrFindOptions options{.min_lr = 1e-3,
                                     .max_lr = 1.0,
                                     .num_training = 3,
                                     .mode = "exponential",
                                     .early_stop_threshold = std::nullopt};
  const auto net = std::make_shared<Plain>();
  const levin::LrFinder by_powers = levin::Tuner(trainer).lr_find(net, loader(), options);
  ASSERT_THAT(by_powers.rates, SizeIs(3));
  EXPECT_DOUBLE_EQ(by_powers.rates[0], 1e-3);
  EXPECT_DOUBLE_EQ(by_powers.rates[1], 1e-3 * std::pow(1e3, 2.0 / 3.0));
  EXPECT_DOUBLE_EQ(by_powers.rates[2], 1.0);

  const levin::LrFinder by_steps = levin::Tuner(trainer).lr_find(
      net, loader(), {.min_lr = 0.0, .max_lr = 0.3, .num_training = 3, .mode = "linear"});
  EXPECT_THAT(by_steps.rates, ElementsAre(0.0, testing::DoubleEq(0.2), testing::DoubleEq(0.3)));
}

/// Batches of one class: with these targets and zero weights the loss is log(3), whatever the rate.
struct Constant : Plain {
  using Plain::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    return (net->forward(batch["x"]) * 0.0).sum() + 2.0;
  }
};

// avg = 2 (1 - 0.98^n) after n steps, and Lightning divides by 1 - 0.98^(n + 1).
TEST(LrFind, LossesAreLightningsMovingAverage) {
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  const levin::LrFinder found =
      levin::Tuner(trainer).lr_find(std::make_shared<Constant>(), loader(), {.num_training = 20});
  ASSERT_THAT(found.losses, SizeIs(20));
  for (size_t i = 0; i < 20; ++i) {
    const auto n = static_cast<double>(i + 1);
    EXPECT_NEAR(found.losses[i], 2.0 * (1 - std::pow(0.98, n)) / (1 - std::pow(0.98, n + 1)),
                1e-12);
  }
}

/// Everything that a search must leave as it is: values, flags, gradients, its own state.
struct Seen {
  std::vector<at::Tensor> tensors;
  std::vector<bool> flags;
  at::Tensor random;
  levin::State place;

  Seen(const Net& net, const levin::DataLoader& loader) : place(loader.state_dict()) {
    for (const auto& parameter : net.parameters()) {
      tensors.push_back(parameter.detach().clone());
      if (parameter.grad().defined()) tensors.push_back(parameter.grad().clone());
      flags.push_back(parameter.requires_grad());
      flags.push_back(parameter.grad().defined());
    }
    for (const auto& buffer : net.buffers()) tensors.push_back(buffer.clone());
    for (const auto& part : net.modules()) flags.push_back(part->is_training());
    random = levin::random_state().tensor("cpu").clone();
  }
  void expect_same(const Seen& other) const {
    EXPECT_EQ(flags, other.flags);
    ASSERT_EQ(tensors.size(), other.tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_TRUE(at::equal(tensors[i], other.tensors[i])) << "tensor " << i;
    }
    EXPECT_TRUE(at::equal(random, other.random));
    for (const char* key : {"epoch", "samples", "seed"}) {
      EXPECT_EQ(place.integer(key), other.place.integer(key)) << key;
    }
  }
};

/// Its own state, which steps change and a checkpoint keeps.
struct Counting : Net {
  int64_t count = 0;
  int64_t validations = 0;
  using Net::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    ++count;
    return Net::training_step(batch);
  }
  void validation_step(const levin::Batch&, int64_t) override { ++validations; }
  void on_save_checkpoint(levin::State& state) override { state.set("count", count); }
  void on_load_checkpoint(const levin::State& state) override { count = state.integer("count"); }
};

/// Counts every hook that it is called at.
struct Watcher : levin::Callback {
  int64_t calls = 0;
  std::string state_key() const override { return "watcher"; }
  void setup(levin::Trainer&, levin::Module&, std::string_view) override { ++calls; }
  void on_fit_start(levin::Trainer&, levin::Module&) override { ++calls; }
  void on_train_batch_end(levin::Trainer&, levin::Module&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    ++calls;
  }
};

TEST(LrFind, LeavesEverythingAsItWas) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  const auto watcher = std::make_shared<Watcher>();
  const auto recorder = std::make_shared<Recorder>();
  options.callbacks = {watcher};
  options.logger = recorder;
  options.max_epochs = 1;
  levin::Trainer trainer(options);
  levin::seed_everything(5);
  const auto net = std::make_shared<Counting>();
  trainer.fit(net, loader(), loader(16));  // a step, a best checkpoint, logs: all stay
  const size_t rows = recorder->rows.size();
  const int64_t calls = watcher->calls, validations = net->validations;
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(scratch.path())) {
      names.push_back(entry.path().string());
    }
    std::ranges::sort(names);
    return names;
  };
  const std::vector<std::string> files_before = files();

  auto train = loader();
  levin::Batch batch;
  train.next(batch);
  net->net->forward(batch["x"]).sum().backward();
  net->net[3]->eval();
  net->net[0]->parameters()[1].set_requires_grad(false);
  const Seen before(*net, train);
  const int64_t count = net->count;
  const levin::LrFinder found = levin::Tuner(trainer).lr_find(net, train, {.num_training = 30});
  EXPECT_THAT(found.rates, SizeIs(8));  // max_epochs = 1 ends it, as in Lightning
  before.expect_same(Seen(*net, train));
  EXPECT_EQ(net->count, count);
  EXPECT_EQ(recorder->rows.size(), rows);
  EXPECT_EQ(watcher->calls, calls);
  EXPECT_EQ(net->validations, validations);
  EXPECT_EQ(files(), files_before);
  EXPECT_EQ(trainer.options().logger.list().size(), 1U);
}

TEST(LrFind, LeavesEverythingAsItWasAfterAnError) {
  struct Failing : Net {
    using Net::training_step;
    int64_t steps = 0;
    at::Tensor training_step(const levin::Batch& batch) override {
      if (++steps == 5) throw std::runtime_error("broken");
      return Net::training_step(batch);
    }
  };
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  levin::seed_everything(5);
  const auto net = std::make_shared<Failing>();
  const auto train = loader();
  const Seen before(*net, train);
  EXPECT_THROW(levin::Tuner(trainer).lr_find(net, train), std::runtime_error);
  before.expect_same(Seen(*net, train));
  EXPECT_EQ(trainer.options().max_steps, -1);
}

/// Trains 2 epochs of a net with dropout, batch norm, AdamW and a schedule; searches before.
void train_after_search(const Scratch& scratch, bool searches, const std::string& compile,
                        const std::string& name) {
  auto options = quiet(scratch.str());
  options.enable_checkpointing = false;
  options.max_epochs = 2;
  options.engine.compile = compile;
  levin::Trainer trainer(options);
  levin::seed_everything(5);
  const auto net = std::make_shared<Net>();
  const auto train = loader();
  if (searches) levin::Tuner(trainer).lr_find(net, train, {.num_training = 12});
  trainer.fit(net, train);
  levin::save_weights(scratch.path() / name, *net);
}

TEST(LrFind, AFitAfterwardsIsBitForBitTheFitWithoutIt) {
  for (const char* compile : {"no", "replay"}) {
    const Scratch scratch;
    train_after_search(scratch, false, compile, "without.safetensors");
    train_after_search(scratch, true, compile, "with.safetensors");
    EXPECT_EQ(
        off_by(scratch.path() / "without.safetensors", scratch.path() / "with.safetensors", 0.0),
        "");
  }
}

std::vector<double> losses_of(levin::TrainerOptions options, int64_t batch_size) {
  options.enable_checkpointing = false;
  options.seed = 11;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Plain>();
  return levin::Tuner(trainer)
      .lr_find(net, loader(96, batch_size), {.max_lr = 10.0, .num_training = 40})
      .losses;
}

TEST(LrFind, ReplayedStepsHaveTheRatesToo) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  const std::vector<double> eager = losses_of(options, 8);
  options.engine.compile = "replay";
  const std::vector<double> replayed = losses_of(options, 8);
  EXPECT_THAT(eager, SizeIs(40));
  EXPECT_EQ(eager, replayed);
}

/// Writes the curve of rank 0 as numbers, one a line.
void write_curve(const fs::path& file, const std::vector<double>& losses) {
  std::ofstream out(file);
  out.precision(17);
  for (const double loss : losses) out << loss << "\n";
}
std::vector<double> read_curve(const fs::path& file) {
  std::vector<double> losses;
  std::ifstream in(file);
  for (double loss = 0; in >> loss;) losses.push_back(loss);
  return losses;
}

TEST(LrFind, TwoRanksHaveTheCurveOfOneWithTheirBatches) {
  const Scratch scratch;
  ASSERT_THAT(run_world(1,
                        [&](int64_t, const fs::path&) {
                          write_curve(scratch.path() / "one", losses_of(quiet(scratch.str()), 8));
                          return "";
                        }),
              Each(""));
  const std::vector<double> one = read_curve(scratch.path() / "one");
  ASSERT_THAT(one, SizeIs(40));
  for (const char* strategy : {"ddp", "fsdp"}) {
    ASSERT_THAT(run_world(2,
                          [&](int64_t rank, const fs::path&) {
                            auto options = quiet(scratch.str());
                            options.strategy = strategy;
                            write_curve(scratch.path() / (strategy + std::to_string(rank)),
                                        losses_of(options, 4));
                            return "";
                          }),
                Each(""));
    for (const char* rank : {"0", "1"}) {
      const std::vector<double> two = read_curve(scratch.path() / (std::string(strategy) + rank));
      ASSERT_THAT(two, SizeIs(40)) << strategy;
      for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(two[i], one[i], 2e-6) << strategy << " " << i;
    }
  }
}

/// Weights after 2 epochs, of a fit with or without a search before it, as rank 0 has them.
void train_ranks(const std::string& strategy, bool searches, const fs::path& root) {
  auto options = quiet(root.string());
  options.strategy = strategy;
  options.max_epochs = 2;
  options.seed = 11;
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Plain>();
  const auto train = loader(96, 8);
  if (searches) levin::Tuner(trainer).lr_find(net, train, {.num_training = 12});
  trainer.fit(net, train);
  const levin::State weights = levin::full(*net);
  if (trainer.accelerator().is_main_process()) {
    levin::save_weights(root / (searches ? "with.safetensors" : "without.safetensors"), weights);
  }
}

TEST(LrFind, ShardedAndReplicatedWeightsAreRestored) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    const Scratch scratch;
    for (const bool searches : {false, true}) {
      ASSERT_THAT(run_world(2,
                            [&](int64_t, const fs::path&) {
                              train_ranks(strategy, searches, scratch.path());
                              return "";
                            }),
                  Each(""));
    }
    EXPECT_EQ(
        off_by(scratch.path() / "without.safetensors", scratch.path() / "with.safetensors", 0.0),
        "");
  }
}

TEST(LrFind, StopsWhenTheLossDiverges) {
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  const auto net = std::make_shared<Plain>();
  const levin::LrFindOptions options{.min_lr = 1e-3, .max_lr = 1e6, .num_training = 60};
  const levin::LrFinder found = levin::Tuner(trainer).lr_find(net, loader(), options);
  ASSERT_LT(found.losses.size(), 60U);
  const double best = *std::ranges::min_element(found.losses);
  EXPECT_GT(found.losses.back(), 4.0 * best);
  EXPECT_EQ(found.rates.size(), found.losses.size());
  auto patient = options;
  patient.early_stop_threshold = std::nullopt;
  EXPECT_THAT(levin::Tuner(trainer).lr_find(net, loader(), patient).losses, SizeIs(60));
}

/// Has a loss that is no number in its fifth step.
struct Broken : Plain {
  int64_t calls = 0;
  at::Tensor training_step(const levin::Batch& batch) override {
    const at::Tensor loss = Plain::training_step(batch);
    return ++calls == 5 ? loss * std::nan("") : loss;
  }
};

TEST(LrFind, NeitherRollsBackNorProfiles) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.profiler = "simple";
  options.engine.loss_guard.nan_policy = "rollback";
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Broken>();
  const levin::LrFinder found = levin::Tuner(trainer).lr_find(
      module, loader(), {.num_training = 20, .early_stop_threshold = std::nullopt});
  EXPECT_GE(module->calls, 20);
  EXPECT_THAT(found.losses, SizeIs(20));
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(LrFind, TakesTheLoaderOfAModuleOrDataModule) {
  struct Own : Plain {
    bool has_loader = true;
    std::optional<levin::DataLoader> train_dataloader() override {
      return has_loader ? std::optional(loader()) : std::nullopt;
    }
  };
  struct Data : levin::DataModule {
    int64_t prepared = 0;
    int64_t read = 0;  // its state: a search changes it
    void prepare_data() override { ++prepared; }
    std::optional<levin::DataLoader> train_dataloader() override {
      ++read;
      return loader();
    }
    levin::State state_dict() const override { return std::move(levin::State().set("read", read)); }
    void load_state_dict(const levin::State& state) override { read = state.integer("read") + 10; }
  };
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.seed = 11;
  const auto curve = [&](const auto&... data) {
    levin::Trainer trainer(options);
    return levin::Tuner(trainer)
        .lr_find(std::make_shared<Own>(), data..., levin::LrFindOptions{.num_training = 12})
        .losses;
  };
  const auto data = std::make_shared<Data>();
  const std::vector<double> of_loader = curve(loader());
  EXPECT_THAT(of_loader, SizeIs(12));
  EXPECT_EQ(curve(), of_loader);
  EXPECT_EQ(curve(std::shared_ptr<levin::DataModule>(data)), of_loader);
  EXPECT_EQ(data->prepared, 1);
  EXPECT_EQ(data->read, 11);  // put back to 1
  const auto without = std::make_shared<Own>();
  without->has_loader = false;
  levin::Trainer trainer(options);
  EXPECT_THAT(error_of([&] { levin::Tuner(trainer).lr_find(without); }),
              HasSubstr("trainer.dataloader: got no train_dataloader"));
}

TEST(LrFind, GivesTheSuggestionToUpdateAttr) {
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  const auto net = std::make_shared<Plain>();
  const levin::LrFinder found = levin::Tuner(trainer).lr_find(
      net, loader(), {.num_training = 40, .update_attr = [&](double lr) { net->lr = lr; }});
  ASSERT_TRUE(found.suggestion());
  EXPECT_EQ(net->lr, *found.suggestion());
}

levin::LrFinder made(std::vector<double> rates, std::vector<double> losses) {
  return {.mode = "linear", .rates = std::move(rates), .losses = std::move(losses)};
}

// Slopes of the losses at 0.1 .. 0.5 are -1, -2.5, -4.5, -1.5, 3 by torch.gradient's formula.
TEST(LrFinder, SuggestsTheSteepestFall) {
  const auto found = made({0.1, 0.2, 0.3, 0.4, 0.5}, {1.0, 0.9, 0.5, 0.0, 0.3});
  EXPECT_EQ(found.suggestion(0, 0), 0.3);
  EXPECT_EQ(found.suggestion(0, 1), 0.4);  // at the end the slope is one-sided: -5
  EXPECT_EQ(found.suggestion(3, 0), 0.4);
  EXPECT_EQ(found.suggestion(4, 0), std::nullopt);
  EXPECT_EQ(found.suggestion(), std::nullopt);
  const double nan = std::nan("");
  EXPECT_EQ(made({1, 2, 3, 4}, {nan, 2, 1, nan}).suggestion(0, 0), 2.0);
}

TEST(LrFinder, PlotsWithAMarkAndWritesRows) {
  const Scratch scratch;
  levin::LrFinder found;
  found.mode = "exponential";
  for (int i = 0; i < 30; ++i) {
    found.rates.push_back(1e-6 * std::pow(10.0, i / 6.0));
    found.losses.push_back(i < 20 ? 2.0 - std::tanh((i - 14) / 3.0) : 1.0 + 0.1 * (i - 20));
  }
  found.losses[3] = std::nan("");
  const auto text = [&](const std::string& name) {
    std::ostringstream all;
    all << std::ifstream(scratch.path() / name).rdbuf();
    return all.str();
  };
  found.plot(scratch.path() / "a.svg");
  const std::string suggestion = fmt::format("suggestion: {:.3g}", *found.suggestion());
  EXPECT_THAT(text("a.svg"), HasSubstr(suggestion));
  EXPECT_THAT(text("a.svg"), HasSubstr(">1e-05</text>"));  // a power of ten on the axis
  EXPECT_THAT(text("a.svg"), testing::Not(HasSubstr("nan")));
  found.plot(scratch.path() / "b.svg", /*suggest=*/false);
  EXPECT_THAT(text("b.svg"), testing::Not(HasSubstr("<circle")));
  found.plot(scratch.path() / "c.csv");
  EXPECT_THAT(text("c.csv"), testing::StartsWith("lr,loss\n1e-06,"));
  EXPECT_EQ(std::ranges::count(text("c.csv"), '\n'), 31);
  levin::LrFinder().plot(scratch.path() / "empty.svg");
  EXPECT_THAT(text("empty.svg"), testing::EndsWith("</svg>\n"));
  EXPECT_THAT(error_of([&] { found.plot(scratch.path() / "d.png"); }),
              HasSubstr("trainer.lr_find: got the file"));
}

// The callback.

struct Scheduled : Plain {
  std::vector<double> used;
  std::string optimizer = "sgd";
  levin::OptimizerConfig configure_optimizers() override {
    if (optimizer == "groups") {
      return levin::optim::adamw({.lr = lr}).group("*.bias", {.lr = 7.0, .weight_decay = 0.0});
    }
    if (optimizer == "plateau") {
      return levin::optim::sgd({.lr = lr})
          .schedule(levin::optim::reduce_on_plateau({.monitor = "val_loss"}));
    }
    return levin::optim::sgd({.lr = lr}).schedule(levin::optim::cosine({.warmup_steps = 3}));
  }
  void on_before_optimizer_step(levin::OptimizerHandle& handle) override {
    used.push_back(handle.learning_rate());
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss", training_step(batch));
  }
};

class LearningRateFinder : public ::testing::TestWithParam<const char*> {};

TEST_P(LearningRateFinder, TrainsWithTheSuggestionAsIfItHadBeenConfigured) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.enable_checkpointing = false;
  options.max_epochs = 3;
  const auto finder = levin::learning_rate_finder({.max_lr = 10.0, .num_training = 20});
  options.callbacks = {finder};
  const auto train = [&](const std::shared_ptr<Scheduled>& net) {
    levin::Trainer trainer(options);
    trainer.fit(net, loader(), loader(16));
  };
  levin::seed_everything(5);
  const auto searched = std::make_shared<Scheduled>();
  searched->optimizer = GetParam();
  train(searched);
  ASSERT_TRUE(finder->optimal_lr());
  const std::optional<double> lr = finder->optimal_lr()->suggestion();
  ASSERT_TRUE(lr);

  options.callbacks.clear();
  levin::seed_everything(5);
  struct ByHand : Scheduled {
    levin::OptimizerConfig configure_optimizers() override {
      if (optimizer == "groups") {
        return levin::optim::adamw({.lr = lr}).group("*.bias", {.weight_decay = 0.0});
      }
      return Scheduled::configure_optimizers();
    }
  };
  const auto by_hand = std::make_shared<ByHand>();
  by_hand->optimizer = GetParam();
  by_hand->lr = *lr;
  train(by_hand);
  for (size_t i = 0; i < by_hand->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(searched->parameters()[i], by_hand->parameters()[i])) << i;
  }
  ASSERT_THAT(by_hand->used, SizeIs(24));
  const std::vector<double> of_fit(searched->used.end() - 24, searched->used.end());
  EXPECT_EQ(of_fit, by_hand->used);
}
INSTANTIATE_TEST_SUITE_P(, LearningRateFinder, ::testing::Values("sgd", "groups", "plateau"),
                         [](const auto& each) { return std::string(each.param); });

TEST(LearningRateFinderResumed, KeepsTheRateOfTheCheckpoint) {
  const Scratch scratch;
  const auto fit = [&](int64_t epochs, const std::string& from, const std::string& folder) {
    auto options = quiet(scratch.str() + "/" + folder);
    options.max_epochs = epochs;
    options.callbacks = {levin::learning_rate_finder({.max_lr = 10.0, .num_training = 20})};
    levin::seed_everything(5);
    levin::Trainer trainer(options);
    struct Long : Scheduled {  // its schedule does not depend on the epochs of a run
      levin::OptimizerConfig configure_optimizers() override {
        return levin::optim::sgd({.lr = lr}).schedule(levin::optim::step({.step_size = 5}));
      }
    };
    const auto net = std::make_shared<Long>();
    trainer.fit(net, loader(), std::nullopt, {.ckpt_path = from});
    return net;
  };
  const auto whole = fit(4, "", "whole");
  fit(2, "", "half");
  const auto resumed = fit(4, scratch.str() + "/half/checkpoints/last", "half");
  EXPECT_THAT(resumed->used, SizeIs(16));  // no step of a search
  EXPECT_THAT(whole->used, SizeIs(20 + 32));
  for (size_t i = 0; i < whole->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(whole->parameters()[i], resumed->parameters()[i])) << i;
  }
}

// Bad input.

struct Two : Plain {
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::sgd({}).parameters("net.0.*"),
            levin::optim::sgd({}).parameters("net.2.*")};
  }
};
struct Seldom : Plain {
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::sgd({}).frequency(2);
  }
};
struct Relative : Plain {
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::adafactor({}); }
};

std::string refused(const std::shared_ptr<levin::Module>& net, levin::LrFindOptions find = {},
                    const std::vector<std::shared_ptr<levin::Callback>>& callbacks = {}) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.callbacks = callbacks;
  levin::Trainer trainer(options);
  return error_of([&] { levin::Tuner(trainer).lr_find(net, loader(), find); });
}

TEST(LrFind, RefusesWhatItCannotSearch) {
  const auto net = std::make_shared<Plain>();
  const auto manual = std::make_shared<Plain>();
  manual->automatic_optimization = false;
  EXPECT_THAT(refused(net, {.min_lr = 1.0, .max_lr = 1.0}), HasSubstr("min_lr below max_lr"));
  EXPECT_THAT(refused(net, {.min_lr = -1.0}), HasSubstr("wanted a number above 0"));
  EXPECT_THAT(refused(net, {.min_lr = 0.0}), HasSubstr("with mode = linear also 0"));
  EXPECT_THAT(refused(net, {.num_training = 0}), HasSubstr("num_training = 0"));
  EXPECT_THAT(refused(net, {.mode = "log"}), HasSubstr("wanted exponential or linear"));
  EXPECT_THAT(refused(net, {.early_stop_threshold = 0.0}), HasSubstr("early_stop_threshold"));
  EXPECT_THAT(refused(manual), HasSubstr("manual optimization"));
  EXPECT_THAT(refused(std::make_shared<Two>()), HasSubstr("returned 2 optimizers"));
  EXPECT_THAT(refused(std::make_shared<Seldom>()), HasSubstr("frequency(2)"));
  EXPECT_THAT(refused(std::make_shared<Relative>()), HasSubstr("relative_step"));
  EXPECT_THAT(refused(net, {}, {levin::learning_rate_finder()}),
              HasSubstr("has the callback learning_rate_finder"));
  EXPECT_THAT(refused(nullptr), HasSubstr("trainer.module"));
  EXPECT_THAT(error_of([] { levin::LrFinder().suggestion(-1, 0); }), HasSubstr("skip_begin = -1"));
  EXPECT_THAT(error_of([] { levin::learning_rate_finder({.num_training = -3}); }),
              HasSubstr("num_training = -3"));
}

TEST(LrFind, IsLeftOutInAFastDevRun) {
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.fast_dev_run = 1;
  levin::Trainer trainer(options);
  const levin::LrFinder found =
      levin::Tuner(trainer).lr_find(std::make_shared<Plain>(), loader(), {});
  EXPECT_THAT(found.rates, IsEmpty());
  EXPECT_EQ(found.suggestion(), std::nullopt);
}

TEST(LrFind, IsRefusedInARunOfTheSameTrainer) {
  struct Inside : levin::Callback {
    std::shared_ptr<levin::Module> net;
    std::string said;
    std::string state_key() const override { return "inside"; }
    void on_train_start(levin::Trainer& trainer, levin::Module&) override {
      said = error_of([&] { levin::Tuner(trainer).lr_find(net, loader()); });
    }
  };
  const Scratch scratch;
  auto options = quiet(scratch.str());
  options.enable_checkpointing = false;
  options.max_epochs = 1;
  const auto inside = std::make_shared<Inside>();
  options.callbacks = {inside};
  levin::Trainer trainer(options);
  inside->net = std::make_shared<Plain>();
  trainer.fit(inside->net, loader());
  EXPECT_THAT(inside->said, HasSubstr("trainer.run: a Tuner was called during fit"));
}

}  // namespace
}  // namespace lr_find_test
