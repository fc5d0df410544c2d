// Units that are sharded over neighbouring ranks between forward and backward, and options of single units.
#include "levin/strategy/fsdp/resharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/autocast.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/module/activation_checkpoint.h"
#include "levin/module/wrap.h"
#include "levin/strategy/strategies.h"
#include "tests/strategy/fsdp/gathered.h"
#include "tests/strategy/fsdp/trained.h"
#include "tests/strategy/table.h"
#include "tests/support/error_of.h"

namespace levin::test {
namespace {

using fsdp::ranks_after_forward;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kLayers = 8;

torch::nn::Sequential equal_layers() {
  torch::manual_seed(5);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(16, 16));
  wrap_all(*net);
  return net;
}

/// The two ranks of this half.
comm::ProcessGroup pair_of(comm::ProcessGroup group) {
  comm::ProcessGroup first = group.subgroup({0, 1}), second = group.subgroup({2, 3});
  return group.rank() < 2 ? first : second;
}

std::vector<at::Tensor> take_gradients(const Gathered& gathered) {
  std::vector<at::Tensor> gradients;
  for (const auto& unit : gathered.units) {
    for (const auto& parameter : unit->parameters()) {
      gradients.push_back(parameter->leaf().grad());
      parameter->leaf().mutable_grad().reset();
    }
  }
  return gradients;
}

// Ranks 2 and 3 begin their backward when ranks 0 and 1 have ended theirs, so that these can only have
// gathered from each other.
TEST(Resharding, BackwardGathersFromNeighboursAlone) {
  const auto words = run_world(4, [&](int64_t rank, const fs::path&) -> std::string {
    comm::ProcessGroup group = connect("gloo");
    const comm::ProcessGroup pair = pair_of(group);
    torch::nn::Sequential net = equal_layers(), alone = equal_layers();
    Gathered gathered(group, *net, {.resharding = {.near = pair}});
    const auto& cache = gathered.gather.cache();
    const int64_t unit = gathered.units.front()->bytes();
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor x = some_inputs(step).repeat({1, 3}).narrow(1, 0, 16);
      const auto wait = [&](bool waits) {
        return [&, waits] { waits ? group.barrier() : void(); };
      };
      const at::Tensor loss =
          gathered.pass([&] { return net->forward(x).square().mean(); },
                        {.before_backward = wait(rank > 1), .after_backward = wait(rank < 2)});
      alone->zero_grad();
      const at::Tensor wanted = alone->forward(x).square().mean();
      wanted.backward();
      if (!at::equal(loss, wanted.detach())) return "loss";
      const auto gradients = take_gradients(gathered);
      for (size_t i = 0; i < gradients.size(); ++i) {
        if (!at::equal(gradients[i], alone->parameters()[i].grad())) return "gradient";
      }
      // All ranks gather in forward. The last three units are still there in backward, and no gradient
      // needs the first one.
      const int64_t near = cache.num_near_bytes(), all = cache.num_bytes() - near;
      if (all != (step + 1) * kLayers * unit) return "from all ranks: " + std::to_string(all);
      if (near != (step + 1) * 4 * unit) return "from neighbours: " + std::to_string(near);
    }
    // Three units, and half of each of the five that forward frees.
    const int64_t wanted = 3 * unit + 5 * (unit / 2);
    return cache.most_bytes() == wanted ? "" : "memory: " + std::to_string(cache.most_bytes());
  });
  EXPECT_THAT(words, Each(""));
}

// Values do not change within an accumulation window: later batches find the parts of the first one.
TEST(Resharding, PartsServeUntilValuesChange) {
  const auto words = run_world(4, [&](int64_t, const fs::path&) -> std::string {
    comm::ProcessGroup group = connect("gloo");
    torch::nn::Sequential net = equal_layers();
    Gathered gathered(group, *net, {.resharding = {.near = pair_of(group)}});
    const auto& cache = gathered.gather.cache();
    const int64_t unit = gathered.units.front()->bytes();
    const auto batch = [&](bool updates) {
      gathered.pass([&] { return net->forward(torch::ones({2, 16})).square().mean(); },
                    {.updates = updates});
      return cache.num_bytes() - cache.num_near_bytes();
    };
    const int64_t first = batch(false), second = batch(true), third = batch(true);
    if (first != kLayers * unit) return "first " + std::to_string(first);
    // Only the three units that the first forward did not free lack parts.
    if (second - first != 3 * unit) return "second " + std::to_string(second - first);
    return third - second == kLayers * unit ? "" : "third " + std::to_string(third - second);
  });
  EXPECT_THAT(words, Each(""));
}

