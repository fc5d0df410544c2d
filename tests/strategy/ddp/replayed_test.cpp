// ddp under steps that are recorded: the bits of eager steps, or a refusal that names the parameter.
#include "tests/support/replayed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "levin/graph/compile/compiled.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace ddp_replayed {
namespace {

using levin::test::run_world;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kSteps = 10;
constexpr int64_t kRows = 12;   // of all ranks: 2 and 3 divide it
constexpr double kTiny = 1e-4;  // MiB: a bucket for each gradient or two

/// A body and heads, of which a step uses some.
struct HeadsImpl : torch::nn::Module {
  torch::nn::Linear body = register_module("body", torch::nn::Linear(5, 16));
  torch::nn::BatchNorm1d norm{nullptr};
  std::vector<torch::nn::Linear> heads;

  explicit HeadsImpl(bool with_norm = false) {
    if (with_norm) norm = register_module("norm", torch::nn::BatchNorm1d(16));
    for (int64_t i = 0; i < 3; ++i) {
      heads.push_back(register_module("head" + std::to_string(i), torch::nn::Linear(16, 4)));
    }
  }
  at::Tensor forward(const at::Tensor& x, const std::vector<size_t>& used) {
    at::Tensor hidden = body->forward(x);
    if (!norm.is_empty()) hidden = norm->forward(hidden);
    at::Tensor sum;
    for (const size_t head : used) {
      const at::Tensor out = heads[head]->forward(hidden.tanh()).square().mean();
      sum = sum.defined() ? sum + out : out;
    }
    return sum;
  }
};
TORCH_MODULE(Heads);

/// Its gradients are parts of one tensor as autograd gives them, or the same one twice.
struct PartsImpl : torch::nn::Module {
  at::Tensor top = register_parameter("top", torch::randn({8}));
  at::Tensor bottom = register_parameter("bottom", torch::randn({8}));
  at::Tensor left = register_parameter("left", torch::randn({2, 4}));
  at::Tensor right = register_parameter("right", torch::randn({4, 2}));
  at::Tensor body = register_parameter("body", torch::randn({5, 16}));
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor both = at::cat({top, bottom}) * x.matmul(body).mean(0);
    return (both.slice(0, 0, 8) * (left.view({8}) + right.view({8}))).sum() + both.square().sum();
  }
};
TORCH_MODULE(Parts);

struct Job;
/// Takes a step and returns its loss.
using Step = at::Tensor (*)(Job& job, const at::Tensor& x);

struct Row {
  std::string name;
  Step step;
  levin::DdpOptions ddp = {};
  std::string backend = "shm";
  bool adam = false;
  bool with_norm = false;
  std::vector<size_t> modules = {0};  ///< that are trained: heads, critic, parts
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

struct Job {
  Job(const Row& row, const levin::comm::ProcessGroup& ranks, bool is_recorded)
      : row(row),
        group(ranks),
        strategy(levin::make_strategy("ddp",
                                      {.group = ranks, .ddp = row.ddp, .recordable = is_recorded})),
        is_recorded(is_recorded),
        compiled("the step", {.on_recorded = [this](const levin::graph::Graph& graph) {
                   recorded = graph.clone();
                 }}) {
    torch::manual_seed(3);
    heads = Heads(row.with_norm);
    critic = torch::nn::Linear(5, 1);
    parts = Parts();
    const std::vector<std::shared_ptr<torch::nn::Module>> all = {heads.ptr(), critic.ptr(),
                                                                 parts.ptr()};
    for (const size_t module : row.modules) {
      strategy->setup(*all[module], at::kCPU);
      const auto config = row.adam ? levin::OptimizerConfig(levin::optim::adam({.lr = 1e-2}))
                                   : levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
      optimizers.push_back(
          strategy->build_optimizer(config, levin::named_parameters(*all[module])));
      optimizers.back()->set_capturable(is_recorded);
    }
  }

