// A run measures about itself: norms of gradients, throughput and FLOPs, statistics of the
// device, the profiler. Runs with and without them are the same, bit for bit.
#include "levin/trainer/callbacks/measures/measures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <map>
#include <set>

#include "levin/graph/cost/flops.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/callbacks/measures/available_flops.h"
#include "levin/trainer/callbacks/measures/device_stats.h"
#include "levin/trainer/callbacks/measures/throughput.h"
#include "levin/trainer/profile/run_profile.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace measures {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Notes the norm of all gradients before each step, in float64.
struct NormNet : Net {
  std::vector<double> norms;
  std::vector<double> of_head;
  explicit NormNet(double dropout = 0.3) : Net(dropout) {}
  void on_before_optimizer_step(levin::OptimizerHandle&) override {
    double sum = 0.0, head = 0.0;
    for (const auto& item : named_parameters()) {
      const double square = item.value().grad().to(at::kDouble).square().sum().item<double>();
      sum += square;
      if (item.key() == "net.4.weight") head = square;
    }
    norms.push_back(std::sqrt(sum));
    of_head.push_back(std::sqrt(head));
  }
};

struct Fitted {
  std::vector<Recorder::Row> rows;
  levin::Metrics metrics;
  std::vector<double> of(const std::string& name) const {
    std::vector<double> values;
    for (const auto& row : rows) {
      if (row.name == name) values.push_back(row.value);
    }
    return values;
  }
  std::vector<int64_t> steps_of(const std::string& name) const {
    std::vector<int64_t> steps;
    for (const auto& row : rows) {
      if (row.name == name) steps.push_back(row.step);
    }
    return steps;
  }
};

Fitted fit(
    const std::shared_ptr<levin::Module>& net,
    std::vector<std::shared_ptr<levin::Callback>> callbacks, const std::string& root,
    const std::function<void(levin::TrainerOptions&)>& change = [](auto&) {},
    bool validates = false) {
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root;
  auto options = quiet(root);
  options.accelerator = "cpu";
  options.logger = recorder;
  options.enable_checkpointing = false;
  options.log_every_n_steps = 1;
  options.max_epochs = 1;
  options.seed = 4;
  options.callbacks = std::move(callbacks);
  change(options);
  levin::Trainer trainer(options);
  std::optional<levin::DataLoader> validation;
  if (validates) validation = levin::DataLoader(dataset(30, 6), {.batch_size = 10});
  trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 8}), validation);
  return {recorder->rows, trainer.callback_metrics()};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5 * wanted[i]) << i;
}

TEST(GradientNormMonitor, LogsNormsOfEachStep) {
  const Scratch root;
  const auto net = std::make_shared<NormNet>();
  const Fitted run = fit(net, {levin::gradient_norm_monitor()}, root.str());
  ASSERT_EQ(net->norms.size(), 8u);
  expect_near(run.of("grad_2.0_norm_total"), net->norms);
  expect_near(run.of("grad_2.0_norm/net.4.weight"), net->of_head);
}

TEST(GradientNormMonitor, LogsByLayerOrTheTotalEveryNSteps) {
  const Scratch root;
  const auto net = std::make_shared<NormNet>();
  Fitted run =
      fit(net, {levin::gradient_norm_monitor({.by = "layer", .every_n_steps = 3})}, root.str());
  EXPECT_THAT(run.steps_of("grad_2.0_norm/net.4"), ::testing::ElementsAre(3, 6));
  EXPECT_THAT(run.of("grad_2.0_norm/net.4.weight"), ::testing::IsEmpty());
  run = fit(std::make_shared<NormNet>(), {levin::gradient_norm_monitor({.by = "total"})},
            root.str(), [](auto& o) { o.log_every_n_steps = 4; });
  EXPECT_THAT(run.steps_of("grad_2.0_norm_total"), ::testing::ElementsAre(4, 8));
  EXPECT_THAT(run.of("grad_2.0_norm/net.4"), ::testing::IsEmpty());
}

TEST(GradientNormMonitor, LogsOnlyStepsThatUpdate) {
  const Scratch root;
  const auto net = std::make_shared<NormNet>();
  const Fitted run = fit(net, {levin::gradient_norm_monitor()}, root.str(),
                         [](auto& o) { o.accumulate_grad_batches = 3; });
  EXPECT_EQ(net->norms.size(), 3u);
  expect_near(run.of("grad_2.0_norm_total"), net->norms);
}

