// The table of strategies with models of which a part is frozen: adapters, modules that train whole beside
// them, blocks that are computed twice, a base in the map of its file.
#include <unistd.h>

#include "tests/strategy/table.h"
#include "tests/strategy/tuned_tasks.h"

namespace levin::test::table {
namespace {

class BaseOnDisk : public ::testing::Environment {
 public:
  void SetUp() override {
    folder_of_base() =
        std::filesystem::path(::testing::TempDir()) / ("levin_tuned_" + std::to_string(::getpid()));
    torch::manual_seed(8);
    small(small_bert(), "text-classification", {.num_labels = 3})
        ->save_pretrained(folder_of_base());
  }
  void TearDown() override { std::filesystem::remove_all(folder_of_base()); }
};
const auto* const kBaseOnDisk = ::testing::AddGlobalTestEnvironment(new BaseOnDisk);

struct Tuned {
  const char* name;
  Task (*task)();
};
constexpr Tuned kTasks[] = {{"AdaptedCheckpointed", adapted_checkpointed},
                            {"AdaptedWithModules", adapted_with_modules},
                            {"AdaptedLargeVocabulary", adapted_large_vocabulary},
                            {"PartlyFrozen", partly_frozen},
                            {"PartlyFrozenCheckpointed", partly_frozen_checkpointed}};

/// Through memory each batch by itself; over gloo in two parts.
Case case_of(const Tuned& of, const std::string& strategy, int64_t stage, bool through_memory) {
  return {.name = std::string(of.name) + (stage > 0 ? std::to_string(stage) : "") +
                  (through_memory ? "" : "GlooAccumulated"),
          .strategy = strategy,
          .backend = through_memory ? "shm" : "gloo",
          .task = of.task,
          .accumulate = through_memory ? 1 : 2,
          .fsdp = {.zero_stage = stage > 0 ? stage : FsdpOptions().zero_stage},
          .sizes = through_memory && stage == 0 ? std::vector<int64_t>{1, 2, 3, 4}
                                                : std::vector<int64_t>{3},
          .steps = 12};
}

std::vector<Case> cases_of(const std::string& strategy, const std::vector<int64_t>& stages) {
  std::vector<Case> cases;
  for (const Tuned& task : kTasks) {
    for (const int64_t stage : stages) {
      for (const bool through_memory : {true, false})
        cases.push_back(case_of(task, strategy, stage, through_memory));
    }
  }
  return cases;
}

std::vector<Case> tuned_replayed() {
  std::vector<Case> cases = cases_of("ddp", {0});
  for (Case& each : cases) {
    each.sizes = {1, 2};
    each.replayed = true;
    each.steps = 20;  // of which enough are replayed after a break too
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(TunedDdp, StrategyTable, ::testing::ValuesIn(cases_of("ddp", {0})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TunedFsdp, StrategyTable, ::testing::ValuesIn(cases_of("fsdp", {0})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TunedZero, StrategyTable, ::testing::ValuesIn(cases_of("zero", {1, 2, 3})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TunedReplayed, StrategyTable, ::testing::ValuesIn(tuned_replayed()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(TunedReplayed, ReplayedStrategy, ::testing::ValuesIn(tuned_replayed()),
                         name_of);

}  // namespace
}  // namespace levin::test::table