  void zero_grad(size_t i) { optimizers[i]->zero_grad(); }
  void update(size_t i) {
    strategy->update(*optimizers[i]);
    if (auto* recording = compiled.recording()) {
      recording->after([optimizer = optimizers[i].get(), moved = optimizers[i]->moved()] {
        optimizer->replayed(moved);
      });
    }
  }

  at::Tensor take(const at::Tensor& x) {
    if (!is_recorded) return row.step(*this, x);
    levin::graph::Conditions conditions{.inputs = {x}, .names = {"x"}};
    for (const auto& optimizer : optimizers) {
      optimizer->before_replay();
      conditions.guards.push_back({"layout", optimizer->layout()});
      for (const levin::NamedTensor& parameter : optimizer->parameters()) {
        conditions.inputs.push_back(parameter.tensor.grad());
        conditions.names.push_back(parameter.name);
      }
    }
    return compiled(conditions, [&] { return std::vector{row.step(*this, x)}; })[0];
  }

  const Row& row;
  levin::comm::ProcessGroup group;
  std::unique_ptr<levin::Strategy> strategy;
  bool is_recorded;
  Heads heads{nullptr};
  torch::nn::Linear critic{nullptr};
  Parts parts{nullptr};
  std::vector<std::unique_ptr<levin::optim::Optimizer>> optimizers;
  levin::graph::Graph recorded;
  levin::graph::Compiled compiled;
};

at::Tensor batch(int64_t step, const levin::comm::ProcessGroup& group) {
  torch::manual_seed(100 + step);
  return torch::randn({kRows, 5}).slice(0, group.rank(), kRows, group.size());
}

/// What a step leaves: the loss, then for each parameter its value, and its gradient if it has one.
std::vector<std::pair<std::string, at::Tensor>> trained(const Row& row, Job& job) {
  std::vector<std::pair<std::string, at::Tensor>> values;
  const auto add = [&](const std::string& name, const at::Tensor& value) {
    values.emplace_back(name, value.detach().clone());
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::string at = " of step " + std::to_string(step);
    add("the loss" + at, job.take(batch(step, job.group)));
    for (const auto& optimizer : job.optimizers) {
      for (const levin::NamedTensor& parameter : optimizer->parameters()) {
        add(parameter.name + at, parameter.tensor);
        if (parameter.tensor.grad().defined()) {
          add("the gradient of " + parameter.name + at, parameter.tensor.grad());
        }
      }
    }
    for (const auto& buffer : job.heads->named_buffers()) add(buffer.key() + at, buffer.value());
  }
  return values;
}

/// In words, how replayed steps are not as eager ones.
std::string differs(const Row& row, const levin::comm::ProcessGroup& group) {
  Job eager(row, group, false), replayed(row, group, true);
  const auto wanted = trained(row, eager), got = trained(row, replayed);
  const auto& report = replayed.compiled.report();
  if (!report.refusals.empty()) return report.refusals.front();
  if (levin::test::num_replayed(report) < kSteps - 5) {
    return std::to_string(report.replayed) + " replayed";
  }
  for (size_t i = 0; i < wanted.size() && i < got.size(); ++i) {
    if (wanted[i].first != got[i].first) return got[i].first + " for " + wanted[i].first;
    if (!at::equal(wanted[i].second, got[i].second)) return wanted[i].first;
  }
  return wanted.size() == got.size() ? "" : "other gradients";
}

at::Tensor backward(Job& job, const at::Tensor& loss, bool synchronize = true) {
  job.strategy->backward(loss, synchronize);
  return loss.detach();
}

at::Tensor all_heads(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  const at::Tensor loss = backward(job, job.heads->forward(x, {0, 1, 2}));
  job.update(0);
  return loss;
}

at::Tensor without_the_middle(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  const at::Tensor loss = backward(job, job.heads->forward(x, {0, 2}));
  job.update(0);
  return loss;
}

/// Rank 0 uses the first head, the others the second; nobody the third.
at::Tensor one_head_each(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  const size_t own = job.group.rank() == 0 ? 0 : 1;
  const at::Tensor loss = backward(job, job.heads->forward(x, {own}));
  job.update(0);
  return loss;
}

at::Tensor clipped(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  const at::Tensor loss = backward(job, job.heads->forward(x, {1, 2}));
  job.strategy->clip_grad_norm(job.optimizers[0]->parameters(), 0.1, 2.0);
  job.update(0);
  return loss;
}

at::Tensor accumulated(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  backward(job, job.heads->forward(x.slice(0, 0, 2), {0, 1}), /*synchronize=*/false);
  const at::Tensor loss = backward(job, job.heads->forward(x.slice(0, 2), {1}));
  job.update(0);
  return loss;
}

/// As with sync_each_batch: sums are put aside before the next is added.
at::Tensor synchronized_twice(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  backward(job, job.heads->forward(x.slice(0, 0, 2), {0, 1}));
  const at::Tensor loss = backward(job, job.heads->forward(x.slice(0, 2), {0, 1}));
  job.update(0);
  return loss;
}

/// What it leaves in .grad comes into the next step, as a loop that never zeroes has it.
at::Tensor never_zeroed(Job& job, const at::Tensor& x) {
  const at::Tensor loss = backward(job, job.heads->forward(x, {0, 1}) * 0.01);
  job.update(0);
  return loss;
}

/// The critic's step on what the body gives, then the body's against the critic.
at::Tensor adversaries(Job& job, const at::Tensor& x) {
  const auto judged = [&](const at::Tensor& made) { return job.critic->forward(made).mean(); };
  const at::Tensor made = job.heads->body->forward(x).slice(1, 0, 5);
  job.zero_grad(1);
  backward(job, judged(x) - judged(made.detach()));
  job.update(1);
  job.zero_grad(0);
  const at::Tensor loss = backward(job, judged(made));
  job.update(0);
  return loss;
}

/// One backward, which reaches the heads on rank 0 alone.
at::Tensor critic_everywhere(Job& job, const at::Tensor& x) {
  const at::Tensor made = job.heads->body->forward(x).slice(1, 0, 5);
  job.zero_grad(0);
  job.zero_grad(1);
  const at::Tensor judged = job.critic->forward(job.group.rank() == 0 ? made : made.detach());
  const at::Tensor loss = backward(job, judged.square().mean());
  job.update(0);
  job.update(1);
  return loss;
}

at::Tensor of_parts(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  const at::Tensor loss = backward(job, job.parts->forward(x) * 1e-3);
  job.update(0);
  return loss;
}

std::vector<Row> rows() {
  levin::DdpOptions tiny, one_by_one, static_graph, waits, sums, updates, small_sums;
  for (auto* many : {&tiny, &one_by_one, &static_graph, &waits, &updates, &small_sums}) {
    many->bucket_cap_mb = many->first_bucket_mb = kTiny;
  }
  one_by_one.bucket_cap_mb = one_by_one.first_bucket_mb = 1e-6;
  static_graph.static_graph = true;
  waits.overlap = false;
  sums.gradient_reduction = small_sums.gradient_reduction = "sum";
  updates.overlap_update = true;
  std::vector<Row> all = {
      {"All", all_heads},
      {"AllTiny", all_heads, tiny},
      {"AllOneByOne", all_heads, one_by_one, "shm", true},
      {"Gloo", all_heads, tiny, "gloo"},
      {"Hierarchical", all_heads, tiny, "hierarchical"},
      {"UnusedOnAll", without_the_middle, tiny},
      {"UnusedOnAllAdam", without_the_middle, {}, "shm", true},
      {"UnusedPerRank", one_head_each},
      {"UnusedPerRankOneByOne", one_head_each, one_by_one},
      {"UnusedPerRankGloo", one_head_each, one_by_one, "gloo", true},
      {"UnusedPerRankSum", one_head_each, small_sums},
      {"StaticGraph", without_the_middle, static_graph},
      {"StaticGraphPerRank", one_head_each, static_graph},
      {"NoOverlap", all_heads, waits},
      {"NoOverlapPerRank", one_head_each, waits},
      {"Sum", all_heads, sums},
      {"SumAccumulated", accumulated, small_sums},
      {"SumSynchronizedTwice", synchronized_twice, small_sums},
      {"SumNeverZeroed", never_zeroed, small_sums},
      {"NeverZeroed", never_zeroed, tiny},
      {"SynchronizedTwice", synchronized_twice, tiny},
      {"Accumulated", accumulated, tiny},
      {"AccumulatedGloo", accumulated, tiny, "gloo"},
      {"Clipped", clipped, tiny},
      {"Adversaries", adversaries, {}, "shm", false, false, {0, 1}},
      {"AdversariesOneByOne", adversaries, one_by_one, "shm", false, false, {0, 1}},
      {"AdversariesSum", adversaries, sums, "shm", false, false, {0, 1}},
      {"ModulesPerRank", critic_everywhere, {}, "shm", false, false, {0, 1}},
      {"ModulesPerRankOneByOne", critic_everywhere, one_by_one, "gloo", true, false, {0, 1}},
      {"ModulesPerRankSum", critic_everywhere, sums, "shm", false, false, {0, 1}},
      {"PartsOfOneGradient", of_parts, one_by_one, "shm", false, false, {2}},
      {"PartsOfOneGradientNoOverlap", of_parts, waits, "shm", false, false, {2}},
      {"UpdatesInWaves", all_heads, updates},
      {"UpdatesInWavesAdam", without_the_middle, updates, "shm", true},
      {"UpdatesInWavesPerRank", one_head_each, updates},
      {"UpdatesInWavesClipped", clipped, updates},
      {"Buffers", all_heads, tiny, "shm", false, true}};
  for (const std::string hook : {"fp16", "bf16", "fp32"}) {
    for (const auto& [name, step] : {std::pair<std::string, Step>("All", all_heads),
                                     {"PerRank", one_head_each},
                                     {"Accumulated", accumulated}}) {
      levin::DdpOptions cast = tiny;
      cast.comm_hook = hook;
      all.push_back({hook + name, step, cast});
    }
  }
  return all;
}

class DdpReplayed : public ::testing::TestWithParam<Row> {};

TEST_P(DdpReplayed, EqualsEagerBitForBit) {
  for (const int64_t size : {2, 3}) {
    EXPECT_THAT(run_world(size,
                          [&](int64_t, const auto&) {
                            return differs(GetParam(), levin::test::connect(GetParam().backend));
                          }),
                Each(""))
        << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Table, DdpReplayed, ::testing::ValuesIn(rows()),
                         [](const auto& info) { return info.param.name; });

/// The places of nodes in a recording, by their targets.
std::vector<std::string> targets_of(const levin::graph::Graph& graph) {
  std::vector<std::string> targets;
  for (const auto& node : graph.nodes()) targets.emplace_back(node.target());
  return targets;
}

/// The targets of the last recording of some steps; the first of them learns the order.
std::vector<std::string> recorded_targets(const Row& row) {
  Job job(row, levin::test::connect(), true);
  for (int64_t step = 0; step < 3; ++step) job.take(batch(step, job.group));
  return targets_of(job.recorded);
}

TEST(DdpRecording, StartsEachBucketWithinBackwardAndWaitsAfterIt) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) -> std::string {
                          const auto targets = recorded_targets(
                              {"", all_heads, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6}});
                          const auto is_start = [](const std::string& t) {
                            return t == "levin::all_reduce_start_";
                          };
                          const auto first_wait = std::ranges::find(targets, "levin::wait_");
                          const auto starts = std::ranges::count_if(targets, is_start);
                          if (starts != 8) return std::to_string(starts) + " starts";
                          if (std::ranges::count(targets, "levin::wait_") != starts) return "waits";
                          if (std::count_if(first_wait, targets.end(), is_start) != 0) {
                            return "a start after a wait";
                          }
                          // Between the starts of two of the four layers backward computes.
                          auto place = std::ranges::find_if(targets, is_start);
                          int64_t num_computing = 0;
                          for (auto next = place; place != targets.end(); place = next) {
                            next = std::find_if(std::next(place), targets.end(), is_start);
                            num_computing += next != targets.end() && next - place > 1 ? 1 : 0;
                          }
                          return num_computing >= 3 ? ""
                                                    : std::to_string(num_computing) + " overlap";
                        }),
              Each(""));
}