TEST(GradientNormMonitor, SeesUnscaledGradientsBeforeClipping) {
  const Scratch root;
  const auto net = std::make_shared<NormNet>();
  const Fitted run = fit(net, {levin::gradient_norm_monitor()}, root.str(), [](auto& o) {
    o.precision = "16-mixed";
    o.gradient_clip_val = 1e-3;
    o.max_steps = 2;
  });
  ASSERT_FALSE(net->norms.empty());
  expect_near(run.of("grad_2.0_norm_total"), net->norms);
  for (const double norm : net->norms) EXPECT_LT(norm, 100.0);
  for (const double norm : net->norms) EXPECT_GT(norm, 1e-2);
}

TEST(GradientNormMonitor, AReplayedStepLogsItsNorms) {
  const Scratch root;
  const auto run = [&](const std::string& compile, int64_t every) {
    torch::manual_seed(6);
    return fit(std::make_shared<Net>(), {levin::gradient_norm_monitor({.every_n_steps = every})},
               root.str(), [&](auto& o) {
                 o.engine.compile = compile;
                 o.max_epochs = 10;
               });
  };
  for (const int64_t every : {1, 5}) {
    const Fitted eager = run("no", every), replayed = run("replay", every);
    EXPECT_EQ(eager.of("grad_2.0_norm_total").size(), static_cast<size_t>(80 / every));
    EXPECT_EQ(replayed.of("grad_2.0_norm_total"), eager.of("grad_2.0_norm_total"));
    EXPECT_EQ(replayed.of("grad_2.0_norm/net.0.bias"), eager.of("grad_2.0_norm/net.0.bias"));
    EXPECT_EQ(replayed.steps_of("grad_2.0_norm_total"), eager.steps_of("grad_2.0_norm_total"));
  }
}

/// Two optimizers, the second of which clips and steps after the first.
struct TwoOptimizers : NormNet {
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::sgd({.lr = 0.1}).parameters("net.0.*"),
            levin::optim::sgd({.lr = 0.1}).parameters("net.[14].*")};
  }
};

TEST(GradientNormMonitor, TheTotalIsThatOfAllOptimizers) {
  const Scratch root;
  const auto net = std::make_shared<TwoOptimizers>();
  const Fitted run = fit(net, {levin::gradient_norm_monitor()}, root.str());
  ASSERT_EQ(net->norms.size(), 16u);  // at each optimizer; the first has not changed the gradients
  std::vector<double> wanted;
  for (size_t i = 0; i < net->norms.size(); i += 2) wanted.push_back(net->norms[i]);
  expect_near(run.of("grad_2.0_norm_total"), wanted);
  EXPECT_EQ(run.of("grad_2.0_norm/net.0.weight").size(), 8u);
  expect_near(run.of("grad_2.0_norm/net.4.weight"), [&] {
    std::vector<double> head;
    for (size_t i = 0; i < net->of_head.size(); i += 2) head.push_back(net->of_head[i]);
    return head;
  }());
}

TEST(GradientNormMonitor, NormsOfShardedRunsAreThoseOfDdp) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    const auto run = [&](const std::string& strategy, int64_t stage) {
      torch::manual_seed(6);
      return fit(std::make_shared<Net>(0.0), {levin::gradient_norm_monitor()},
                 (folder / strategy).string(), [&](auto& o) {
                   o.strategy = strategy;
                   o.engine.fsdp.zero_stage = stage;
                   o.accumulate_grad_batches = 2;
                 });
    };
    const Fitted wanted = run("ddp", 2);
    // A rank that finds a difference stays for the runs of the others.
    std::string off;
    if (rank == 0 && wanted.of("grad_2.0_norm_total").size() != 2) off = "no norms";
    for (const auto& [strategy, stage] :
         {std::pair<std::string, int64_t>{"fsdp", 2}, {"zero", 1}, {"zero", 2}, {"zero", 3}}) {
      const Fitted got = run(strategy, stage);
      for (const char* name : {"grad_2.0_norm_total", "grad_2.0_norm/net.0.weight",
                               "grad_2.0_norm/net.1.bias", "grad_2.0_norm/net.4.bias"}) {
        const auto mine = got.of(name), theirs = wanted.of(name);
        if (mine.size() != theirs.size()) off += c10::str(strategy, stage, " lacks ", name, "; ");
        for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
          if (std::abs(mine[i] - theirs[i]) <= 1e-5) continue;
          off += c10::str(strategy, stage, " ", name, ": ", mine[i], " for ", theirs[i], "; ");
        }
      }
    }
    return off;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(GradientNormMonitor, OptionsOutOfRangeAreRefused) {
  EXPECT_THAT(error_of([] { levin::gradient_norm_monitor({.norm_type = -1.0}); }),
              StartsWith("optim.grad_norm: got norm_type = -1"));
  EXPECT_THAT(error_of([] { levin::gradient_norm_monitor({.by = "none"}); }),
              StartsWith("optim.grad_norm: got by = 'none'"));
  EXPECT_THAT(error_of([] { levin::gradient_norm_monitor({.every_n_steps = -1}); }),
              StartsWith("optim.grad_norm: got every_n_steps = -1"));
}

