// even_batches = false: each training sample is read once per epoch, ranks may have different numbers of
// batches, and each step equals that of one rank whose batch holds the samples of all ranks' batches.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/child_process.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/joined_plugin.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace join_test {
namespace {

using namespace small_run;  // NOLINT
using levin::DataLoader;
using levin::test::error_of;
using levin::test::InShards;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kSamples = 7;

/// In double, by Adam: a step with gradients of zero would show.
struct Counting : levin::Module {
  torch::nn::Linear in{nullptr}, out{nullptr};
  at::Tensor read = torch::zeros({kSamples}, torch::kLong);  ///< how often each sample was read
  double dropout = 0.0;
  int64_t starts = 0, ends = 0, updates = 0;  ///< calls of hooks

  Counting() {
    torch::manual_seed(1);
    in = register_module("in", torch::nn::Linear(6, 4));
    out = register_module("out", torch::nn::Linear(4, 2));
    to(torch::kDouble);
    levin::wrap(in.ptr());
    levin::wrap(out.ptr());
  }
  at::Tensor loss_of(const levin::Batch& batch) {
    const at::Tensor hidden = in->forward(batch["x"].to(torch::kDouble)).tanh();
    return torch::nn::functional::cross_entropy(
        out->forward(torch::dropout(hidden, dropout, is_training())), batch["y"]);
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    for (int64_t i = 0; i < batch.size(); ++i) read[batch["number"][i].item<int64_t>()] += 1;
    const at::Tensor loss = loss_of(batch);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    log("samples", static_cast<double>(batch.size()),
        {.on_step = false, .on_epoch = true, .reduce = "sum"});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss", loss_of(batch));
  }
  bool on_train_batch_start(const levin::Batch& batch, int64_t) override {
    const int64_t size = batch.size();
    starts += size > 0 ? 1 : 1000;
    return true;
  }
  void on_train_batch_end(const at::Tensor& loss, const levin::Batch&, int64_t) override {
    ends += loss.defined() ? 1 : 1000;
  }
  void on_before_optimizer_step(levin::OptimizerHandle&) override { ++updates; }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adam({.lr = 0.05})
        .schedule(levin::optim::cosine({.warmup_steps = 2, .total_steps = 40}));
  }
};

struct Setting {
  std::string strategy = "ddp";
  int64_t batch_size = 2, samples = kSamples;
  levin::CountOrAuto accumulate = 1;
  bool even = false, dispatches = false;
  std::vector<int64_t> shards = {};  ///< of a stream; empty: by index
  bool tells_sizes = false;
};
std::string name_of(const Setting& s) {
  return fmt::format("{}, {} samples in batches of {}, accumulate {}{}{}", s.strategy, s.samples,
                     s.batch_size, to_text(s.accumulate), s.dispatches ? ", dispatched" : "",
                     s.shards.empty() ? ""
                     : s.tells_sizes  ? ", counted stream"
                                      : ", stream");
}