TEST(DdpRecording, StartsAllAfterBackwardWithoutOverlap) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) -> std::string {
                          const auto targets = recorded_targets(
                              {"",
                               all_heads,
                               {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .overlap = false}});
                          const auto is_start = [](const std::string& t) {
                            return t == "levin::all_reduce_start_";
                          };
                          const auto first = std::ranges::find_if(targets, is_start);
                          const auto wait = std::ranges::find(targets, "levin::wait_");
                          if (std::count_if(first, wait, is_start) != 8) return "other starts";
                          for (auto each = first; each != wait; ++each) {
                            if (!is_start(*each) && *each != "aten::view") return *each;
                          }
                          return "";
                        }),
              Each(""));
}

/// Gradients that nobody else holds are sent where they lie.
TEST(DdpRecording, CopiesNoGradient) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) -> std::string {
                          const auto targets = recorded_targets({"", all_heads});
                          const auto copies = std::ranges::count(targets, "aten::clone");
                          return copies == 0 ? "" : std::to_string(copies) + " copies";
                        }),
              Each(""));
}

/// Gradients that are still on their way when the recorded function ends are the caller's to wait for.
at::Tensor without_an_update(Job& job, const at::Tensor& x) {
  job.zero_grad(0);
  return backward(job, job.heads->forward(x, {0, 1}));
}

