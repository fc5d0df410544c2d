// One table for every strategy that spreads a run over ranks: N ranks equal one rank, accumulation
// equals the large batch, a resumed run equals one that was not interrupted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/random.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/compile/compiled.h"
#include "levin/module/full.h"
#include "levin/module/wrap.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "levin/strategy/sync_batch_norm.h"
#include "tests/checkpoint/by_ranks.h"
#include "tests/strategy/tasks.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"

namespace {

using levin::State;
using levin::Strategy;
using levin::test::num_replayed;
using levin::test::run_world;
using ::testing::Each;
namespace fs = std::filesystem;

using levin::test::adapted;
using levin::test::bert;
using levin::test::cnn;
using levin::test::gpt;
using levin::test::kGlobalBatch;
using levin::test::lstm;
using levin::test::mlp;
using levin::test::qwen3;
using levin::test::Task;
using levin::test::transformer;

constexpr int64_t kSteps = 20;

struct Case {
  std::string name;
  std::string strategy = "ddp";
  std::string backend = "shm";
  Task (*task)() = mlp;
  std::string optimizer = "sgd";
  bool in_double = false;
  int64_t accumulate = 1;
  levin::DdpOptions ddp = {};
  levin::FsdpOptions fsdp = {};
  void (*wrap)(torch::nn::Module&) = nullptr;  ///< marks units
  std::vector<int64_t> sizes = {1, 2, 3, 4};
  bool replayed = false;  ///< the step is recorded, and from the fourth on replayed
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

levin::OptimizerConfig optimizer_of(const Case& c) {
  if (c.optimizer == "adam")
    return levin::optim::adam({.lr = 1e-2, .eps = 1e-4});  // no step of rounding errors
  return levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
}

/// A strategy with one module and one optimizer.
struct Setup {
  Setup(const Case& c, const levin::comm::ProcessGroup& group)
      : task((torch::manual_seed(1 + group.rank()), c.task())),  // rank 0's weights must win
        group(group),
        strategy(levin::make_strategy(
            c.strategy, {.group = group, .ddp = c.ddp, .fsdp = c.fsdp, .recordable = c.replayed})) {
    if (c.in_double) task.module->to(at::kDouble);
    if (c.wrap != nullptr) c.wrap(*task.module);
    strategy->setup(*task.module, at::kCPU);
    optimizer = strategy->build_optimizer(optimizer_of(c), levin::named_parameters(*task.module));
    optimizer->set_capturable(c.replayed);
  }

  /// The mean loss of this rank.
  double step(const Case& c, int64_t number) {
    const auto [rank, world_size] = strategy->slice();
    const at::Tensor mine = task.inputs(number).slice(0, rank, kGlobalBatch, world_size);
    const std::vector<at::Tensor> losses =
        c.replayed ? replayed_losses(c, mine) : losses_of(c, mine);
    double total = 0;
    for (const at::Tensor& loss : losses) total += loss.item<double>();
    return total;
  }

  std::vector<at::Tensor> losses_of(const Case& c, const at::Tensor& mine) {
    optimizer->zero_grad();
    const levin::SyncBatchNormGuard batch_norm(group.size() > 1 ? &group : nullptr);
    const auto parts = mine.chunk(c.accumulate);
    std::vector<at::Tensor> losses;
    for (size_t i = 0; i < parts.size(); ++i) {
      {
        const auto whole = strategy->compute_scope();
        losses.push_back(task.loss(parts[i]) / c.accumulate);
      }
      strategy->backward(losses.back(), i + 1 == parts.size());
    }
    strategy->update(*optimizer);
    return losses;
  }

  std::vector<at::Tensor> replayed_losses(const Case& c, const at::Tensor& mine) {
    levin::graph::Conditions conditions{.inputs = {mine}, .names = {"inputs"}};
    for (const levin::NamedTensor& parameter : optimizer->parameters()) {
      conditions.inputs.push_back(parameter.tensor.grad());
      conditions.names.push_back(parameter.name);
    }
    return compiled(conditions, [&] {
      std::vector<at::Tensor> losses = losses_of(c, mine);
      if (auto* recording = compiled.recording()) recording->before(optimizer->host_part());
      return losses;
    });
  }

