// Data under several ranks in a loop of one's own: batches that rank 0 hands out, and streams.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <utility>

#include "tests/accelerator/small_nets.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::LoaderRole;
using levin::optim::sgd;
using levin::test::numbers_in_shards;
using levin::test::run_world;
using small_nets::loss_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

levin::AcceleratorOptions on_cpu(bool dispatch) {
  return {.cpu = true, .dataloader_config = {.dispatch_batches = dispatch}};
}

/// A program with dropout that stops after so many steps, and its weights.
struct Trained {
  Accelerator accelerator;
  torch::nn::Sequential net;
  levin::PreparedModel<torch::nn::SequentialImpl> model;
  levin::PreparedOptimizer optimizer;
  levin::PreparedLoader loader;

  Trained(bool dispatch, const levin::DataLoader& data)
      : accelerator(on_cpu(dispatch)),
        net((torch::manual_seed(4), small_nets::with_dropout())),
        model(std::get<0>(accelerator.prepare(net))),
        optimizer(std::get<0>(accelerator.prepare(sgd({.lr = 0.1, .momentum = 0.9})))),
        loader(std::get<0>(accelerator.prepare(data))) {}

  /// Two epochs, or until so many steps were done.
  int64_t train(int64_t until_step = -1) {
    int64_t steps = 0;
    while (loader.loader().epoch() < 2) {
      for (const auto& batch : loader) {
        optimizer.zero_grad();
        accelerator.backward(loss_of(model, batch));
        optimizer.step();
        if (++steps == until_step) return steps;
      }
    }
    return steps;
  }
  at::Tensor weights() const {
    return torch::nn::utils::parameters_to_vector(net->parameters()).detach();
  }
};

levin::DataLoader by_index() {
  return {small_nets::dataset(45), {.batch_size = 4, .shuffle = true, .num_workers = 1, .seed = 2}};
}

/// The weights after two epochs, and how many steps they were.
std::pair<at::Tensor, int64_t> uninterrupted(bool dispatch, const levin::DataLoader& data) {
  Trained run(dispatch, data);
  const int64_t steps = run.train();
  return {run.weights().clone(), steps};
}

/// Whether a run that is saved after each number of steps and resumed ends as one that is not.
std::string resumes(bool dispatch, const std::function<levin::DataLoader()>& data,
                    const fs::path& folder) {
  const auto [weights, steps] = uninterrupted(dispatch, data());
  for (int64_t done = 1; done < steps; ++done) {
    const fs::path saved = folder / fmt::format("{}", done);
    {
      Trained first(dispatch, data());
      first.train(done);
      first.accelerator.save_state(saved);
      first.accelerator.wait_for_everyone();
    }
    Trained second(dispatch, data());
    torch::manual_seed(done);
    second.accelerator.load_state(saved);
    second.train();
    if (!torch::equal(weights, second.weights())) return fmt::format("after {}", done);
  }
  return steps > 8 ? "" : "too few steps";
}

TEST(DispatchBatches, TrainsToTheSameWeightsBitForBit) {
  for (const int64_t ranks : {2, 3}) {
    EXPECT_THAT(run_world(ranks,
                          [](int64_t, const fs::path&) {
                            const auto ordinary = uninterrupted(false, by_index());
                            const auto dispatch = uninterrupted(true, by_index());
                            if (dispatch.second != ordinary.second) return "other steps";
                            return torch::equal(ordinary.first, dispatch.first) ? ""
                                                                                : "other weights";
                          }),
                Each(""));
  }
}

TEST(DispatchBatches, ResumedAtEveryStepEqualsNoInterruption) {
  EXPECT_THAT(
      run_world(2, [](int64_t, const fs::path& folder) { return resumes(true, by_index, folder); }),
      Each(""));
}

/// Shards of other lengths on each of two ranks.
levin::DataLoader stream() {
  auto data = std::make_shared<levin::test::InShards>(small_nets::whole(small_nets::dataset(60)),
                                                      std::vector<int64_t>{14, 20, 6, 20});
  return {
      levin::IterableDatasetPtr(data),
      {.batch_size = 4, .shuffle = true, .num_workers = 1, .seed = 2, .shuffle_buffer_size = 5}};
}

TEST(Streams, ResumedAtEveryStepEqualNoInterruption) {
  for (const int64_t ranks : {1, 2}) {
    EXPECT_THAT(
        run_world(ranks,
                  [](int64_t, const fs::path& folder) { return resumes(false, stream, folder); }),
        Each(""));
  }
}

TEST(Streams, UnequalLengthsEndTheEpochOnAllRanksTogether) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path&) {
                          Trained run(false, stream());
                          // Rank 0 has 4 + 2 batches of its two shards, rank 1 5 + 5.
                          const int64_t steps = run.train();
                          return fmt::format("{} steps, epoch {}", steps,
                                             run.loader.loader().epoch());
                        }),
              Each("12 steps, epoch 2"));
}