levin::Batch rows_of(const std::vector<int64_t>& numbers) {
  return numbered(kSamples)->get(numbers);
}
std::vector<int64_t> first(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

DataLoader of_numbers(const std::vector<int64_t>& numbers, int64_t batch_size) {
  const levin::Batch rows = rows_of(numbers);
  return {levin::data::tensors({{"x", rows["x"]}, {"y", rows["y"]}, {"number", rows["number"]}}),
          {.batch_size = batch_size}};
}

DataLoader loader_of(const Setting& setting) {
  if (setting.shards.empty()) return of_numbers(first(setting.samples), setting.batch_size);
  auto data = std::make_shared<InShards>(rows_of(first(setting.samples)), setting.shards);
  data->tells_sizes = setting.tells_sizes;
  return {levin::IterableDatasetPtr(data), {.batch_size = setting.batch_size}};
}

levin::TrainerOptions options_of(const Setting& setting, const fs::path& root) {
  auto options = quiet(root.string());
  options.enable_checkpointing = false;
  options.strategy = setting.strategy;
  options.max_epochs = 3;
  options.accumulate_grad_batches = setting.accumulate;
  options.even_batches = setting.even;
  options.dispatch_batches = setting.dispatches;
  options.gradient_clip_val = 0.3;
  return options;
}

struct Trained {
  std::shared_ptr<Counting> net = std::make_shared<Counting>();
  int64_t steps = 0;
  levin::Metrics metrics;
  std::vector<Recorder::Row> rows;  ///< of epochs
  at::Tensor read;                  ///< of all ranks together
};

Trained train(levin::TrainerOptions options, const DataLoader& loader) {
  Trained run;
  const auto recorder = std::make_shared<Recorder>();
  options.logger = recorder;
  levin::Trainer trainer(options);
  trainer.fit(run.net, loader, of_numbers(first(5), 1));
  run.steps = trainer.global_step();
  run.metrics = trainer.callback_metrics();
  for (const Recorder::Row& row : recorder->rows) {
    if (row.name == "loss_epoch" || row.name == "samples") run.rows.push_back(row);
  }
  run.read = trainer.accelerator().reduce(run.net->read, levin::ReduceOp::kSum);
  return run;
}

void keep(const Trained& run, const fs::path& folder) {
  levin::save_weights(folder / "w.safetensors", levin::module_state(*run.net));
  levin::State state;
  state.set("steps", run.steps).set("val_loss", run.metrics.at("val_loss"));
  for (size_t i = 0; i < run.rows.size(); ++i) {
    state.set(fmt::format("{}/{}", run.rows[i].name, run.rows[i].epoch), run.rows[i].value);
  }
  levin::test::put(folder / "kept", [&] {
    std::string text;
    for (const auto& [name, value] : state.values()) {
      text += fmt::format("{} {:.17g}\n", name,
                          name == "steps" ? static_cast<double>(run.steps) : state.number(name));
    }
    return text;
  }());
}

std::map<std::string, double> kept(const fs::path& folder) {
  std::map<std::string, double> values;
  std::istringstream in(levin::test::get(folder / "kept"));
  std::string name;
  for (double value = 0.0; in >> name >> value;) values[name] = value;
  return values;
}

/// "" where weights, steps and the means of epochs are those that were kept, and each sample was read once
/// in each of 3 epochs.
std::string off(const Trained& run, const fs::path& folder, int64_t samples) {
  const at::Tensor wanted = torch::zeros({kSamples}, torch::kLong);
  wanted.narrow(0, 0, samples).fill_(3);
  if (!run.read.equal(wanted)) return c10::str("samples are read so often:\n", run.read);
  auto values = kept(folder);
  if (static_cast<double>(run.steps) != values.at("steps"))
    return fmt::format("{} steps, wanted {}", run.steps, values.at("steps"));
  const auto weights = levin::load_weights(folder / "w.safetensors");
  const auto own = levin::module_state(*run.net);
  for (const auto& [name, value] : weights.values()) {
    const double by = (own.tensor(name) - weights.tensor(name)).abs().max().item<double>();
    if (!(by <= 1e-12)) return fmt::format("{} is off by {}", name, by);
  }
  if (!(std::abs(run.metrics.at("val_loss") - values.at("val_loss")) <= 1e-12)) return "val_loss";
  for (size_t i = 0; i < run.rows.size(); ++i) {
    const double row = values.at(fmt::format("{}/{}", run.rows[i].name, run.rows[i].epoch));
    if (!(std::abs(run.rows[i].value - row) <= 1e-12))
      return fmt::format("{} of epoch {} is {}, wanted {}", run.rows[i].name, run.rows[i].epoch,
                         run.rows[i].value, row);
  }
  return "";
}

/// Trains one rank without the option and without accumulation on these samples, in batches that hold those
/// of a step of all ranks.
void train_alone(const std::vector<int64_t>& numbers, int64_t batch_size, const fs::path& folder) {
  EXPECT_THAT(run_world(1,
                        [&](int64_t, const fs::path&) {
                          keep(train(options_of({.strategy = "single", .even = true}, folder),
                                     of_numbers(numbers, batch_size)),
                               folder);
                          return "";
                        }),
              Each(""));
}

/// In one set of processes, as starting them takes longer than the training.
void expect_like_one_rank(int64_t ranks, const std::vector<Setting>& settings) {
  const Scratch alone;
  for (size_t i = 0; i < settings.size(); ++i) {
    const Setting& setting = settings[i];
    const int64_t batches = std::max<int64_t>(1, setting.accumulate.count());
    fs::create_directories(alone / std::to_string(i));
    train_alone(first(setting.samples), setting.batch_size * ranks * batches,
                alone / std::to_string(i));
  }
  EXPECT_THAT(run_world(ranks,
                        [&](int64_t, const fs::path& folder) {
                          std::string all;  // no rank returns while others train on
                          for (size_t i = 0; i < settings.size(); ++i) {
                            const Trained run =
                                train(options_of(settings[i], folder), loader_of(settings[i]));
                            const std::string words =
                                off(run, alone / std::to_string(i), settings[i].samples);
                            if (!words.empty()) all += name_of(settings[i]) + ": " + words + "\n";
                          }
                          return all;
                        }),
              Each(""))
      << ranks << " ranks";
}

class Join : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Join, ::testing::Values(1, 2, 3));