  State state() const {
    State state;
    state.set("module", levin::module_state(*task.module))
        .set("optimizer", optimizer->state_dict())
        .set("strategy", strategy->state_dict());
    return state;
  }
  void load(const State& state) {
    levin::load_module_state(*task.module, state.child("module"));
    optimizer->load_state_dict(state.child("optimizer"));
    strategy->load_state_dict(state.child("strategy"));
  }

  Task task;
  levin::comm::ProcessGroup group;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<levin::optim::Optimizer> optimizer;
  levin::graph::Compiled compiled{"the step"};
};

/// Trains and leaves the weights of each rank and rank 0's mean losses in a folder.
void train_case(const Case& c, const levin::comm::ProcessGroup& group, const fs::path& to,
                int64_t break_after = 0) {
  auto setup = std::make_unique<Setup>(c, group);
  at::Tensor losses = at::zeros({kSteps}, at::kDouble);
  for (int64_t step = 0; step < kSteps; ++step) {
    if (break_after > 0 && step == break_after) {
      // As on disk: nothing may be shared with the module that goes.
      levin::test::save_together(to / "state", {.training = setup->state()}, group);
      setup.reset();
      setup = std::make_unique<Setup>(c, group);
      setup->load(levin::load_checkpoint(to / "state").training);
    }
    losses[step] = setup->step(c, step);
  }
  const int64_t replayed = num_replayed(setup->compiled.report());
  TORCH_CHECK(!c.replayed || replayed >= kSteps - break_after - 4, replayed, " steps replayed");
  setup->group.all_reduce(losses, levin::ReduceOp::kMean);
  State all = levin::full(*setup->task.module);
  all.set("losses", losses);
  levin::save_weights(to / (std::to_string(group.rank()) + ".safetensors"), all);
}

std::string compare(const State& got, const State& wanted, double tolerance,
                    const std::string& only = "") {
  for (const auto& [name, value] : wanted.values()) {
    if (!only.empty() && name != only) continue;
    const double off = (got.tensor(name) - wanted.tensor(name)).abs().max().item<double>();
    if (!(off <= tolerance)) return name + " is off by " + std::to_string(off * 1e9) + "e-9";
  }
  return "";
}

State weights_in(const fs::path& folder, int64_t rank) {
  return levin::load_weights(folder / (std::to_string(rank) + ".safetensors"));
}

/// The same training in one process.
State trained_alone(Case c) {
  c.strategy = "single";
  c.accumulate = 1;
  c.ddp = {};
  c.fsdp = {};
  const levin::test::Scratch scratch;
  const auto words = run_world(1, [&](int64_t, const fs::path&) {
    train_case(c, {}, scratch.path());
    return "";
  });
  EXPECT_THAT(words, Each(""));
  State weights;  // off the file, which goes
  const State mapped = weights_in(scratch.path(), 0);
  for (const auto& [name, value] : mapped.values()) weights.set(name, mapped.tensor(name).clone());
  return weights;
}

class StrategyTable : public ::testing::TestWithParam<Case> {};

TEST_P(StrategyTable, RanksTogetherEqualOneRank) {
  const Case& c = GetParam();
  const State alone = trained_alone(c);
  const bool adam_fp32 = c.optimizer == "adam" && !c.in_double;
  const double tolerance = adam_fp32 ? 1e-5 : c.in_double ? 1e-9 : 1e-6;
  for (const int64_t size : c.sizes) {
    const auto words = run_world(size, [&](int64_t rank, const fs::path& folder) {
      train_case(c, levin::test::connect(c.backend), folder);
      return compare(weights_in(folder, rank), alone, tolerance, adam_fp32 ? "losses" : "");
    });
    EXPECT_THAT(words, Each("")) << size << " ranks";
  }
}

TEST_P(StrategyTable, AResumedRunRepeatsBitForBit) {
  const Case& c = GetParam();
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) {
    const auto group = levin::test::connect(c.backend);
    fs::create_directories(folder / "whole");
    fs::create_directories(folder / "broken");
    train_case(c, group, folder / "whole");
    train_case(c, group, folder / "broken", /*break_after=*/7);
    return compare(weights_in(folder / "broken", rank), weights_in(folder / "whole", rank), 0);
  });
  EXPECT_THAT(words, Each(""));
}