TEST(DdpRecording, MayEndBeforeAnUpdateThatOverlaps) {
  const levin::DdpOptions options = {
      .bucket_cap_mb = kTiny, .first_bucket_mb = kTiny, .overlap_update = true};
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const auto&) -> std::string {
                          const Row row = {"", without_an_update, options};
                          const auto group = levin::test::connect();
                          Job eager(row, group, false), recorded(row, group, true);
                          for (int64_t step = 0; step < kSteps; ++step) {
                            for (Job* job : {&eager, &recorded}) {
                              job->take(batch(step, group));
                              job->strategy->update(*job->optimizers[0]);
                            }
                            const auto wanted = eager.heads->named_parameters();
                            for (const auto& item : recorded.heads->named_parameters()) {
                              if (!at::equal(item.value(), wanted[item.key()])) {
                                return item.key() + " of step " + std::to_string(step);
                              }
                            }
                          }
                          return "";
                        }),
              Each(""));
}

/// Another rank may have written them while the update was recorded, which is the reason then.
TEST(DdpRecording, OfAnUpdateAloneDoesNotWaitForWhatWasStartedOutsideOfIt) {
  const levin::DdpOptions options = {
      .bucket_cap_mb = kTiny, .first_bucket_mb = kTiny, .overlap_update = true};
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const auto&) -> std::string {
                          const Row row = {"", without_an_update, options};
                          const auto group = levin::test::connect();
                          Job eager(row, group, false), recorded(row, group, true);
                          levin::optim::Optimizer& optimizer = *recorded.optimizers[0];
                          levin::graph::Compiled update("the update", {});
                          for (int64_t step = 0; step < kSteps; ++step) {
                            eager.take(batch(step, group));
                            eager.strategy->update(*eager.optimizers[0]);
                            recorded.take(batch(step, group));
                            levin::graph::Conditions conditions;
                            for (const levin::NamedTensor& parameter : optimizer.parameters()) {
                              conditions.inputs.push_back(parameter.tensor.grad());
                              conditions.names.push_back(parameter.name);
                            }
                            update(conditions, [&] {
                              recorded.strategy->update(optimizer);
                              if (auto* recording = update.recording()) {
                                recording->after(
                                    [&, moved = optimizer.moved()] { optimizer.replayed(moved); });
                              }
                              return std::vector<at::Tensor>();
                            });
                            const auto wanted = eager.heads->named_parameters();
                            for (const auto& item : recorded.heads->named_parameters()) {
                              if (!at::equal(item.value(), wanted[item.key()])) {
                                return item.key() + " of step " + std::to_string(step);
                              }
                            }
                          }
                          const auto& refusals = update.report().refusals;
                          return refusals.empty() ? "no refusal" : refusals.front();
                        }),
              Each(AnyOf(HasSubstr("waits for gradients of a backward outside of it"),
                         HasSubstr("the host writes directly into a tensor"))));
}