TEST_P(Join, StepsEqualThoseOfOneRankOverAllRanksBatches) {
  std::vector<Setting> settings;
  for (const char* strategy : {"ddp", "fsdp", "zero"}) {
    for (const int64_t batch_size : {1, 2, 3}) {
      for (const int64_t accumulate : {1, 2}) {
        settings.push_back(
            {.strategy = strategy, .batch_size = batch_size, .accumulate = accumulate});
      }
    }
  }
  expect_like_one_rank(GetParam(), settings);
}

TEST_P(Join, ARankMayHaveNoBatchAtAll) {
  std::vector<Setting> settings;
  for (const char* strategy : {"ddp", "fsdp", "zero"}) {
    settings.push_back({.strategy = strategy, .samples = 1});
    settings.push_back({.strategy = strategy, .samples = 1, .accumulate = 2});
  }
  expect_like_one_rank(GetParam(), settings);
}

TEST_P(Join, WithAutomaticAccumulationAndDispatchedBatches) {
  expect_like_one_rank(GetParam(), {{.batch_size = 1, .accumulate = "auto"},
                                    {.batch_size = 2, .accumulate = "auto"},
                                    {.batch_size = 1, .dispatches = true},
                                    {.batch_size = 2, .accumulate = 2, .dispatches = true}});
}

TEST(JoinStreams, GoOnUntilTheLastRankHasEnded) {
  const Scratch alone;
  train_alone({0, 3, 1, 4, 2}, 2, alone.path());  // shards 0 and 1 side by side; the third is empty
  EXPECT_THAT(
      run_world(3,
                [&](int64_t, const fs::path& folder) -> std::string {
                  std::string all;
                  for (const bool tells : {false, true}) {
                    const Setting setting{
                        .batch_size = 1, .samples = 5, .shards = {3, 2, 0}, .tells_sizes = tells};
                    const std::string words = off(
                        train(options_of(setting, folder), loader_of(setting)), alone.path(), 5);
                    if (!words.empty()) all += name_of(setting) + ": " + words + "\n";
                  }
                  // The rank that logs has ended first.
                  const Setting last{.batch_size = 1, .samples = 3, .shards = {0, 0, 3}};
                  const Trained run = train(options_of(last, folder), loader_of(last));
                  return run.steps == 9 ? all : fmt::format("{}{} steps", all, run.steps);
                }),
      Each(""));
}

