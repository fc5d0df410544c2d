#include "levin/data/sampler.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace {

using levin::Sampler;
using levin::Uneven;
using levin::test::error_of;
using levin::test::from_zero;
using testing::ElementsAre;
using testing::StartsWith;

using Indices = std::vector<int64_t>;

/// What is left of the epoch, asked for in pieces.
Indices rest(Sampler& sampler, int64_t piece = 3) {
  Indices all;
  Indices some(static_cast<size_t>(piece));
  int64_t count = 0;
  do {
    count = sampler.next(some);
    all.insert(all.end(), some.begin(), some.begin() + count);
  } while (count == piece);
  return all;
}

Indices epoch_of(Sampler& sampler, int64_t epoch, int64_t consumed = 0) {
  sampler.start(epoch, consumed);
  return rest(sampler);
}

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(epoch_of(*levin::sequential_sampler(7), 0), from_zero(7));
  EXPECT_EQ(levin::sequential_sampler(7)->size(), 7);
}

TEST(RandomSampler, GivesEachSampleOnceInAnotherOrderEachEpoch) {
  const auto sampler = levin::random_sampler(50, 1);
  const Indices first = epoch_of(*sampler, 0);
  const Indices second = epoch_of(*sampler, 1);
  EXPECT_THAT(first, testing::UnorderedElementsAreArray(from_zero(50)));
  EXPECT_THAT(second, testing::UnorderedElementsAreArray(from_zero(50)));
  EXPECT_NE(first, second);
  EXPECT_NE(first, from_zero(50));
}

TEST(RandomSampler, DependsOnSeedAndEpochAlone) {
  const auto sampler = levin::random_sampler(50, 1);
  epoch_of(*sampler, 0);
  const Indices later = epoch_of(*sampler, 3);
  EXPECT_EQ(later, epoch_of(*levin::random_sampler(50, 1), 3));
  EXPECT_NE(later, epoch_of(*levin::random_sampler(50, 2), 3));
}

// bench/peers/sections.py repeats it, by torch.randperm under that seed.
TEST(RandomSampler, IsWhatPythonDrawsUnderTheDerivedSeed) {
  const auto sampler = levin::random_sampler(12, 1);
  EXPECT_THAT(epoch_of(*sampler, 0), ElementsAre(0, 5, 3, 9, 10, 2, 6, 1, 11, 7, 8, 4));
  EXPECT_THAT(epoch_of(*sampler, 1), ElementsAre(5, 7, 4, 6, 2, 11, 0, 1, 8, 10, 9, 3));
}

TEST(RandomSampler, LeavesTheGlobalGeneratorAlone) {
  torch::manual_seed(3);
  const auto wanted = torch::rand({4});
  torch::manual_seed(3);
  epoch_of(*levin::random_sampler(50, 1), 0);
  EXPECT_TRUE(torch::equal(torch::rand({4}), wanted));
}

TEST(Samplers, StandWhereTheyAreStarted) {
  for (const auto& sampler :
       {levin::sequential_sampler(10), levin::random_sampler(10, 5),
        levin::distributed_sampler(levin::random_sampler(21, 5), 1, 2, Uneven::kKeep)}) {
    const Indices all = epoch_of(*sampler, 2);
    for (int64_t consumed = 0; consumed <= 10; ++consumed) {
      EXPECT_EQ(epoch_of(*sampler, 2, consumed), Indices(all.begin() + consumed, all.end()));
    }
    EXPECT_TRUE(epoch_of(*sampler, 2, 11).empty());
  }
}

TEST(DistributedSampler, PadsAsPyTorchDoes) {
  // torch.utils.data.DistributedSampler(range(10), num_replicas=4, rank=r, shuffle=False)
  const std::vector<Indices> wanted = {{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto part =
        levin::distributed_sampler(levin::sequential_sampler(10), rank, 4, Uneven::kPad);
    EXPECT_EQ(epoch_of(*part, 0), wanted[static_cast<size_t>(rank)]);
  }
}

TEST(DistributedSampler, DropsAsPyTorchDoes) {
  // The same with drop_last=True.
  const std::vector<Indices> wanted = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto part =
        levin::distributed_sampler(levin::sequential_sampler(10), rank, 4, Uneven::kDrop);
    EXPECT_EQ(epoch_of(*part, 0), wanted[static_cast<size_t>(rank)]);
  }
}