// Refusals.

std::string error_in(const Row& row) {
  return levin::test::error_of([&] {
    Job job(row, levin::test::connect(), true);
    for (int64_t step = 0; step < 4; ++step) row.step(job, batch(step, job.group));
  });
}

template <size_t kFirst, size_t kLater>
at::Tensor another_head_later(Job& job, const at::Tensor& x) {
  static thread_local int64_t steps = 0;
  job.zero_grad(0);
  std::vector<size_t> used = {kFirst};
  if (++steps == 3) used.push_back(kLater);
  const at::Tensor loss = backward(job, job.heads->forward(x, used));
  job.update(0);
  return loss;
}

template <size_t kLeftOut>
at::Tensor fewer_heads_later(Job& job, const at::Tensor& x) {
  static thread_local int64_t steps = 0;
  job.zero_grad(0);
  std::vector<size_t> used = {0, 1, 2};
  if (++steps == 3) std::erase(used, kLeftOut);
  const at::Tensor loss = backward(job, job.heads->forward(x, used));
  job.update(0);
  return loss;
}

TEST(DdpRecorded, AParameterThatIsUsedLaterIsAnErrorThatNamesIt) {
  EXPECT_THAT(
      run_world(2, [](int64_t, const auto&) { return error_in({"", another_head_later<0, 1>}); }),
      Each(AllOf(StartsWith("strategy.ddp.unused: parameter head1."),
                 HasSubstr("had none in the first step"), HasSubstr("--compile no"))));
}