// Under --offload parameters, rows are in a file.
TEST(Resharding, ServesUnitsInFiles) {
  const Scratch scratch;
  const auto words = run_world(4, [&](int64_t, const fs::path&) -> std::string {
    comm::ProcessGroup group = connect("gloo");
    torch::nn::Sequential net = equal_layers(), alone = equal_layers();
    const auto file = files::ScratchFile::create({.folder = scratch.path(), .allow_tmpfs = true});
    Gathered gathered(group, *net,
                      {.resharding = {.near = pair_of(group)}, .memory = {.file = file}});
    for (int64_t step = 0; step < 2; ++step) {
      const at::Tensor x = torch::ones({2, 16}) * (step + 1);
      const at::Tensor loss = gathered.pass([&] { return net->forward(x).square().mean(); });
      if (!at::equal(loss, alone->forward(x).square().mean().detach())) return "loss";
      take_gradients(gathered);
    }
    return gathered.gather.cache().num_near_bytes() > 0 ? "" : "nothing from neighbours";
  });
  EXPECT_THAT(words, Each(""));
}

struct Deep : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  bool checkpoints = false;

  explicit Deep(const std::optional<WrapOptions>& last = {}) {
    for (int64_t i = 0; i < kLayers; ++i) {
      const bool is_last = i + 1 == kLayers;
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(12, 12)));
      wrap(layers.back(), is_last && last ? *last : WrapOptions());
    }
  }
  at::Tensor forward(at::Tensor x) const {
    for (torch::nn::Linear layer : layers) {
      auto block = [layer](const at::Tensor& in) mutable { return layer->forward(in.tanh()); };
      x = checkpoints ? activation_checkpoint(block, x) : block(x);
    }
    return x;
  }
};

Task task_of(const std::shared_ptr<Deep>& net, bool in_bfloat16 = false) {
  return {net, [](int64_t step) { return drawn(step, {kGlobalBatch, 12}); },
          [net, in_bfloat16](const at::Tensor& x) {
            const AutocastScope autocast(at::kCPU,
                                         {.enabled = in_bfloat16, .dtype = at::kBFloat16});
            return net->forward(x).to(at::kFloat).square().mean();
          }};
}

Task deep() { return task_of(std::make_shared<Deep>()); }
Task deep_in_bfloat16() { return task_of(std::make_shared<Deep>(), /*in_bfloat16=*/true); }
Task deep_checkpointed() {
  const auto net = std::make_shared<Deep>();
  net->checkpoints = true;
  return task_of(net);
}
Task deep_with_frozen_layers() {
  const auto net = std::make_shared<Deep>();
  for (const size_t i : {1, 4}) {
    for (at::Tensor& parameter : net->layers[i]->parameters()) parameter.requires_grad_(false);
  }
  return task_of(net);
}
Task deep_with_options() {
  return task_of(std::make_shared<Deep>(WrapOptions{.reshard_after_forward = false}));
}

class Resharded : public ::testing::TestWithParam<table::Case> {};

