// One table for every strategy that spreads a run over ranks: N ranks equal one rank, accumulation
// equals the large batch, a resumed run equals one that was not interrupted.
#include "tests/strategy/table.h"

namespace levin::test::table {
namespace {

using ::testing::Each;
namespace fs = std::filesystem;

TEST_P(StrategyTable, RanksTogetherEqualOneRank) {
  const Case& c = GetParam();
  const State alone = trained_alone(c);
  const bool adam_fp32 = c.optimizer == "adam" && !c.in_double;
  const double tolerance = adam_fp32 ? 1e-5 : c.in_double ? 1e-9 : 1e-6;
  for (const int64_t size : c.sizes) {
    const auto words = run_world(size, [&](int64_t rank, const fs::path& folder) {
      train_case(c, connect(c.backend), folder);
      return compare(weights_in(folder, rank), alone, tolerance, adam_fp32 ? "losses" : "");
    });
    EXPECT_THAT(words, Each("")) << size << " ranks";
  }
}

TEST_P(StrategyTable, AResumedRunRepeatsBitForBit) {
  const Case& c = GetParam();
  const auto words = run_world(c.resumed_ranks, [&](int64_t rank, const fs::path& folder) {
    const auto group = connect(c.backend);
    fs::create_directories(folder / "whole");
    fs::create_directories(folder / "broken");
    train_case(c, group, folder / "whole");
    train_case(c, group, folder / "broken", /*break_after=*/7);
    return compare(weights_in(folder / "broken", rank), weights_in(folder / "whole", rank), 0);
  });
  EXPECT_THAT(words, Each(""));
}

class ShardedStrategy : public ::testing::TestWithParam<Case> {};

/// A run that goes on under other strategies on other numbers of ranks is one that was not disturbed.
TEST_P(ShardedStrategy, GoesOnUnderOtherStrategiesOnOtherNumbersOfRanks) {
  const Case& c = GetParam();
  const State alone = trained_alone(c);
  Case ddp = c, single = c, zero = c, gathered = c, hybrid = c;
  ddp.strategy = "ddp";
  single.strategy = "single";
  for (Case* other : {&ddp, &single}) other->fsdp = {};
  zero.strategy = "zero";
  gathered.backend = "gloo";
  hybrid.fsdp.mesh = "replicate=2,fsdp=2";
  const std::pair<Case, int64_t> parts[] = {{c, 3},      {ddp, 2},      {c, 2},   {hybrid, 4},
                                            {single, 1}, {gathered, 3}, {zero, 4}};
  const Scratch scratch;
  int64_t step = 0;
  for (const auto& [part, ranks] : parts) {
    const int64_t next = std::min(c.steps, step + 4);
    const auto words = run_world(ranks, [&](int64_t, const fs::path&) {
      train_part(part, connect(ranks == 1 ? "auto" : part.backend), scratch.path(), step, next);
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
                         name_of);

/// A step that is replayed gives the weights of one that is not, bit for bit.
TEST_P(ReplayedStrategy, EqualsEagerSteps) {
  Case eager = GetParam();
  eager.replayed = false;
  const int64_t ranks = eager.sizes.size() == 1 ? eager.sizes.front() : 2;
  const auto words = run_world(ranks, [&](int64_t rank, const fs::path& folder) {
    const auto group = connect(eager.backend);
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
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ddp, ReplayedStrategy, ::testing::ValuesIn(replayed_cases()), name_of);

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
    name_of);

// Units of a few parameters each, cut in the middle of them.
constexpr double kSmall = 5e-4;  // MiB

void wrap_children(torch::nn::Module& module) {
  for (const auto& child : module.children()) wrap(child);
}
void wrap_whole(torch::nn::Module& module) { wrap(module.shared_from_this()); }

/// Every other layer's gradients are reduced in float64.
void wrap_all_and_reduce_some_in_double(torch::nn::Module& module) {
  wrap_all(module);
  bool in_double = false;
  for (const auto& child : module.children()) {
    if (is_unit(*child) && std::exchange(in_double, !in_double)) {
      wrap(child, {.reduce_dtype = at::kDouble});
    }
  }
}

std::vector<Case> replayed_sharded_cases() {
  std::vector<Case> cases = {
      {.name = "MlpSgd", .strategy = "fsdp", .fsdp = {.unit_mb = 0.001}},
      {.name = "MlpAdamDouble", .strategy = "fsdp", .optimizer = "adam", .in_double = true},
      {.name = "MlpAccumulated", .strategy = "fsdp", .accumulate = 2},
      {.name = "MlpIgnored", .strategy = "fsdp", .fsdp = {.ignored_params = "0.*"}},
      {.name = "MlpReduceDtype", .strategy = "fsdp", .wrap = wrap_all_and_reduce_some_in_double},
      {.name = "CnnSgd", .strategy = "fsdp", .task = cnn},
      {.name = "GptAdam", .strategy = "fsdp", .task = gpt, .optimizer = "adam", .wrap = wrap_all},
      {.name = "GptOwned", .strategy = "fsdp", .task = gpt, .fsdp = {.cut = "owned"}},
      {.name = "Zero1", .strategy = "zero", .task = gpt, .fsdp = {.zero_stage = 1}},
      {.name = "Zero2", .strategy = "zero", .task = gpt, .optimizer = "adam", .in_double = true},
      {.name = "Zero3", .strategy = "zero", .task = gpt, .fsdp = {.zero_stage = 3}}};
  for (Case& c : cases) {
    c.replayed = true;
    c.sizes = {1, 2, 3};
  }
  for (size_t i = 0, count = cases.size(); i < count; ++i) {  // each rank gathers for itself
    cases.push_back(cases[i]);
    cases.back().name += "Gloo";
    cases.back().backend = "gloo";
  }
  cases.push_back({.name = "GptKeptGathered",
                   .strategy = "fsdp",
                   .backend = "gloo",
                   .task = gpt,
                   .fsdp = {.gathered_mb = -1},
                   .wrap = wrap_all,
                   .sizes = {2},
                   .replayed = true});
  cases.push_back({.name = "MlpHsdp",
                   .strategy = "fsdp",
                   .backend = "gloo",
                   .fsdp = {.mesh = "replicate=2,fsdp=2"},
                   .sizes = {4},
                   .replayed = true,
                   .resumed_ranks = 4});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(FsdpReplayed, StrategyTable, ::testing::ValuesIn(replayed_sharded_cases()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Fsdp, ReplayedStrategy, ::testing::ValuesIn(replayed_sharded_cases()),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Fsdp, StrategyTable,
    ::testing::Values(
        Case{.name = "MlpSgd", .strategy = "fsdp"},
        Case{.name = "MlpSmallUnits", .strategy = "fsdp", .fsdp = {.unit_mb = kSmall}},
        Case{.name = "MlpOwned", .strategy = "fsdp", .fsdp = {.cut = "owned"}},
        Case{.name = "MlpAllLayers", .strategy = "fsdp", .wrap = wrap_all},
        Case{.name = "MlpOneUnit", .strategy = "fsdp", .wrap = wrap_whole},
        Case{.name = "MlpAdam", .strategy = "fsdp", .optimizer = "adam"},
        Case{.name = "MlpAdamDouble",
             .strategy = "fsdp",
             .optimizer = "adam",
             .in_double = true,
             .fsdp = {.unit_mb = kSmall}},
        Case{.name = "MlpAccumulated", .strategy = "fsdp", .accumulate = 2},
        Case{.name = "GptIgnored",
             .strategy = "fsdp",
             .task = gpt,
             .optimizer = "adam",
             .in_double = true,
             .accumulate = 2,
             .fsdp = {.ignored_params = "*.bias,transformer.wte.*"}},
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
        Case{.name = "TransformerSgd", .strategy = "fsdp", .task = transformer, .wrap = wrap_all},
        Case{.name = "MlpGloo", .strategy = "fsdp", .backend = "gloo", .wrap = wrap_all},
        Case{.name = "MlpGlooAccumulated",
             .strategy = "fsdp",
             .backend = "gloo",
             .accumulate = 2,
             .wrap = wrap_all},
        Case{.name = "MlpGlooReduceDtype",
             .strategy = "fsdp",
             .backend = "gloo",
             .accumulate = 2,
             .wrap = wrap_all_and_reduce_some_in_double,
             .sizes = {2, 3}},
        Case{.name = "GptGlooNeighbours",
             .strategy = "fsdp",
             .backend = "gloo",
             .task = gpt,
             .accumulate = 2,
             .fsdp = {.gathered_mb = kSmall, .reshard_after_forward = 2},
             .wrap = wrap_all,
             .sizes = {4},
             .resumed_ranks = 4},
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
             .wrap = wrap_all,
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
             .wrap = wrap_all,
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
    name_of);

/// HSDP: copies of the parameters, each sharded over some ranks.
Case hybrid(Case c, const std::string& mesh = "fsdp=2") {
  c.fsdp.mesh = mesh;
  c.sizes = {2, 4};
  c.resumed_ranks = 4;
  return c;
}

INSTANTIATE_TEST_SUITE_P(
    Hybrid, StrategyTable,
    ::testing::Values(
        hybrid({.name = "MlpSgd", .strategy = "fsdp", .fsdp = {.unit_mb = kSmall}}),
        hybrid({.name = "MlpReplicas", .strategy = "fsdp"}, "replicate=2"),
        hybrid({.name = "MlpAccumulated",
                .strategy = "fsdp",
                .accumulate = 2,
                .fsdp = {.unit_mb = kSmall}}),
        hybrid({.name = "MlpGloo", .strategy = "fsdp", .backend = "gloo", .wrap = wrap_all}),
        hybrid({.name = "GptAdamDouble",
                .strategy = "fsdp",
                .task = gpt,
                .optimizer = "adam",
                .in_double = true,
                .wrap = wrap_children}),
        hybrid({.name = "GptGlooAccumulated",
                .strategy = "fsdp",
                .backend = "gloo",
                .task = gpt,
                .accumulate = 2,
                .fsdp = {.gathered_mb = kSmall}}),
        hybrid({.name = "CnnOneHost", .strategy = "fsdp", .backend = "hierarchical", .task = cnn}),
        hybrid({.name = "GptZero1", .strategy = "zero", .task = gpt, .fsdp = {.zero_stage = 1}}),
        hybrid({.name = "GptZero3Gloo",
                .strategy = "zero",
                .backend = "gloo",
                .task = gpt,
                .fsdp = {.zero_stage = 3}})),
    name_of);

}  // namespace
}  // namespace levin::test::table