TEST(Streams, WithJoinUnevenInputsEachBatchIsTrainedOn) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const fs::path&) {
                          Trained run(false, stream());
                          int64_t steps = 0;
                          run.accelerator.join_uneven_inputs([&] { steps = run.train(); });
                          return fmt::format("{}", steps);
                        }),
              ::testing::ElementsAre("12", "20"));
}

/// 3 batches on rank 0 and 2 on rank 1.
TEST(JoinUnevenInputs, EndsWithAnExceptionInItsLoop) {
  EXPECT_THAT(
      run_world(
          2,
          [](int64_t, const fs::path&) -> std::string {
            Accelerator accelerator({.cpu = true, .dataloader_config = {.even_batches = false}});
            auto [loader] =
                accelerator.prepare(levin::DataLoader(small_nets::dataset(5), {.batch_size = 1}));
            const auto loop = [&, &loader = loader] {
              for ([[maybe_unused]] const auto& batch : loader) {
              }
            };
            try {
              accelerator.join_uneven_inputs([] { throw std::runtime_error("own"); });
            } catch (const std::runtime_error&) {
              loop();
            }
            return "nobody said that batches are uneven";
          }),
      Each(StartsWith("accelerator.even_batches: only 1 of 2 processes have a batch left")));
}

/// What gather_for_metrics puts together of an evaluation, in order.
std::string gathered(bool dispatch, const levin::DataLoader& data) {
  Accelerator accelerator(on_cpu(dispatch));
  levin::DataLoader loader = accelerator.prepare_loader(data, LoaderRole::kEvaluation);
  std::vector<at::Tensor> all;
  levin::Batch batch;
  while (true) {
    const bool left = loader.next(batch);
    if (!accelerator.any(left)) break;
    all.push_back(
        accelerator.gather_for_metrics(left ? batch["index"] : torch::empty({0}, at::kLong)));
    if (accelerator.any(!left)) break;
  }
  return c10::str(torch::cat(all).sizes(), " up to ", torch::cat(all).max().item<int64_t>(),
                  torch::cat(all).equal(torch::arange(torch::cat(all).size(0))) ? " in order" : "");
}

TEST(DispatchBatches, MetricsAreGatheredOverEachSampleOnceInOrder) {
  for (const int64_t samples : {24, 25}) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t, const fs::path&) {
                            return gathered(
                                true, {levin::data::tensors({{"index", torch::arange(samples)}}),
                                       {.batch_size = 4}});
                          }),
                Each(fmt::format("[{}] up to {} in order", samples, samples - 1)));
    EXPECT_THAT(run_world(2,
                          [&](int64_t, const fs::path&) {
                            return gathered(
                                true,
                                {levin::IterableDatasetPtr(numbers_in_shards({9, samples - 9})),
                                 {.batch_size = 4}});
                          }),
                Each(fmt::format("[{}] up to {} in order", samples, samples - 1)));
  }
}

TEST(DispatchBatches, WhereRanksAreToReadTheSameIsAnError) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const fs::path&) {
                  auto options = on_cpu(true);
                  options.engine.use_distributed_sampler = false;
                  Accelerator accelerator(options);
                  accelerator.prepare(by_index());
                  return "";
                }),
      Each(StartsWith("accelerator.dispatch_batches: dispatch_batches splits each batch over 2")));
}

TEST(DispatchBatches, OfOneRankChangesNothing) {
  Accelerator accelerator(on_cpu(true));
  auto [loader] = accelerator.prepare(by_index());
  EXPECT_EQ(loader.size(), 12);
  EXPECT_NE(loader.loader().dataset(), nullptr);
}

TEST(Streams, ARunOfOtherRanksIsResumedAtAnEpochsStartAndInsideOne) {
  const levin::test::Scratch root;
  ASSERT_THAT(run_world(2,
                        [&](int64_t, const fs::path&) {
                          Trained run(false, stream());
                          run.train(6);  // an epoch on rank 0
                          run.accelerator.save_state(root / "inside");
                          levin::Batch batch;
                          if (run.loader.loader().next(batch)) return "not the end";
                          run.accelerator.save_state(root / "between");
                          return "";
                        }),
              Each(""));
  const auto load = [&](const char* name) {
    return run_world(1, [&](int64_t, const fs::path&) {
      Trained run(false, stream());
      run.accelerator.load_state(root / name);
      levin::DataLoader loader = run.loader.loader();
      const bool is_inside = loader.batches_done() > 0;
      return fmt::format("epoch {}{}", loader.epoch(), is_inside ? ", inside" : "");
    });
  };
  EXPECT_THAT(load("between"), Each("epoch 1"));
  EXPECT_THAT(load("inside"), Each("epoch 0, inside"));
}

}  // namespace
