// 5: --compile replay, which on a card are CUDA graphs, gives what eager gives, bit for bit. The rows are those
// of tests/replay.
#include "levin/graph/replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

#include "levin/graph/record/trace.h"
#include "tests/gpu/tasks.h"
#include "tests/replay/run.h"
#include "tests/support/error_of.h"
#include "tests/support/replayed.h"

namespace levin::test::gpu {
namespace replay_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Settings settings(const std::string& compile) {
  return {{"compile", compile}, {"accelerator", accelerator()}};
}

/// Of a row whose code makes its tensors on the CPU beside those of its batch.
bool is_of_the_cpu(const std::string& error) {
  return ::testing::Matches(::testing::AnyOf(
      HasSubstr("to be on the same device"), HasSubstr("should be a 1D CPU int64 tensor"),
      HasSubstr("expected device cpu but got cuda"), HasSubstr("Expected a 'cuda"),
      HasSubstr("Expected a 'cpu'"),
      HasSubstr("indices should be either on cpu or on the same device"),
      HasSubstr("can't convert cuda")))(error);
}

/// A row whose code reads or writes tensors by pointers of the host, which the card's memory has none of.
bool points_into_memory(const std::string& name) {
  constexpr std::array kOthers = {"ResultByMemcpyOfItsInput", "MaskByAKernelOfTheUsers",
                                  "WrittenBetweenTwoOperators"};
  return name.find("Pointer") != std::string::npos || name.find("Accessor") != std::string::npos ||
         std::ranges::count(kOthers, name) > 0;
}

/// cuDNN looks at the memory of all weights of a recurrent layer, so that a step with one may be refused.
bool is_recurrent(const std::string& name) {
  return !is_dry_run() &&
         (name.find("Lstm") != std::string::npos || name.find("Gru") != std::string::npos);
}
void expect_replayed_or_refused(const graph::CompiledReport& report) {
  EXPECT_TRUE(report.replayed + report.checked > 0 || !report.refusals.empty())
      << "it is neither replayed nor refused";
}

int64_t num_captured(const graph::CompiledReport& report) {
  int64_t count = 0;
  for (const graph::ReplayReport& replay : report.replays) count += replay.num_captured;
  return count;
}

template <class Case>
void expect_as_eager(const Case& row) {
  if (!is_dry_run() && points_into_memory(row.name)) {
    GTEST_SKIP() << "the row is of the CPU: its code points into the memory of tensors";
  }
  const Outcome eager = run(row, settings("no"));
  if (is_of_the_cpu(eager.error)) {
    GTEST_SKIP() << "the row is of the CPU: " << eager.error.substr(0, eager.error.find('\n'));
  }
  ASSERT_EQ(eager.error, "");
  const Outcome came = run(row, settings("replay"));
  const std::string differs = difference(eager, came);
  const auto& report = came.report;
  SCOPED_TRACE(c10::str("replayed ", report.replayed, ", recorded ", report.recorded, ", eager ",
                        report.eager, ", captured ", num_captured(report),
                        report.refusals.empty() ? "" : "; " + report.refusals.front()));
  if (!differs.empty() && came.error.empty()) {
    const std::string by_itself = difference(eager, run(row, settings("no")));
    if (!by_itself.empty()) GTEST_SKIP() << "eager runs of it differ too: " << by_itself;
  }
  if (row.wanted == Wanted::kFoundLater) {
    EXPECT_TRUE(differs.empty() || !report.refusals.empty()) << "silently: " << differs;
    return;
  }
  EXPECT_EQ(differs, "");
  if (is_dry_run()) {
    EXPECT_EQ(unwanted(row, report), "");
    return;
  }
  expect_replayed_or_refused(report);
  if (is_recurrent(row.name)) return;
  if (row.wanted == Wanted::kReplayed) {
    EXPECT_THAT(report.refusals, IsEmpty());
    EXPECT_GT(report.replayed, 0);
    EXPECT_GT(num_captured(report), 0) << "no operator is in a graph of the device";
  }
}

std::vector<StepCase> joined(std::initializer_list<std::vector<StepCase>> lists) {
  std::vector<StepCase> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// What training is made of; the other rows are those of Gpu9WholeTable.
std::vector<StepCase> first_steps() {
  auto rows = joined({ordinary_steps(), checkpointed_steps(), steps_as_advised()});
  mark_refused(rows);
  return rows;
}
std::vector<FunctionCase> first_functions() {
  auto rows = ordinary_functions();
  mark_refused(rows);
  return rows;
}

template <class Case>
class Rows : public OnGpu, public ::testing::WithParamInterface<Case> {};
class Gpu5Steps : public Rows<StepCase> {};
class Gpu5Functions : public Rows<FunctionCase> {};
TEST_P(Gpu5Steps, ReplayedEqualEager) { expect_as_eager(GetParam()); }
TEST_P(Gpu5Functions, ReplayedEqualEager) { expect_as_eager(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Table, Gpu5Steps, ::testing::ValuesIn(first_steps()), row_name);
INSTANTIATE_TEST_SUITE_P(Table, Gpu5Functions, ::testing::ValuesIn(first_functions()), row_name);

/// On the CPU these rows are replay_tests'.
class Gpu9Steps : public Rows<StepCase> {};
class Gpu9Functions : public Rows<FunctionCase> {};
TEST_P(Gpu9Steps, ReplayedEqualEager) {
  LEVIN_NEEDS_A_CARD("reason to run replay_tests' rows again");
  expect_as_eager(GetParam());
}
TEST_P(Gpu9Functions, ReplayedEqualEager) {
  LEVIN_NEEDS_A_CARD("reason to run replay_tests' rows again");
  expect_as_eager(GetParam());
}
INSTANTIATE_TEST_SUITE_P(WholeTable, Gpu9Steps, ::testing::ValuesIn(step_cases()), row_name);
INSTANTIATE_TEST_SUITE_P(WholeTable, Gpu9Functions, ::testing::ValuesIn(function_cases()),
                         row_name);

class Gpu5Replay : public OnGpu {};

/// The card's random numbers: graphs take their places from the generator, and leave it where eager does.
TEST_F(Gpu5Replay, DropoutDrawsWhatEagerDraws) {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor once = torch::dropout(x, 0.5, true);
    return once + torch::rand_like(x) + torch::dropout(x * 2, 0.25, true);
  };
  const at::Tensor x = torch::randn({16, 33}).to(device());
  graph::Replay replay(trace([&](const at::Tensor& in) { return function(in); }, {x}).graph());
  for (uint64_t call = 0; call < 8; ++call) {
    torch::manual_seed(call);
    const at::Tensor wanted = function(x);
    const at::Tensor drawn_then = torch::rand({5}, device());
    torch::manual_seed(call);
    const at::Tensor got = replay({x}).front();
    EXPECT_TRUE(at::equal(got, wanted)) << "call " << call;
    EXPECT_TRUE(at::equal(torch::rand({5}, device()), drawn_then)) << "after call " << call;
  }
  if (!is_dry_run()) {
    EXPECT_GT(replay.report().num_captured, 0);
  }
}

/// Without a new seed: the generator goes on over replays and eager calls between them.
TEST_F(Gpu5Replay, DrawsGoOnAcrossReplaysAndEagerCalls) {
  const auto run = [](const std::string& compile) {
    Accelerator accelerator({.accelerator = gpu::accelerator(), .engine = {.compile = compile}});
    torch::manual_seed(6);
    auto step =
        accelerator.compile([](const at::Tensor& x) { return torch::dropout(x, 0.5, true); });
    std::vector<at::Tensor> results;
    for (int64_t i = 0; i < 24; ++i) {
      results.push_back(step(torch::ones({64 + i % 3}, device())).cpu());
      if (i % 5 == 0) results.push_back(torch::rand({3}, device()).cpu());
    }
    return torch::cat(results);
  };
  EXPECT_TRUE(at::equal(run("replay"), run("no")));
}

struct Loop {
  std::vector<double> losses;
  State weights;
  graph::CompiledReport report;
};

/// A loop of one's own over batches of these sizes.
Loop loop_over(const std::vector<int64_t>& sizes, AcceleratorOptions options) {
  options.accelerator = accelerator();
  Loop loop;
  Accelerator accelerator(options);
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(6, 32), torch::nn::BatchNorm1d(32), torch::nn::GELU(),
                            torch::nn::Dropout(0.3), torch::nn::Linear(32, 3));
  auto [model, optimizer] = accelerator.prepare(
      net,
      optim::adamw({.lr = 1e-2}).schedule(optim::cosine({.warmup_steps = 3, .total_steps = 60})));
  auto step = accelerator.compile([&](const Batch& batch) {
    optimizer.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(model->forward(batch["x"]), batch["y"]);
    accelerator.backward(loss);
    if (accelerator.sync_gradients()) accelerator.clip_grad_norm(0.5);
    optimizer.step();
    return loss.detach();
  });
  const auto random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{9});
  torch::manual_seed(8);
  std::vector<at::Tensor> losses;
  for (const int64_t size : sizes) {
    const auto scope = accelerator.accumulate();
    const at::Tensor x = torch::randn({size, 6}, random);
    const Batch batch{{"x", x.to(device())}, {"y", x.sum(1).gt(0).to(torch::kLong).to(device())}};
    losses.push_back(step(batch));
  }
  loop.losses = numbers(losses);
  loop.weights = on_cpu(*net);
  loop.report = step.report();
  return loop;
}