/// Trains for some steps, from where a folder's run stands if there is one, and saves to it.
void train_part(const Case& c, const levin::comm::ProcessGroup& group, const fs::path& folder,
                int64_t from, int64_t to) {
  Setup setup(c, group);
  if (from > 0) setup.load(levin::load_checkpoint(folder / std::to_string(from)).training);
  for (int64_t step = from; step < to; ++step) setup.step(c, step);
  levin::test::save_together(folder / std::to_string(to), {.training = setup.state()}, group);
  const State all = levin::full(*setup.task.module);
  if (group.rank() == 0) levin::save_weights(folder / "0.safetensors", all);
}

class ShardedStrategy : public ::testing::TestWithParam<Case> {};

/// A run that goes on under other strategies on other numbers of ranks is one that was not disturbed.
TEST_P(ShardedStrategy, GoesOnUnderOtherStrategiesOnOtherNumbersOfRanks) {
  const Case& c = GetParam();
  const State alone = trained_alone(c);
  Case ddp = c, single = c, zero = c, gathered = c;
  ddp.strategy = "ddp";
  single.strategy = "single";
  for (Case* other : {&ddp, &single}) other->fsdp = {};
  zero.strategy = "zero";
  gathered.backend = "gloo";
  const std::pair<Case, int64_t> parts[] = {{c, 3},      {ddp, 2},      {c, 2},
                                            {single, 1}, {gathered, 3}, {zero, 4}};
  const levin::test::Scratch scratch;
  int64_t step = 0;
  for (const auto& [part, ranks] : parts) {
    const int64_t next = std::min(kSteps, step + 4);
    const auto words = run_world(ranks, [&](int64_t, const fs::path&) {
      train_part(part, levin::test::connect(ranks == 1 ? "auto" : part.backend), scratch.path(),
                 step, next);
      return "";
    });
    ASSERT_THAT(words, Each("")) << part.strategy << " on " << ranks;
    step = next;
  }
  State wanted = alone;
  wanted.erase("losses");
  EXPECT_EQ(compare(weights_in(scratch.path(), 0), wanted, c.in_double ? 1e-9 : 1e-5), "");
}

INSTANTIATE_TEST_SUITE_P(Fsdp, ShardedStrategy,
                         ::testing::Values(Case{.name = "MlpSgd", .strategy = "fsdp"},
                                           Case{.name = "CnnAdamDouble",
                                                .strategy = "fsdp",
                                                .task = cnn,
                                                .optimizer = "adam",
                                                .in_double = true},
                                           Case{.name = "GptAdamDouble",
                                                .strategy = "fsdp",
                                                .task = gpt,
                                                .optimizer = "adam",
                                                .in_double = true}),
                         [](const auto& info) { return info.param.name; });

class ReplayedStrategy : public ::testing::TestWithParam<Case> {};

/// A step that is replayed gives the weights of one that is not, bit for bit.
TEST_P(ReplayedStrategy, EqualsEagerSteps) {
  Case eager = GetParam();
  eager.replayed = false;
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) {
    const auto group = levin::test::connect(eager.backend);
    fs::create_directories(folder / "eager");
    train_case(eager, group, folder / "eager");
    train_case(GetParam(), group, folder);
    return compare(weights_in(folder, rank), weights_in(folder / "eager", rank), 0);
  });
  EXPECT_THAT(words, Each(""));
}

constexpr double kTiny = 1e-4;  // MiB: a bucket for each few gradients