TEST(Join, TheDefaultRepeatsSamples) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path& folder) -> std::string {
                          const Setting even{.even = true};
                          const Trained run = train(options_of(even, folder), loader_of(even));
                          const auto reads = run.read.sum().item<int64_t>();
                          return reads == 24 ? "" : fmt::format("{} samples are read", reads);
                        }),
              Each(""));
}

TEST(Join, HooksOfBatchesAreOfTheRanksThatHaveOne) {
  EXPECT_THAT(
      run_world(3,
                [](int64_t rank, const fs::path& folder) -> std::string {
                  int64_t started = 0, without = 0;
                  const Setting setting{.batch_size = 1};  // 3 batches of rank 0, 2 of others
                  auto options = options_of(setting, folder);
                  options.callbacks = {levin::lambda_callback(
                      {.on_train_batch_start = [&](levin::Trainer&, levin::Module&,
                                                   const levin::Batch&, int64_t) { ++started; },
                       .on_train_batch_end =
                           [&](levin::Trainer&, levin::Module&, const at::Tensor& loss,
                               const levin::Batch& batch,
                               int64_t) { without += batch.empty() && !loss.defined() ? 1 : 0; }})};
                  const Trained run = train(options, loader_of(setting));
                  const int64_t own = rank == 0 ? 9 : 6;
                  const bool is_right = run.net->starts == own && run.net->ends == own &&
                                        run.net->updates == 9 && started == 9 && without == 9 - own;
                  return is_right ? ""
                                  : fmt::format("{} {} {} {} {}", run.net->starts, run.net->ends,
                                                run.net->updates, started, without);
                }),
      Each(""));
}

/// 3 ranks: 3 steps of an epoch, the last of which is rank 0's alone. With dropout.
levin::TrainerOptions saving(const Setting& setting, const fs::path& root) {
  auto options = options_of(setting, root);
  options.enable_checkpointing = true;
  options.seed = 5;
  options.callbacks = {
      levin::model_checkpoint({.dirpath = (root / "ckpt").string(), .every_n_train_steps = 1})};
  return options;
}

Trained train_with_dropout(const levin::TrainerOptions& options, const DataLoader& loader) {
  Trained run;
  run.net->dropout = 0.4;
  levin::Trainer trainer(options);
  trainer.fit(run.net, loader);
  run.metrics = trainer.callback_metrics();
  run.steps = trainer.global_step();
  run.read = trainer.accelerator().reduce(run.net->read, levin::ReduceOp::kSum);
  return run;
}

TEST(JoinResume, InTheMiddleOfAnEpochIsBitForBit) {
  EXPECT_THAT(
      run_world(3,
                [](int64_t, const fs::path& folder) -> std::string {
                  std::string all;
                  for (const Setting& setting :
                       {Setting{.batch_size = 1}, Setting{.batch_size = 1, .accumulate = 2},
                        Setting{.strategy = "fsdp", .batch_size = 1},
                        Setting{.batch_size = 1, .dispatches = true},
                        Setting{.batch_size = 1, .samples = 5, .shards = {3, 2, 0}},
                        Setting{.batch_size = 1, .samples = 5, .shards = {0, 2, 3}}}) {
                    const fs::path root = folder / name_of(setting);
                    const Trained whole =
                        train_with_dropout(saving(setting, root / "whole"), loader_of(setting));
                    for (const int64_t stop : {1, 2, 4}) {  // 2: before a step without a batch
                      auto options = saving(setting, root / std::to_string(stop));
                      options.max_steps = stop;
                      train_with_dropout(options, loader_of(setting));
                      options.max_steps = -1;
                      options.ckpt_path = (root / std::to_string(stop) / "ckpt" / "last").string();
                      const Trained rest = train_with_dropout(options, loader_of(setting));
                      const auto a = whole.net->parameters(), b = rest.net->parameters();
                      for (size_t i = 0; i < a.size(); ++i) {
                        if (!torch::equal(a[i], b[i]))
                          all += fmt::format("{}: stopped after {}\n", name_of(setting), stop);
                      }
                      if (rest.metrics.at("loss_epoch") != whole.metrics.at("loss_epoch") ||
                          rest.metrics.at("samples") != static_cast<double>(setting.samples))
                        all += fmt::format("{}: means after {}\n", name_of(setting), stop);
                    }
                  }
                  return all;
                }),
      Each(""));
}