TEST(DdpRecorded, AParameterThatIsNoLongerUsedIsAnErrorThatNamesIt) {
  EXPECT_THAT(
      run_world(2, [](int64_t, const auto&) { return error_in({"", fewer_heads_later<2>}); }),
      Each(AllOf(StartsWith("strategy.ddp.unused: parameter head2."),
                 HasSubstr("had one in the first step"), HasSubstr("--compile no"))));
}

/// Within the batches of a group: its gradient would stay one rank's own.
at::Tensor used_without_synchronizing(Job& job, const at::Tensor& x) {
  static thread_local int64_t steps = 0;
  job.zero_grad(0);
  if (++steps == 2) backward(job, job.heads->forward(x, {2}), /*synchronize=*/false);
  const at::Tensor loss = backward(job, job.heads->forward(x, {0}));
  job.update(0);
  return loss;
}

TEST(DdpRecorded, AParameterThatIsUsedLaterWithoutSynchronizingIsAnErrorToo) {
  EXPECT_THAT(
      run_world(2, [](int64_t, const auto&) { return error_in({"", used_without_synchronizing}); }),
      Each(StartsWith("strategy.ddp.unused: parameter head2.")));
}

TEST(DdpRecorded, UnusedParametersAreTheErrorOfEagerSteps) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const auto&) {
                  return error_in({"", without_the_middle, {.find_unused_parameters = false}});
                }),
      Each(AllOf(StartsWith("strategy.ddp.unused: 2 of 8 parameters"),
                 HasSubstr("head1.weight, head1.bias"))));
}

TEST(DdpRecorded, ABatchWithoutALossIsAnErrorThatSaysWhatToDo) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          const Row row = {"", all_heads};
                          return levin::test::error_of([&] {
                            Job job(row, levin::test::connect(), true);
                            job.strategy->backward({}, true, false);
                          });
                        }),
              Each(StartsWith("strategy.skipped_batch: ")));
}

}  // namespace
}  // namespace ddp_replayed
