// Sizes that belong together: the axes of a ParallelismConfig and the ranks of a run, the batch of an
// optimizer step and its parts, and batch sizes that fit into memory.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <new>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/world.h"

namespace batch_triple {
namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::ParallelismConfig;
using levin::optim::sgd;
using levin::test::error_of;
using levin::test::run_world;
using levin::test::told_by;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::sequential;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::StartsWith;

AcceleratorOptions sized(const ParallelismConfig& sizes, const std::string& strategy = "auto") {
  return {.cpu = true, .strategy = strategy, .engine = {.parallelism_config = sizes}};
}

TEST(ParallelismConfig, OfOneRankChangesNothing) {
  EXPECT_EQ(Accelerator(sized({})).options().strategy, "auto");
  EXPECT_EQ(Accelerator(sized({}, "single")).options().strategy, "single");
}

TEST(ParallelismConfig, RefusesByNameWhatIsNotThere) {
  const auto refused = [](const ParallelismConfig& sizes, const std::string& strategy = "auto") {
    return error_of([&] { Accelerator{sized(sizes, strategy)}; });
  };
  EXPECT_THAT(refused({.tp_size = 2}),
              StartsWith("accelerator.parallelism: got tp_size = 2, but tensor parallelism is not "
                         "there yet; set it to 1, and shard parameters with dp_shard_size"));
  EXPECT_THAT(refused({.cp_size = 2}),
              StartsWith("accelerator.parallelism: got cp_size = 2, but context parallelism"));
  EXPECT_THAT(refused({.sp_size = 2}),
              StartsWith("accelerator.parallelism: got sp_size = 2, but sequence parallelism"));
  EXPECT_THAT(refused({.dp_replicate_size = 2, .dp_shard_size = 2}),
              StartsWith("accelerator.parallelism: got dp_replicate_size = 2 and dp_shard_size = "
                         "2 on 1 ranks, wanted sizes whose product is the number of ranks"));
  EXPECT_THAT(refused({.dp_replicate_size = 0}),
              StartsWith("accelerator.parallelism: got dp_replicate_size = 0"));
  EXPECT_THAT(refused({.dp_shard_size = 4}),
              StartsWith("accelerator.parallelism: got dp_shard_size = 4 on 1 ranks"));
}

/// The strategy, the number of elements that lie on this rank after prepare, and the trained weights.
std::string outcome(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  const auto net = sequential();
  auto [model, optimizer, loader] =
      accelerator.prepare(net, sgd({.lr = 0.1}), levin::DataLoader(dataset(16), {.batch_size = 4}));
  int64_t here = 0;
  for (const at::Tensor& parameter : net->parameters()) here += parameter.numel();
  for (const auto& batch : loader) {
    accelerator.backward(loss_of(model, batch));
    optimizer.step();
    optimizer.zero_grad();
  }
  const levin::State full = accelerator.get_state_dict(model);
  const auto sum = full.tensor("0.weight").to(at::kDouble).sum().item<double>();
  return fmt::format("{} {} {:.5f}", accelerator.options().strategy, here, sum);
}

TEST(ParallelismConfig, OfAllRanksMeansTheStrategy) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    const std::string ddp = outcome(sized({}, "ddp")), fsdp = outcome(sized({}, "fsdp"));
    if (ddp == fsdp) return std::string("nothing is sharded: ") + ddp;
    if (outcome(sized({.dp_replicate_size = 2})) != ddp) return std::string("ddp: ") + ddp;
    if (outcome(sized({.dp_shard_size = 2})) != fsdp) return std::string("fsdp: ") + fsdp;
    if (outcome(sized({.dp_shard_size = 2}, "fsdp")) != fsdp) return std::string("named fsdp");
    return std::string(Accelerator(sized({.dp_shard_size = 2}, "zero")).options().strategy);
  });
  EXPECT_THAT(words, Each("zero"));
}

TEST(ParallelismConfig, OfBothSizesShardsEachCopy) {
  const auto words = run_world(4, [](int64_t, const auto&) {
    AcceleratorOptions by_mesh = sized({}, "fsdp");
    by_mesh.engine.fsdp.mesh = "replicate=2,fsdp=2";
    const std::string wanted = outcome(by_mesh), fsdp = outcome(sized({}, "fsdp"));
    if (wanted == fsdp) return "as over all ranks: " + fsdp;
    const std::string both = outcome(sized({.dp_replicate_size = 2, .dp_shard_size = 2}));
    if (both != wanted) return both + ", not " + wanted;
    AcceleratorOptions two = sized({.dp_replicate_size = 2, .dp_shard_size = 2});
    two.engine.fsdp.mesh = "replicate=4";
    return told_by([&] { Accelerator{two}; });
  });
  EXPECT_THAT(words,
              Each("accelerator.parallelism: got dp_replicate_size = 2 and dp_shard_size = 2 "
                   "with --mesh replicate=4; leave one of the two out"));
}

TEST(ParallelismConfig, MustNotContradictRanksOrStrategy) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    return told_by([] { Accelerator{sized({.dp_shard_size = 4})}; }) + " | " +
           told_by([] { Accelerator{sized({.dp_shard_size = 2}, "ddp")}; }) + " | " +
           told_by([] { Accelerator{sized({.dp_replicate_size = 2}, "fsdp")}; });
  });
  EXPECT_THAT(
      words,
      Each("accelerator.parallelism: got dp_shard_size = 4 on 2 ranks, wanted the number of ranks; "
           "set it to 2, or start 4 ranks | accelerator.parallelism: got dp_shard_size = 2 with "
           "strategy 'ddp', which does not shard parameters; set --strategy fsdp, or leave one of "
           "the two out | accelerator.parallelism: got dp_replicate_size = 2 with strategy 'fsdp', "
           "which does not replicate parameters; set --strategy ddp, or leave one of the two out"));
}