TEST_P(Resharded, EqualsTheDefaultBitForBit) {
  table::Case plain = GetParam();
  plain.steps = 12;
  plain.replayed = false;
  const auto words = run_world(4, [&](int64_t rank, const fs::path& folder) -> std::string {
    const comm::ProcessGroup group = connect(plain.backend);
    fs::create_directories(folder / "plain");
    table::train_case(plain, group, folder / "plain");
    const State wanted = table::weights_in(folder / "plain", rank);
    for (const ReshardAfterForward& value :
         {ReshardAfterForward(true), ReshardAfterForward(false), ReshardAfterForward(2)}) {
      table::Case c = plain;
      c.replayed = GetParam().replayed;
      if (c.replayed && to_text(value) == "2") continue;  // refused, below
      c.fsdp.reshard_after_forward = value;
      table::train_case(c, group, folder);
      const std::string off = table::compare(table::weights_in(folder, rank), wanted, 0);
      if (!off.empty()) return to_text(value) + ": " + off;
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    Fsdp, Resharded,
    ::testing::Values(
        table::Case{.name = "Plain", .strategy = "fsdp", .backend = "gloo", .task = deep},
        table::Case{.name = "Adam",
                    .strategy = "fsdp",
                    .backend = "gloo",
                    .task = deep,
                    .optimizer = "adam"},
        table::Case{.name = "Accumulated",
                    .strategy = "fsdp",
                    .backend = "gloo",
                    .task = deep,
                    .accumulate = 2},
        table::Case{.name = "Checkpointed",
                    .strategy = "fsdp",
                    .backend = "gloo",
                    .task = deep_checkpointed},
        table::Case{
            .name = "BFloat16", .strategy = "fsdp", .backend = "gloo", .task = deep_in_bfloat16},
        table::Case{.name = "Frozen",
                    .strategy = "fsdp",
                    .backend = "gloo",
                    .task = deep_with_frozen_layers},
        table::Case{.name = "OneUnitKept",
                    .strategy = "fsdp",
                    .backend = "gloo",
                    .task = deep_with_options},
        table::Case{.name = "Zero3",
                    .strategy = "zero",
                    .backend = "gloo",
                    .task = deep,
                    .accumulate = 2,
                    .fsdp = {.zero_stage = 3}},
        table::Case{.name = "Replayed",
                    .strategy = "fsdp",
                    .backend = "gloo",
                    .task = deep,
                    .replayed = true},
        table::Case{.name = "ReplayedZero3",
                    .strategy = "zero",
                    .backend = "gloo",
                    .task = deep_checkpointed,
                    .fsdp = {.zero_stage = 3},
                    .replayed = true},
        table::Case{.name = "SharedMemory", .strategy = "fsdp", .task = deep},
        table::Case{
            .name = "OneHost", .strategy = "fsdp", .backend = "hierarchical", .task = deep}),
    table::name_of);

TEST(Resharding, AStepBetweenForwardAndBackwardIsAnErrorAsWithout) {
  const auto words = run_world(4, [&](int64_t, const fs::path&) -> std::string {
    torch::nn::Sequential net;
    for (int i = 0; i < 6; ++i) net->push_back(torch::nn::Linear(6, 6));
    wrap_all(*net);
    Trained trained(connect("gloo"), net, {.reshard_after_forward = 2});
    trained.step(some_inputs());
    const at::Tensor loss = trained.forward(some_inputs()).square().mean();
    trained.step(some_inputs(2));
    const std::string error = refusal_of([&] { trained.strategy->backward(loss, false); });
    return error.find("modified by an inplace operation") != std::string::npos ? ""
                                                                               : "got " + error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Resharding, OverNeighboursIsRefusedWhereStepsAreRecorded) {
  const auto words = run_world(4, [&](int64_t, const fs::path&) -> std::string {
    const auto strategy = make_strategy(
        "fsdp",
        {.group = connect("gloo"), .fsdp = {.reshard_after_forward = 2}, .recordable = true});
    const torch::nn::Sequential net = equal_layers();
    const std::string error = error_of([&] { strategy->setup(*net.ptr(), at::kCPU); });
    return error.find("strategy.fsdp.options: unit 0 got reshard_after_forward = 2") !=
                       std::string::npos &&
                   error.find("--compile no") != std::string::npos
               ? ""
               : error;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Resharding, EvaluationsOfDifferentLengthsMayFollowAForward) {
  const auto words = run_world(4, [&](int64_t rank, const fs::path&) -> std::string {
    torch::nn::Sequential net = equal_layers();
    Trained trained(connect("gloo"), net, {.reshard_after_forward = 2});
    torch::nn::Sequential alone = equal_layers();
    const at::Tensor x = torch::ones({2, 16});
    // A batch of a window leaves parts, and the evaluation comes before the update.
    trained.strategy->backward(trained.forward(x).square().mean(), /*synchronize=*/false);
    {
      const at::NoGradGuard no_grad;
      const at::Tensor wanted = alone->forward(x);
      for (int64_t i = 0; i <= rank; ++i) {
        if (!at::equal(trained.forward(x), wanted)) return "outputs";
      }
    }
    trained.strategy->end_evaluation();
    trained.strategy->backward(trained.forward(x).square().mean(), /*synchronize=*/true);
    trained.strategy->update(*trained.optimizer);
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

// Also on one rank, which fetches units from a file under --offload parameters.
TEST(StaysGathered, FollowsTheUnitThenTheOptionThenTheMemory) {
  using fsdp::stays_gathered;
  EXPECT_FALSE(stays_gathered({}, {}, false));
  EXPECT_TRUE(stays_gathered({}, {}, /*is_rest=*/true));
  EXPECT_FALSE(stays_gathered({}, true, /*is_rest=*/true));
  EXPECT_TRUE(stays_gathered({}, false, false));
  EXPECT_TRUE(stays_gathered({.reshard_after_forward = false}, {}, false));
  EXPECT_FALSE(stays_gathered({.reshard_after_forward = false}, 2, false));
  EXPECT_TRUE(stays_gathered({.reshard_after_forward = 1}, {}, false));
  EXPECT_FALSE(stays_gathered({.reshard_after_forward = 4}, {}, false));
  EXPECT_TRUE(stays_gathered({.gathered_mb = -1}, {}, false));
}

TEST(RanksAfterForward, FollowTheUnitThenTheOptionThenTheMemory) {
  const auto ranks = [](const FsdpOptions& options, const ReshardAfterForward& of_unit = {},
                        bool is_rest = false, int64_t num_ranks = 8) {
    return ranks_after_forward(options, of_unit, is_rest, "blocks.3", num_ranks);
  };
  EXPECT_EQ(ranks({}), 8);
  EXPECT_EQ(ranks({.gathered_mb = -1}), 1);
  EXPECT_EQ(ranks({.reshard_after_forward = true}), 8);
  EXPECT_EQ(ranks({.reshard_after_forward = false}), 1);
  EXPECT_EQ(ranks({.reshard_after_forward = 1}), 1);
  EXPECT_EQ(ranks({.reshard_after_forward = 4}), 4);
  EXPECT_EQ(ranks({.reshard_after_forward = 8}), 8);
  EXPECT_EQ(ranks({.reshard_after_forward = 4}, false), 1);
  EXPECT_EQ(ranks({.reshard_after_forward = false}, 2), 2);
  EXPECT_EQ(ranks({.reshard_after_forward = 4}, {}, /*is_rest=*/true), 1);
  EXPECT_EQ(ranks({}, true, /*is_rest=*/true), 8);
  EXPECT_EQ(ranks({.reshard_after_forward = 4}, {}, false, /*num_ranks=*/1), 1);
  EXPECT_THAT(error_of([&] { ranks({.reshard_after_forward = 3}); }),
              AllOf(HasSubstr("strategy.fsdp.options"), HasSubstr("reshard_after_forward = 3"),
                    HasSubstr("8 ranks"), HasSubstr("--fsdp-reshard-after-forward")));
  EXPECT_THAT(error_of([&] { ranks({}, 16); }), HasSubstr("unit blocks.3"));
  EXPECT_THAT(error_of([&] { ranks({.gathered_mb = -1}, true); }),
              AllOf(HasSubstr("blocks.3"), HasSubstr("--fsdp-gathered-mb -1")));
}

TEST(ReshardAfterForward, IsReadAndWrittenAsText) {
  for (const std::string text : {"", "true", "false", "2", "16"}) {
    ReshardAfterForward value = 7;
    from_text(text, value);
    EXPECT_EQ(to_text(value), text);
    EXPECT_EQ(value.is_set(), !text.empty());
  }
  for (const std::string text : {"no", "0", "-2", "2x", "1.5"}) {
    ReshardAfterForward value;
    EXPECT_THAT(error_of([&] { from_text(text, value); }), HasSubstr("'" + text + "'")) << text;
  }
  EXPECT_THAT(error_of([] { ReshardAfterForward(0); }), HasSubstr("got 0"));
}

TEST(ReshardAfterForward, ContradictionsAreRefused) {
  const auto error = [](std::string_view name, const FsdpOptions& options) {
    return error_of([&] { make_strategy(name, {.fsdp = options}); });
  };
  const auto both = [](const std::string& value, const std::string& mb) {
    return AllOf(HasSubstr("strategy.fsdp.options"),
                 HasSubstr("--fsdp-reshard-after-forward " + value),
                 HasSubstr("--fsdp-gathered-mb " + mb));
  };
  EXPECT_THAT(error("fsdp", {.gathered_mb = -1, .reshard_after_forward = true}),
              both("true", "-1"));
  EXPECT_THAT(error("fsdp", {.gathered_mb = -1, .reshard_after_forward = 2}), both("2", "-1"));
  EXPECT_THAT(error("fsdp", {.gathered_mb = 5, .reshard_after_forward = false}),
              both("false", "5"));
  EXPECT_EQ(error("fsdp", {.gathered_mb = -1, .reshard_after_forward = false}), "no error");
  EXPECT_EQ(error("fsdp", {.gathered_mb = 5, .reshard_after_forward = 2}), "no error");
  EXPECT_THAT(error("zero", {.reshard_after_forward = 2}),
              AllOf(HasSubstr("--fsdp-reshard-after-forward 2"), HasSubstr("--zero-stage 2")));
  EXPECT_EQ(error("zero", {.reshard_after_forward = false}), "no error");
  EXPECT_THAT(error("ddp", {.reshard_after_forward = 2}),
              HasSubstr("--fsdp-reshard-after-forward"));
}

}  // namespace
}  // namespace levin::test