/// DistributedSampler.__iter__ of PyTorch 2.13, for kPad and kDrop.
Indices pytorch(Indices indices, int64_t rank, int64_t world, bool drop_last) {
  const auto size = std::ssize(indices);
  const int64_t each = drop_last ? size / world : (size + world - 1) / world;
  const int64_t total = each * world;
  for (int64_t i = 0; std::ssize(indices) < total; ++i) indices.push_back(indices[i]);
  Indices mine;
  for (int64_t i = rank; i < total; i += world) mine.push_back(indices[static_cast<size_t>(i)]);
  return mine;
}

TEST(DistributedSampler, EqualsPyTorchsFormulaForEverySizeAndWorld) {
  for (int64_t size = 1; size <= 17; ++size) {
    for (int64_t world = 1; world <= 5; ++world) {
      for (const bool drop_last : {false, true}) {
        if (drop_last && size < world) continue;
        const Indices base = epoch_of(*levin::random_sampler(size, 9), 4);
        for (int64_t rank = 0; rank < world; ++rank) {
          const auto part = levin::distributed_sampler(levin::random_sampler(size, 9), rank, world,
                                                       drop_last ? Uneven::kDrop : Uneven::kPad);
          const Indices mine = epoch_of(*part, 4);
          EXPECT_EQ(mine, pytorch(base, rank, world, drop_last))
              << size << " samples, rank " << rank << " of " << world;
          EXPECT_EQ(part->size(), std::ssize(mine));
        }
      }
    }
  }
}

TEST(DistributedSampler, KeepRepeatsNoSampleAndLeavesNoneOut) {
  for (int64_t size = 4; size <= 11; ++size) {
    Indices all;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const auto part =
          levin::distributed_sampler(levin::random_sampler(size, 2), rank, 4, Uneven::kKeep);
      const Indices mine = epoch_of(*part, 1);
      EXPECT_EQ(part->size(), std::ssize(mine));
      all.insert(all.end(), mine.begin(), mine.end());
    }
    EXPECT_THAT(all, testing::UnorderedElementsAreArray(from_zero(size)));
  }
}

/// Promises ten samples and gives four.
class ShortSampler final : public Sampler {
 public:
  int64_t size() const override { return 10; }
  void start(int64_t, int64_t consumed) override { position_ = consumed; }
  int64_t next(std::span<int64_t> indices) override {
    const int64_t count = std::clamp<int64_t>(4 - position_, 0, std::ssize(indices));
    std::iota(indices.begin(), indices.begin() + count, position_);
    position_ += count;
    return count;
  }

 private:
  int64_t position_ = 0;
};

TEST(Samplers, MistakesAreErrors) {
  const auto split = [](int64_t size, int64_t rank, int64_t world, Uneven uneven) {
    return error_of(
        [=] { levin::distributed_sampler(levin::sequential_sampler(size), rank, world, uneven); });
  };
  EXPECT_THAT(split(10, 2, 2, Uneven::kPad), StartsWith("data.sampler.rank: got rank 2 of 2"));
  EXPECT_THAT(split(10, -1, 2, Uneven::kPad), StartsWith("data.sampler.rank"));
  EXPECT_EQ(split(10, 0, 16, Uneven::kDrop),
            "data.sampler.size: 10 samples cannot feed 16 ranks; use fewer ranks or "
            "drop_last=false");
  EXPECT_EQ(split(10, 15, 16, Uneven::kKeep), "no error");  // and no sample
  EXPECT_EQ(split(10, 0, 16, Uneven::kPad), "no error");
  EXPECT_THAT(split(0, 0, 2, Uneven::kPad), StartsWith("data.sampler.size"));
  EXPECT_THAT(error_of([] { levin::random_sampler(-1, 0); }), StartsWith("data.sampler.size"));
  const auto part =
      levin::distributed_sampler(std::make_shared<ShortSampler>(), 0, 2, Uneven::kPad);
  EXPECT_EQ(error_of([&] { epoch_of(*part, 0); }),
            "data.sampler.short: the sampler ended after 4 samples, but its size() is 10; correct "
            "its size()");
}

}  // namespace