std::vector<Case> replayed_cases() {
  return {{.name = "MlpSgd", .replayed = true},
          {.name = "MlpAdamGloo",
           .backend = "gloo",
           .optimizer = "adam",
           .ddp = {.bucket_cap_mb = kTiny, .first_bucket_mb = kTiny},
           .replayed = true},
          {.name = "MlpAccumulated", .accumulate = 2, .replayed = true},
          {.name = "CnnSgd", .task = cnn, .replayed = true},
          {.name = "CnnAdamDouble",
           .task = cnn,
           .optimizer = "adam",
           .in_double = true,
           .replayed = true},
          {.name = "GptAdam", .task = gpt, .optimizer = "adam", .replayed = true}};
}

INSTANTIATE_TEST_SUITE_P(DdpReplayed, StrategyTable, ::testing::ValuesIn(replayed_cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Ddp, ReplayedStrategy, ::testing::ValuesIn(replayed_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Ddp, StrategyTable,
    ::testing::Values(
        Case{"MlpSgd"}, Case{.name = "MlpSgdGloo", .backend = "gloo"},
        Case{.name = "MlpAdam", .optimizer = "adam"},
        Case{.name = "MlpAdamDouble", .optimizer = "adam", .in_double = true},
        Case{.name = "MlpAccumulated", .accumulate = 2},
        Case{.name = "MlpAccumulatedGloo", .backend = "gloo", .accumulate = 2},
        Case{.name = "MlpManyBuckets", .ddp = {.bucket_cap_mb = kTiny, .first_bucket_mb = kTiny}},
        Case{.name = "MlpNoOverlap",
             .ddp = {.bucket_cap_mb = kTiny, .first_bucket_mb = kTiny, .overlap = false}},
        Case{.name = "MlpUpdatesInWaves",
             .ddp = {.bucket_cap_mb = kTiny, .first_bucket_mb = kTiny, .overlap_update = true}},
        Case{.name = "MlpAdamUpdatesInWavesAccumulated",
             .optimizer = "adam",
             .accumulate = 2,
             .ddp = {.bucket_cap_mb = kTiny, .first_bucket_mb = kTiny, .overlap_update = true}},
        Case{.name = "MlpStaticGraph", .ddp = {.static_graph = true}},
        Case{.name = "MlpInFp32OnTheWay", .ddp = {.comm_hook = "fp32"}},
        Case{.name = "MlpSgdHierarchical", .backend = "hierarchical"},
        Case{.name = "CnnSgd", .task = cnn},
        Case{.name = "CnnSgdGloo", .backend = "gloo", .task = cnn},
        Case{.name = "CnnAdam", .task = cnn, .optimizer = "adam"},
        Case{.name = "CnnAdamDouble", .task = cnn, .optimizer = "adam", .in_double = true},
        Case{.name = "GptSgd", .task = gpt}, Case{.name = "Qwen3Sgd", .task = qwen3},
        Case{.name = "BertSgd", .task = bert}, Case{.name = "AdaptedSgd", .task = adapted},
        Case{.name = "GptSgdGloo", .backend = "gloo", .task = gpt},
        Case{.name = "GptAdam", .task = gpt, .optimizer = "adam"},
        Case{.name = "GptAdamDouble", .task = gpt, .optimizer = "adam", .in_double = true}),
    [](const auto& info) { return info.param.name; });

// Units of a few parameters each, cut in the middle of them.
constexpr double kSmall = 5e-4;  // MiB

void wrap_children(torch::nn::Module& module) {
  for (const auto& child : module.children()) levin::wrap(child);
}
void wrap_whole(torch::nn::Module& module) { levin::wrap(module.shared_from_this()); }

INSTANTIATE_TEST_SUITE_P(
    Fsdp, StrategyTable,
    ::testing::Values(
        Case{.name = "MlpSgd", .strategy = "fsdp"},
        Case{.name = "MlpSmallUnits", .strategy = "fsdp", .fsdp = {.unit_mb = kSmall}},
        Case{.name = "MlpOwned", .strategy = "fsdp", .fsdp = {.cut = "owned"}},
        Case{.name = "MlpAllLayers", .strategy = "fsdp", .wrap = levin::wrap_all},
        Case{.name = "MlpOneUnit", .strategy = "fsdp", .wrap = wrap_whole},
        Case{.name = "MlpAdam", .strategy = "fsdp", .optimizer = "adam"},
        Case{.name = "MlpAdamDouble",
             .strategy = "fsdp",
             .optimizer = "adam",
             .in_double = true,
             .fsdp = {.unit_mb = kSmall}},
        Case{.name = "MlpAccumulated", .strategy = "fsdp", .accumulate = 2},
        Case{.name = "CnnSgd", .strategy = "fsdp", .task = cnn, .fsdp = {.unit_mb = kSmall}},
        Case{.name = "CnnAdamDouble",
             .strategy = "fsdp",
             .task = cnn,
             .optimizer = "adam",
             .in_double = true},
        Case{.name = "GptSgd", .strategy = "fsdp", .task = gpt, .wrap = wrap_children},
        Case{.name = "GptAdamDouble",
             .strategy = "fsdp",
             .task = gpt,
             .optimizer = "adam",
             .in_double = true,
             .fsdp = {.unit_mb = kSmall}},
        Case{.name = "LstmSgd", .strategy = "fsdp", .task = lstm, .fsdp = {.unit_mb = kSmall}},
        Case{.name = "LstmAccumulated", .strategy = "fsdp", .task = lstm, .accumulate = 2},
        Case{.name = "TransformerSgd",
             .strategy = "fsdp",
             .task = transformer,
             .wrap = levin::wrap_all},
        Case{.name = "MlpGloo", .strategy = "fsdp", .backend = "gloo", .wrap = levin::wrap_all},
        Case{.name = "MlpGlooAccumulated",
             .strategy = "fsdp",
             .backend = "gloo",
             .accumulate = 2,
             .wrap = levin::wrap_all},
        Case{.name = "CnnGloo",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = cnn,
             .fsdp = {.unit_mb = kSmall},
             .sizes = {2, 3}},
        Case{.name = "GptGloo",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = gpt,
             .fsdp = {.gathered_mb = kSmall},
             .wrap = levin::wrap_all,
             .sizes = {2, 3}},
        Case{.name = "LstmGloo",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = lstm,
             .fsdp = {.unit_mb = kSmall},
             .sizes = {2, 3}},
        Case{.name = "TransformerGloo",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = transformer,
             .wrap = levin::wrap_all,
             .sizes = {2, 3}},
        Case{.name = "Qwen3Sgd", .strategy = "fsdp", .task = qwen3},
        Case{.name = "BertSgd", .strategy = "fsdp", .task = bert},
        Case{.name = "Qwen3Gloo",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = qwen3,
             .sizes = {2, 3}},
        Case{.name = "AdaptedSgd", .strategy = "fsdp", .task = adapted, .sizes = {2, 3}},
        Case{.name = "AdaptedGloo",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = adapted,
             .sizes = {2, 3}},
        Case{.name = "BertZero2", .strategy = "zero", .task = bert, .sizes = {2, 3}},
        Case{.name = "GptHierarchical", .strategy = "fsdp", .backend = "hierarchical", .task = gpt},
        Case{.name = "Zero1Gloo",
             .strategy = "zero",
             .backend = "gloo",
             .task = gpt,
             .accumulate = 2,
             .fsdp = {.zero_stage = 1},
             .sizes = {2, 3}},
        Case{.name = "Zero3Gloo",
             .strategy = "zero",
             .backend = "gloo",
             .task = gpt,
             .accumulate = 2,
             .fsdp = {.zero_stage = 3},
             .sizes = {2, 3}},
        Case{.name = "Zero1", .strategy = "zero", .task = gpt, .fsdp = {.zero_stage = 1}},
        Case{.name = "Zero2", .strategy = "zero", .task = gpt},
        Case{.name = "Zero3", .strategy = "zero", .task = gpt, .fsdp = {.zero_stage = 3}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