TEST(JoinResume, OnFewerRanksReadsWhatIsLeftOnce) {
  const Scratch scratch;
  EXPECT_THAT(run_world(3,
                        [&](int64_t, const fs::path&) {
                          const Setting setting{.batch_size = 1};
                          auto options = saving(setting, scratch.path());
                          options.max_steps = 2;  // 6 of 7 samples
                          train_with_dropout(options, loader_of(setting));
                          return "";
                        }),
              Each(""));
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const fs::path& folder) -> std::string {
                          const Setting setting{.batch_size = 2};
                          auto options = saving(setting, folder);
                          options.max_epochs = 1;
                          options.ckpt_path = (scratch / "ckpt" / "last").string();
                          const Trained run = train_with_dropout(options, loader_of(setting));
                          const bool is_right = run.steps == 3 &&
                                                run.read.sum().item<int64_t>() == 1 &&
                                                run.read[6].item<int64_t>() == 1;
                          return is_right ? "" : c10::str(run.steps, " steps,\n", run.read);
                        }),
              Each(""));
}

// ---- A module's own weights, and what is refused.

struct Weighing : Counting {
  bool always = true;
  at::Tensor training_step(const levin::Batch& batch) override {
    const auto number = batch["number"][0].item<int64_t>();
    if (always || number < 4) set_loss_weight(static_cast<double>(1 + number));
    return loss_of(batch);
  }
};

TEST(JoinWeights, ThoseOfTheModuleCount) {
  // Samples one by one, weighted, in windows of all: the mean of one rank with such losses.
  const Scratch alone;
  const auto trained = [](int64_t accumulate, const fs::path& root) {
    const auto net = std::make_shared<Weighing>();
    auto options = options_of({.batch_size = 1, .accumulate = accumulate}, root);
    levin::Trainer(options).fit(net, of_numbers(first(kSamples), 1));
    levin::save_weights(root / "w.safetensors", levin::module_state(*net));
  };
  EXPECT_THAT(run_world(1,
                        [&](int64_t, const fs::path&) {
                          trained(3, alone.path());
                          return "";
                        }),
              Each(""));
  EXPECT_THAT(run_world(3,
                        [&](int64_t rank, const fs::path& folder) {
                          const fs::path own = folder / std::to_string(rank);
                          fs::create_directories(own);
                          trained(1, own);
                          return off_by(own / "w.safetensors", alone / "w.safetensors", 1e-12);
                        }),
              Each(""));
}

TEST(JoinWeights, ForSomeBatchesOnlyAreAnError) {
  const auto net = std::make_shared<Weighing>();
  net->always = false;
  auto options = options_of({.strategy = "single", .accumulate = 2}, ".");
  EXPECT_THAT(error_of([&] { levin::Trainer(options).fit(net, of_numbers(first(kSamples), 2)); }),
              HasSubstr("trainer.loss_weight: set_loss_weight was called for some batches"));
}

struct Refused {
  std::string name;
  std::function<void(levin::TrainerOptions&)> change = [](levin::TrainerOptions&) {};
  bool automatic = true;
  levin::OptimizerConfig optimizer = levin::optim::sgd({.lr = 0.1});
  std::string wanted;
};
std::ostream& operator<<(std::ostream& out, const Refused& one) { return out << one.name; }

struct WithOptimizer : Counting {
  levin::OptimizerConfig optimizer_config = levin::optim::sgd({.lr = 0.1});
  levin::OptimizerConfig configure_optimizers() override { return optimizer_config; }
};

class JoinRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(JoinRefuses, WithItsName) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const fs::path& folder) {
                          auto options = options_of({}, folder);
                          options.gradient_clip_val.reset();
                          GetParam().change(options);
                          const auto net = std::make_shared<WithOptimizer>();
                          net->automatic_optimization = GetParam().automatic;
                          net->optimizer_config = GetParam().optimizer;
                          return error_of([&] { levin::Trainer(options).fit(net, loader_of({})); });
                        }),
              Each(StartsWith(GetParam().wanted)));
}

INSTANTIATE_TEST_SUITE_P(
    All, JoinRefuses,
    ::testing::Values(
        Refused{.name = "ManualOptimization",
                .automatic = false,
                .wanted = "trainer.even_batches: got even_batches = false with manual"},
        Refused{.name = "Lbfgs",
                .optimizer = levin::optim::torch_optimizer<torch::optim::LBFGS>(
                    torch::optim::LBFGSOptions(0.5)),
                .wanted = "trainer.even_batches: got even_batches = false with an optimizer that "
                          "computes losses"},
        Refused{.name = "Frequency",
                .optimizer = levin::optim::sgd({.lr = 0.1}).frequency(2),
                .wanted = "trainer.even_batches: got even_batches = false with an optimizer of a "
                          "frequency"},
        Refused{.name = "RecordedSteps",
                .change = [](levin::TrainerOptions& o) { o.engine.compile = "replay"; },
                .wanted = "strategy.join: strategy 'ddp' with recorded steps"},
        Refused{.name = "SynchronizedBatchNorm",
                .change = [](levin::TrainerOptions& o) { o.engine.sync_batchnorm = true; },
                .wanted = "strategy.join: synchronized batch norm"},
        Refused{.name = "GatheredParameters",
                .change =
                    [](levin::TrainerOptions& o) {
                      o.strategy = "fsdp";
                      o.engine.comm.backend = "gloo";
                    },
                .wanted = "strategy.fsdp.join: strategy 'fsdp' over gloo"}),
    [](const auto& info) { return info.param.name; });

// In a process of its own: one that has opened the plugin before cannot be forked.
TEST(JoinRefusals, DISABLED_XlaWithSeveralProcessesHere) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path& folder) {
                          auto options = options_of({.strategy = "auto"}, folder);
                          options.accelerator = "xla";
                          options.engine.pjrt_plugin = levin::test::joined_plugin(1);
                          options.devices = 1;
                          const auto net = std::make_shared<Counting>();
                          return error_of([&] { levin::Trainer(options).fit(net, loader_of({})); });
                        }),
              Each(StartsWith("strategy.join: strategy ")));
}

TEST(JoinRefusals, XlaWithSeveralProcesses) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Scratch scratch;
  EXPECT_EQ(levin::test::run_in_own_process("JoinRefusals.DISABLED_XlaWithSeveralProcessesHere",
                                            scratch.path() / "words"),
            0)
      << levin::test::get(scratch.path() / "words");
}

TEST(JoinRefusals, RecordedStepsWithAccumulationOnOneRank) {
  auto options = options_of({.strategy = "single", .accumulate = 2}, ".");
  options.engine.compile = "replay";
  EXPECT_THAT(
      error_of([&] { levin::Trainer(options).fit(std::make_shared<Counting>(), loader_of({})); }),
      StartsWith("trainer.even_batches: got even_batches = false with --compile"));
}

TEST(JoinOption, IsAFlag) {
  const std::vector<const char*> arguments = {"program", "--even-batches", "false"};
  EXPECT_FALSE(levin::parse<levin::TrainerOptions>(3, arguments.data(), {}).even_batches);
  EXPECT_EQ(levin::options_as_text(levin::TrainerOptions()).at("even_batches"), "true");
}

}  // namespace
}  // namespace join_test