struct Shapes {
  std::string name;
  std::vector<int64_t> sizes;
  int64_t accumulate = 1;
  int64_t replays = 1;       ///< at least
  std::string refusal = {};  ///< of some calls
};
void PrintTo(const Shapes& of, std::ostream* out) { *out << of.name; }

std::vector<int64_t> sizes_of(int64_t count, const std::function<int64_t(int64_t)>& size) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < count; ++i) sizes.push_back(size(i));
  return sizes;
}

class Gpu5Shapes : public OnGpu, public ::testing::WithParamInterface<Shapes> {};

TEST_P(Gpu5Shapes, ReplayedEqualEager) {
  const Shapes& of = GetParam();
  const Loop eager = loop_over(of.sizes, {.gradient_accumulation_steps = of.accumulate});
  const Loop replayed = loop_over(
      of.sizes, {.gradient_accumulation_steps = of.accumulate, .engine = {.compile = "replay"}});
  EXPECT_EQ(replayed.losses, eager.losses);
  for (const auto& [name, value] : eager.weights.values()) {
    EXPECT_TRUE(at::equal(replayed.weights.tensor(name), eager.weights.tensor(name))) << name;
  }
  if (of.refusal.empty()) {
    EXPECT_THAT(replayed.report.refusals, IsEmpty());
  } else {
    EXPECT_THAT(replayed.report.refusals, ::testing::ElementsAre(HasSubstr(of.refusal)));
  }
  EXPECT_GE(replayed.report.replayed, of.replays);
  if (!is_dry_run()) {
    EXPECT_GT(num_captured(replayed.report), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, Gpu5Shapes,
    ::testing::Values(
        Shapes{"One", sizes_of(40, [](int64_t) { return 8; }), 1, 20},
        Shapes{"TwoInTurns", sizes_of(60, [](int64_t i) { return i % 2 == 0 ? 8 : 5; }), 1, 30},
        Shapes{"Growing", sizes_of(60, [](int64_t i) { return 4 + 4 * (i / 15); }), 1, 20},
        Shapes{"GrowingThenSmallAgain",
               sizes_of(72, [](int64_t i) { return i < 48 ? 8 + 8 * (i / 12) : 8; }), 1, 20},
        Shapes{"Accumulated", sizes_of(60, [](int64_t) { return 8; }), 3, 20},
        Shapes{"OfMoreThanRecordings", sizes_of(180, [](int64_t i) { return 4 + i % 18; }), 1, 16,
               "there are 16 recordings of it, and none fits this call, in which x is f32["}),
    [](const auto& info) { return info.param.name; });

/// Several graphs of several shapes share a pool of the card's memory; what one leaves must last.
TEST_F(Gpu5Replay, ResultsLastWhileOtherShapesAreReplayed) {
  Accelerator accelerator({.accelerator = gpu::accelerator(), .engine = {.compile = "replay"}});
  auto function = accelerator.compile([](const at::Tensor& x) {
    const auto [sorted, order] = (x * 3).sort();
    return std::tuple(sorted + 1, order);
  });
  std::vector<std::tuple<at::Tensor, at::Tensor, at::Tensor>> all;
  for (int64_t i = 0; i < 40; ++i) {
    const at::Tensor x = torch::randn({3 + i % 3, 50}).to(device());
    const auto [sorted, order] = function(x);
    all.emplace_back(x, sorted, order);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [x, sorted, order] = all[i];
    const auto [wanted, wanted_order] = (x * 3).sort();
    EXPECT_TRUE(at::equal(sorted, wanted + 1)) << i;
    EXPECT_TRUE(at::equal(order, wanted_order)) << i;
  }
}

TEST_F(Gpu5Replay, IsRefusedByName) {
  const auto told = [](AcceleratorOptions options) {
    options.accelerator = accelerator();
    options.engine.compile = "replay";
    return told_by([&] { Accelerator accelerator(options); });
  };
  EXPECT_THAT(told({.mixed_precision = "fp16"}),
              StartsWith("accelerator.compile: 16-mixed checks in each step whether gradients are "
                         "finite, but a recorded step cannot; set --precision bf16-mixed"));
  EXPECT_THAT(told({.engine = {.loss_guard = {.nan_policy = "skip"}}}),
              StartsWith("accelerator.compile: --nan-policy and --spike-policy check each loss"));
  // On CPUs it is supported, where ranks share memory.
  if (std::string_view(accelerator()) != "cpu") {
    EXPECT_THAT(told({.strategy = "fsdp"}),
                AllOf(StartsWith("strategy.fsdp.options: strategy 'fsdp' supports --compile replay "
                                 "where all ranks share memory"),
                      HasSubstr("--strategy ddp")));
  }
  EXPECT_THAT(told_by([&] {
                AcceleratorOptions options;
                options.accelerator = accelerator();
                options.engine.activation_memory_budget = 0.5;
                Accelerator accelerator(options);
              }),
              StartsWith("accelerator.compile: got activation_memory_budget = 0.5, which works "
                         "only with --compile"));
}

TEST_F(Gpu5Replay, AReadByTheHostIsComparedAtEachReplay) {
  const auto run = [](const std::string& compile) {
    Accelerator accelerator({.accelerator = gpu::accelerator(), .engine = {.compile = compile}});
    auto step = accelerator.compile([](const at::Tensor& x) {
      return x.sum().item<double>() > 0 ? x * 2 : x - 1;  // another branch for some inputs
    });
    std::vector<at::Tensor> results;
    for (int64_t i = 0; i < 32; ++i) {
      results.push_back(step(torch::full({5}, i % 7 == 6 ? -1.0 : 1.0).to(device())).cpu());
    }
    return torch::cat(results);
  };
  EXPECT_TRUE(at::equal(run("replay"), run("no")));
}

TEST_F(Gpu5Replay, ACheckedRunFindsNothing) {
  const auto run = [](const std::string& compile, const std::string& check) {
    return trained_by_trainer(gpt, accelerator(), [&](TrainerOptions& options) {
      options.max_epochs = 3;
      options.engine.compile = compile;
      options.engine.compile_check = check;
      options.engine.compile_check_policy = "stop";
    });
  };
  const Trained eager = run("no", "auto");
  EXPECT_EQ(difference(run("replay", "auto"), eager, 0.0), "");
  EXPECT_EQ(difference(run("replay", "every"), eager, 0.0), "");
  EXPECT_EQ(difference(run("replay", "no"), eager, 0.0), "");
}

/// Two epochs under these options, with and without replay.
void expect_nets_equal(std::initializer_list<Task (*)()> nets,
                       const std::function<void(TrainerOptions&)>& more = {}) {
  for (Task (*make)() : nets) {
    const auto run = [&](const std::string& compile) {
      return trained_by_trainer(make, accelerator(), [&](TrainerOptions& options) {
        options.max_epochs = 2;
        options.engine.compile = compile;
        if (more) more(options);
      });
    };
    const Trained replayed = run("replay");
    EXPECT_EQ(difference(replayed, run("no"), 0.0), "");
    if (make == &lstm && !is_dry_run()) {
      expect_replayed_or_refused(replayed.report);
      continue;
    }
    EXPECT_THAT(replayed.report.refusals, IsEmpty());
    EXPECT_GT(num_replayed(replayed.report), 0);
    if (!is_dry_run()) {
      EXPECT_GT(num_captured(replayed.report), 0);
    }
  }
}

TEST_F(Gpu5Replay, EveryNetEqualsEager) {
  expect_nets_equal({mlp, cnn, gpt, lstm, transformer, bert});
}

TEST_F(Gpu5Replay, InBfloat16EqualsEager) {
  expect_nets_equal({mlp, gpt}, [](TrainerOptions& options) { options.precision = "bf16-mixed"; });
}

TEST_F(Gpu5Replay, AccumulatedAndClippedEqualsEager) {
  expect_nets_equal({cnn, gpt}, [](TrainerOptions& options) {
    options.accumulate_grad_batches = 2;
    options.gradient_clip_val = 0.1;
  });
}

}  // namespace
}  // namespace replay_test
}  // namespace levin::test::gpu