/// 6 x 8 and 8 x 3, with the gradient of the input for the second one alone.
constexpr double kFlopsOfBatch = 2.0 * 8 * (6 * 8 * 2 + 8 * 3 * 3);

TEST(ThroughputMonitor, LogsRatesOfAWindowUnderLightningsNames) {
  const Scratch root;
  double now = 0.0;
  const auto clock = [&now] { return now += 0.5; };
  const Fitted run = fit(std::make_shared<Net>(),
                         {levin::throughput_monitor({.length_fn = [](const auto&) { return 80; },
                                                     .window_size = 4,
                                                     .available_flops = 1e5,
                                                     .clock = clock})},
                         root.str());
  EXPECT_THAT(run.of("train/time"), ::testing::ElementsAre(0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4));
  EXPECT_THAT(run.of("train/batches"), ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(run.of("train/samples").back(), 64);
  EXPECT_EQ(run.of("train/lengths").back(), 640);
  EXPECT_THAT(run.steps_of("train/device/batches_per_sec"), ::testing::ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT(run.of("train/device/batches_per_sec"), Each(2.0));
  EXPECT_THAT(run.of("train/device/samples_per_sec"), Each(16.0));
  EXPECT_THAT(run.of("train/device/items_per_sec"), Each(160.0));
  EXPECT_THAT(run.of("train/device/flops_per_sec"), Each(2.0 * kFlopsOfBatch));
  EXPECT_THAT(run.of("train/device/mfu"), Each(2.0 * kFlopsOfBatch / 1e5));
  EXPECT_THAT(run.of("train/batches_per_sec"), ::testing::IsEmpty()) << "on one device";
}

TEST(ThroughputMonitor, NeitherRunsAStepTwiceNorChangesTheRun) {
  const Scratch root;
  torch::manual_seed(1);
  const auto plain = std::make_shared<Net>();
  const Fitted without = fit(plain, {}, root.str(), [](auto& o) { o.max_epochs = 2; }, true);
  torch::manual_seed(1);
  const auto measured = std::make_shared<Net>();
  const Fitted with = fit(
      measured,
      {levin::throughput_monitor({.window_size = 2}), levin::device_stats_monitor(),
       levin::gradient_norm_monitor()},
      root.str(), [](auto& o) { o.max_epochs = 2; }, true);
  EXPECT_EQ(with.of("loss_step"), without.of("loss_step"));
  EXPECT_EQ(with.of("val_acc"), without.of("val_acc"));
  const auto a = plain->named_parameters(), b = measured->named_parameters();
  for (const auto& item : a) EXPECT_TRUE(torch::equal(item.value(), b[item.key()])) << item.key();
  const auto c = plain->named_buffers(), d = measured->named_buffers();
  ASSERT_FALSE(c.is_empty());
  for (const auto& item : c) EXPECT_TRUE(torch::equal(item.value(), d[item.key()])) << item.key();
}

TEST(ThroughputMonitor, CountsFlopsOnceForReplayedStepsToo) {
  const Scratch root;
  for (const char* compile : {"no", "replay"}) {
    double now = 0.0;
    const auto clock = [&now] { return now += 0.5; };
    const Fitted run = fit(std::make_shared<Net>(),
                           {levin::throughput_monitor({.window_size = 2, .clock = clock})},
                           root.str(), [&](auto& o) {
                             o.engine.compile = compile;
                             o.max_epochs = 5;
                           });
    EXPECT_EQ(run.of("train/device/flops_per_sec").size(), 39u);
    EXPECT_THAT(run.of("train/device/flops_per_sec"), Each(2.0 * kFlopsOfBatch)) << compile;
    EXPECT_THAT(run.of("train/device/mfu"), ::testing::IsEmpty()) << "of a CPU";
  }
}

TEST(ThroughputMonitor, FlopsOfABatchMayBeGiven) {
  const Scratch root;
  double now = 0.0;
  const auto clock = [&now] { return now += 0.25; };
  const Fitted run = fit(std::make_shared<Net>(),
                         {levin::throughput_monitor({.batch_size_fn = [](const auto&) { return 3; },
                                                     .window_size = 2,
                                                     .separator = "|",
                                                     .flops_per_batch = 1000.0,
                                                     .clock = clock})},
                         root.str());
  EXPECT_THAT(run.of("train|device|flops_per_sec"), Each(4000.0));
  EXPECT_EQ(run.of("train|samples").back(), 24);
}

TEST(ThroughputMonitor, LogsWhenAnAccumulationWindowIsComplete) {
  const Scratch root;
  const Fitted run = fit(std::make_shared<Net>(), {levin::throughput_monitor({.window_size = 2})},
                         root.str(), [](auto& o) {
                           o.accumulate_grad_batches = 2;
                           o.log_every_n_steps = 2;
                         });
  EXPECT_THAT(run.of("train/batches"), ::testing::ElementsAre(4, 8));
}

TEST(ThroughputMonitor, TheTimeOfAValidationIsNotThatOfTraining) {
  const Scratch root;
  double now = 0.0;
  const auto clock = [&now] { return now += 0.5; };
  const Fitted run = fit(
      std::make_shared<Net>(), {levin::throughput_monitor({.window_size = 2, .clock = clock})},
      root.str(), [](auto& o) { o.val_check_interval = 4; }, true);
  EXPECT_THAT(run.of("validate/batches"), ::testing::ElementsAre(3, 3));
  EXPECT_THAT(run.of("validate/samples"), ::testing::ElementsAre(30, 30));
  EXPECT_THAT(run.of("validate/device/flops_per_sec"), Each(2.0 * 2 * 10 * (6 * 8 + 8 * 3)));
  // 8 batches, and as in Lightning the time from the validation's last batch to the next one.
  EXPECT_EQ(run.of("train/time").back(), 4.0);
}

struct Tester : Net {
  void test_step(const levin::Batch& batch, int64_t index) override {
    validation_step(batch, index);
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["x"]);
  }
};

TEST(ThroughputMonitor, MeasuresTestsAndPredictionsToo) {
  const Scratch root;
  auto options = quiet(root.str());
  options.accelerator = "cpu";
  options.callbacks = {levin::throughput_monitor({.window_size = 2})};
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Tester>();
  const levin::DataLoader loader(dataset(30), {.batch_size = 10});
  trainer.test(net, loader);
  EXPECT_EQ(trainer.callback_metrics().at("test/samples"), 30);
  EXPECT_GT(trainer.callback_metrics().at("test/device/flops_per_sec"), 0.0);
  trainer.predict(net, loader);
  EXPECT_EQ(trainer.callback_metrics().at("predict/batches"), 3);
  trainer.validate(net, loader);
  EXPECT_GT(trainer.callback_metrics().at("validate/device/samples_per_sec"), 0.0);
}

TEST(ThroughputMonitor, SeveralRanksHaveTheRatesOfAll) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    double now = 0.0;
    const double step_s = rank == 0 ? 0.5 : 0.25;
    const auto clock = [&now, step_s] { return now += step_s; };
    const Fitted run = fit(std::make_shared<Net>(0.0),
                           {levin::throughput_monitor({.window_size = 2, .clock = clock})},
                           folder.string(), [](auto& o) { o.strategy = "ddp"; });
    // Rank 0's on both ranks: 2 batches a second, of 8 samples, on each of two ranks.
    const std::map<std::string, double> wanted = {
        {"train/device/batches_per_sec", 2.0},
        {"train/batches_per_sec", 4.0},
        {"train/device/samples_per_sec", 16.0},
        {"train/samples_per_sec", 32.0},
        {"train/device/flops_per_sec", 2.0 * kFlopsOfBatch},
        {"train/flops_per_sec", 4.0 * kFlopsOfBatch}};
    for (const auto& [name, value] : wanted) {
      if (!run.metrics.contains(name)) return "no " + name;
      if (run.metrics.at(name) != value) return c10::str(name, "=", run.metrics.at(name));
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ThroughputMonitor, BadOptionsAndFunctionsAreErrors) {
  EXPECT_THAT(error_of([] { levin::throughput_monitor({.window_size = 1}); }),
              StartsWith("trainer.throughput: got window_size = 1, wanted at least 2"));
  EXPECT_THAT(error_of([] { levin::throughput_monitor({.available_flops = 0.0}); }),
              StartsWith("trainer.throughput: got available_flops = 0"));
  const Scratch root;
  EXPECT_THAT(
      error_of([&] {
        fit(std::make_shared<Net>(),
            {levin::throughput_monitor({.batch_size_fn = [](const levin::Batch&) { return 0; }})},
            root.str());
      }),
      HasSubstr("trainer.throughput: got 0 samples in 1 batches"));
  EXPECT_THAT(
      error_of([&] {
        fit(std::make_shared<Net>(),
            {levin::throughput_monitor({.length_fn = [](const levin::Batch&) { return 1; }})},
            root.str());
      }),
      HasSubstr("trainer.throughput: got 1 items in 8 samples"));
  EXPECT_THAT(error_of([&] {
                fit(std::make_shared<Net>(),
                    {levin::throughput_monitor({.clock = [] { return 1.0; }})}, root.str());
              }),
              HasSubstr("trainer.throughput: got totals that do not grow"));
}

TEST(AvailableFlops, KnowsTpusByTheNamesOfTheirRuntime) {
  using levin::detail::available_flops;
  EXPECT_EQ(available_flops("TPU v4", at::kBFloat16), 275e12);
  EXPECT_EQ(available_flops("TPU v5 lite", at::kFloat), 197e12);
  EXPECT_EQ(available_flops("TPU v5p", at::kBFloat16), 459e12);
  EXPECT_EQ(available_flops("TPU v6 lite", at::kBFloat16), 918e12);
  EXPECT_EQ(available_flops("TPU v9", at::kBFloat16), std::nullopt);
  EXPECT_EQ(available_flops("cpu", at::kFloat), std::nullopt);
  EXPECT_EQ(available_flops("NVIDIA H200", at::kBFloat16), 989.4e12);
  EXPECT_EQ(available_flops("NVIDIA L40", at::kBFloat16), 181e12);
  EXPECT_EQ(available_flops("NVIDIA RTX A4000", at::kFloat), std::nullopt);
}

TEST(FlopCounter, OneAtATimeCounts) {
  levin::graph::FlopCounter first;
  const levin::graph::FlopCounter second;
  torch::ones({2, 3}).mm(torch::ones({3, 4}));
  EXPECT_EQ(first.flops(), 48.0);
  EXPECT_EQ(second.flops(), std::nullopt);
  first.stop();
  const levin::graph::FlopCounter third;
  torch::ones({2, 3}).mv(torch::ones({3}));
  EXPECT_EQ(third.flops(), 12.0);
}

TEST(DeviceStatsMonitor, LogsTheCpuAtTheStartAndTheEndOfSteps) {
  const Scratch root;
  const Fitted run =
      fit(std::make_shared<Net>(), {levin::device_stats_monitor()}, root.str(), [](auto& o) {
        o.log_every_n_steps = 4;
        o.limit_val_batches = 3;
      });
  for (const char* hook : {"on_train_batch_start", "on_train_batch_end"}) {
    const std::string prefix = c10::str("DeviceStatsMonitor.", hook, "/");
    for (const char* name : {"cpu_percent", "cpu_vm_percent", "cpu_swap_percent"}) {
      EXPECT_THAT(run.steps_of(prefix + name), ::testing::ElementsAre(4, 8)) << hook << name;
      EXPECT_THAT(run.of(prefix + name),
                  Each(::testing::AllOf(::testing::Ge(0.0), ::testing::Le(100.0))));
    }
    EXPECT_THAT(run.of(prefix + "cpu_rss_bytes"), Each(::testing::Gt(1e6)));
  }
}

TEST(DeviceStatsMonitor, LogsValidationsAndNothingWithoutCpuStats) {
  const Scratch root;
  Fitted run = fit(
      std::make_shared<Net>(), {levin::device_stats_monitor({.cpu_stats = true})}, root.str(),
      [](auto&) {}, /*validates=*/true);
  EXPECT_EQ(run.of("DeviceStatsMonitor.on_validation_batch_start/cpu_percent").size(), 3u);
  EXPECT_EQ(run.of("DeviceStatsMonitor.on_validation_batch_end/cpu_percent").size(), 3u);
  run =
      fit(std::make_shared<Net>(), {levin::device_stats_monitor({.cpu_stats = false})}, root.str());
  for (const auto& row : run.rows) EXPECT_THAT(row.name, ::testing::Not(HasSubstr("DeviceStats")));
}

TEST(DeviceStatsMonitor, NeedsALogger) {
  const Scratch root;
  EXPECT_THAT(error_of([&] {
                fit(std::make_shared<Net>(), {levin::device_stats_monitor()}, root.str(),
                    [](auto& o) { o.logger = false; });
              }),
              HasSubstr("trainer.device_stats_monitor: got logger = false"));
}

double value_in(const levin::Scalars& values, const std::string& name) {
  for (const auto& one : values) {
    if (one.name == name) return one.value;
  }
  return -1.0;
}

TEST(CpuStats, SeeWhatTheProcessAllocates) {
  levin::detail::CpuStats cpu;
  const levin::Scalars before = cpu.read();
  constexpr double kBytes = 96.0 * 1024 * 1024;
  const at::Tensor memory = torch::ones({int64_t{96} << 20}, at::kByte);
  const levin::Scalars after = cpu.read();
  for (const char* name : {"cpu_rss_bytes", "cpu_pss_bytes"}) {
    const double more = value_in(after, name) - value_in(before, name);
    EXPECT_GT(more, 0.9 * kBytes) << name;
    EXPECT_LT(more, 1.2 * kBytes) << name;
  }
  EXPECT_LE(value_in(after, "cpu_pss_bytes"), value_in(after, "cpu_rss_bytes"));
}

std::string text_in(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(ActionTimes, TheTableHasMeanCallsTotalAndShare) {
  const levin::detail::ActionTimes::Clock::time_point begin;
  levin::detail::ActionTimes times(begin);
  times.add("short", std::chrono::milliseconds(250));
  times.add("a longer name", std::chrono::seconds(1));
  times.add("a longer name", std::chrono::seconds(2));
  EXPECT_EQ(times.table("fit", begin + std::chrono::seconds(4)),
            "FIT Profiler Report\n"
            "---------------------------------------------------------------------------------\n"
            "| Action        | Mean duration (s) | Num calls | Total time (s) | Percentage % |\n"
            "---------------------------------------------------------------------------------\n"
            "| Total         |                 - |         3 |              4 |        100 % |\n"
            "---------------------------------------------------------------------------------\n"
            "| a longer name |               1.5 |         2 |              3 |           75 |\n"
            "| short         |              0.25 |         1 |           0.25 |         6.25 |\n"
            "---------------------------------------------------------------------------------\n");
}

/// Calls by action, from the rows of a table.
std::map<std::string, int64_t> calls_in(const std::string& table) {
  std::map<std::string, int64_t> calls;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '|');) {
      const size_t first = cell.find_first_not_of(' ');
      cells.push_back(first == std::string::npos
                          ? ""
                          : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
    if (cells.size() > 3 && std::isdigit(cells[3][0]) != 0) calls[cells[1]] = std::stoll(cells[3]);
  }
  return calls;
}

TEST(Profiler, SimpleCountsHooksAndActions) {
  const Scratch root;
  fit(
      std::make_shared<Net>(), {levin::gradient_norm_monitor()}, root.str(),
      [](auto& o) {
        o.profiler = "simple";
        o.max_epochs = 2;
        o.accumulate_grad_batches = 2;
      },
      /*validates=*/true);
  const auto calls = calls_in(text_in(root / "fit-simple.txt"));
  const std::map<std::string, int64_t> wanted = {
      {"run_training_epoch", 2},
      {"run_training_batch", 16},
      {"train_dataloader_next", 16},
      {"val_dataloader_next", 6},
      {"[Strategy]single.batch_to_device", 22},
      {"[Strategy]single.training_step", 16},
      {"[Strategy]single.backward", 16},
      {"[Strategy]single.optimizer_step", 8},
      {"[Strategy]single.validation_step", 6},
      {"[Callback]gradient_norm_monitor.on_train_batch_start", 16},
      {"[Callback]gradient_norm_monitor.on_before_optimizer_step", 8},
      {"[Callback]gradient_norm_monitor.on_evaluation_end", 2},
      {"[Callback]gradient_norm_monitor.setup", 1}};
  for (const auto& [action, count] : wanted) {
    ASSERT_TRUE(calls.contains(action)) << action;
    EXPECT_EQ(calls.at(action), count) << action;
  }
  int64_t of_module = 0;
  for (const auto& [action, count] : calls) {
    if (action.starts_with("[LightningModule]") && action.ends_with(".on_train_batch_end")) {
      of_module = count;
    }
    EXPECT_THAT(action, ::testing::Not(::testing::EndsWith(".hook")));
  }
  EXPECT_EQ(of_module, 16);
}

/// Kineto starts a thread, which the end of a process that was forked later would wait for.
void in_a_child(const std::function<void()>& body) {
  const int code = levin::test::run_child([&] {
    at::set_num_threads(1);
    body();
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(code, 0);
}

TEST(Profiler, PytorchTracesThreeStepsOfARun) {
  const Scratch root;
  in_a_child([&] {
    fit(std::make_shared<Net>(), {}, root.str(), [](auto& o) { o.profiler = "pytorch"; });
  });
  const std::string trace = text_in(root / "profile_0.json");
  for (const char* part : {"ProfilerStep#2", "ProfilerStep#4", "aten::addmm",
                           "[levin]run_training_batch", "[levin][Strategy]single.backward"}) {
    EXPECT_THAT(trace, HasSubstr(part));
  }
  EXPECT_THAT(trace, ::testing::Not(HasSubstr("ProfilerStep#5")));
  EXPECT_THAT(text_in(root / "fit-pytorch.txt"), HasSubstr("aten::addmm"));
}

TEST(Profiler, OfAnEvaluationNamesItsStage) {
  const Scratch root;
  auto options = quiet(root.str());
  auto recorder = std::make_shared<Recorder>();
  recorder->folder = root.str();
  options.logger = recorder;
  options.accelerator = "cpu";
  options.profiler = "simple";
  levin::Trainer trainer(options);
  trainer.test(std::make_shared<Tester>(), levin::DataLoader(dataset(30), {.batch_size = 10}));
  const std::string table = text_in(root / "test-simple.txt");
  EXPECT_THAT(table, StartsWith("TEST Profiler Report\n"));
  EXPECT_EQ(calls_in(table).at("[Strategy]single.test_step"), 3);
}

TEST(Profiler, ARunWithoutIsTheSameBitForBit) {
  const Scratch root;
  const auto losses = [&](const std::string& profiler) {
    return fit(std::make_shared<Net>(), {}, root.str(), [&](auto& o) { o.profiler = profiler; })
        .of("loss_step");
  };
  in_a_child([&] {
    torch::manual_seed(2);
    const auto wanted = losses("");
    for (const char* profiler : {"simple", "pytorch"}) {
      torch::manual_seed(2);
      EXPECT_EQ(losses(profiler), wanted) << profiler;
    }
  });
}

TEST(Profiler, OthersAreRefused) {
  const auto error = [](const std::string& profiler, bool barebones = false) {
    return error_of([&] { levin::Trainer({.profiler = profiler, .barebones = barebones}); });
  };
  EXPECT_THAT(error("advanced"), StartsWith("trainer.profiler: got --profiler advanced"));
  EXPECT_THAT(error("fast"),
              StartsWith("trainer.profiler: got --profiler 'fast', wanted simple or pytorch"));
  EXPECT_THAT(error("simple", true),
              StartsWith("trainer.profiler: got --profiler simple with --barebones"));
}

}  // namespace
}  // namespace measures