/// Two epochs of 48 samples in batches of 4 a rank; returns windows and weights.
std::string trained(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  const auto net = sequential();
  auto [model, optimizer, loader] =
      accelerator.prepare(net, sgd({.lr = 0.1}), levin::DataLoader(dataset(48), {.batch_size = 4}));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate(model);
      accelerator.backward(loss_of(model, batch));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  const auto sum = net->parameters()[0].to(at::kDouble).abs().sum().item<double>();
  return fmt::format("{} {} {:.10f} {}", accelerator.gradient_accumulation_steps(),
                     optimizer.steps(), sum, loader.total_batch_size());
}

AcceleratorOptions accumulated(int64_t steps, int64_t train_batch_size) {
  return {.gradient_accumulation_steps = steps,
          .cpu = true,
          .engine = {.train_batch_size = train_batch_size}};
}

TEST(TrainBatchSize, SetsTheNumberOfBatchesOfAStep) {
  const std::string by_hand = trained(accumulated(3, 0));
  EXPECT_THAT(by_hand, StartsWith("3 8 "));
  EXPECT_EQ(trained(accumulated(1, 12)), by_hand);
  EXPECT_EQ(trained(accumulated(3, 12)), by_hand);
  EXPECT_THAT(trained(accumulated(1, 4)), StartsWith("1 24 "));
}

TEST(TrainBatchSize, CountsTheSamplesOfAllRanks) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    const std::string by_hand = trained(accumulated(3, 0));
    return trained(accumulated(1, 24)) == by_hand ? by_hand : "differs from " + by_hand;
  });
  EXPECT_THAT(words, Each(StartsWith("3 4 ")));
  EXPECT_THAT(words, Each(::testing::EndsWith(" 8")));  // total_batch_size of the loader
}

TEST(TrainBatchSize, ThatDoesNotFitIsAnError) {
  EXPECT_THAT(
      error_of([] { trained(accumulated(1, 10)); }),
      StartsWith("accelerator.train_batch_size: got train_batch_size = 10, wanted a multiple "
                 "of 4: 1 ranks read batches of 4 samples"));
  EXPECT_THAT(error_of([] { trained(accumulated(2, 12)); }),
              StartsWith("accelerator.train_batch_size: got train_batch_size = 12 with "
                         "gradient_accumulation_steps = 2, but 2 batches of 4 samples on 1 ranks "
                         "are 8 samples"));
  EXPECT_THAT(error_of([] { trained(accumulated(1, -1)); }),
              StartsWith("accelerator.train_batch_size: got train_batch_size = -1"));
}

struct Attempts {
  std::vector<int64_t> sizes;
  std::string end;
};

/// Sizes tried until one is below `fits`; how it ended.
Attempts attempts(int64_t first, int64_t fits, const levin::ReduceBatchSize& reduce = nullptr) {
  Attempts seen;
  seen.end = error_of([&] {
    const int64_t found = levin::find_executable_batch_size(
        first,
        [&](int64_t size) {
          seen.sizes.push_back(size);
          if (size >= fits) throw std::bad_alloc();
          return size;
        },
        reduce);
    seen.end = "found " + std::to_string(found);
    throw levin::Error("found", std::to_string(found));
  });
  return seen;
}

TEST(FindExecutableBatchSize, LowersTheSizeUntilOneFits) {
  const Attempts seen = attempts(16, 11);
  EXPECT_THAT(seen.sizes, ElementsAre(16, 14, 12, 10));
  EXPECT_EQ(seen.end, "found: 10");
  EXPECT_THAT(attempts(64, 20, [](int64_t size) { return size / 2; }).sizes,
              ElementsAre(64, 32, 16));
}

TEST(FindExecutableBatchSize, EndsAtZero) {
  const Attempts seen = attempts(3, 0);
  EXPECT_THAT(seen.sizes, ElementsAre(3, 2, 1));
  EXPECT_THAT(seen.end, StartsWith("accelerator.executable_batch_size: no batch size fits into "
                                   "memory: 1 did not"));
}

TEST(FindExecutableBatchSize, RefusesWhatCannotEnd) {
  EXPECT_THAT(attempts(0, 1).end,
              StartsWith("accelerator.executable_batch_size: got a starting batch size of 0"));
  EXPECT_THAT(
      attempts(8, 1, [](int64_t size) { return size; }).end,
      StartsWith("accelerator.executable_batch_size: the function to reduce a batch size of "
                 "8 returned 8"));
}

TEST(FindExecutableBatchSize, ThrowsOtherErrorsAtOnce) {
  int calls = 0;
  EXPECT_THROW(levin::find_executable_batch_size(8,
                                                 [&](int64_t) {
                                                   ++calls;
                                                   throw std::runtime_error("no memory of it");
                                                 }),
               std::runtime_error);
  EXPECT_EQ(calls, 1);
}

TEST(FindExecutableBatchSize, SeesThatTensorsDoNotFit) {
  const int64_t petabyte = int64_t{1} << 50;
  int calls = 0;
  levin::find_executable_batch_size(
      4, [&](int64_t size) { ++calls, torch::empty({size > 1 ? petabyte : 1}, torch::kByte); });
  EXPECT_EQ(calls, 4);  // 4, 3, 2, 1
}

TEST(FindExecutableBatchSize, IsForOneProcess) {
  const auto words = run_world(2, [](int64_t, const auto&) { return attempts(8, 1).end; });
  EXPECT_THAT(words, Each(StartsWith("accelerator.executable_batch_size")));
}

}  // namespace
}  // namespace batch_triple
