#include "levin/base/random.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

namespace {

TEST(Random, SeedMakesTheSameNumbers) {
  EXPECT_EQ(levin::seed_everything(7), 7);
  EXPECT_EQ(levin::current_seed(), 7);
  const auto first = torch::rand({4});
  levin::seed_everything(7);
  EXPECT_TRUE(torch::equal(first, torch::rand({4})));
}

TEST(Random, StateTakesUpWhereItWasSaved) {
  levin::seed_everything(1);
  torch::rand({3});
  const levin::State state = levin::random_state();
  const auto expected = torch::randn({5});
  torch::rand({100});
  levin::load_random_state(state);
  EXPECT_TRUE(torch::equal(expected, torch::randn({5})));
}

TEST(Random, DerivedSeedsDiffer) {
  std::set<uint64_t> seeds;
  for (uint64_t stream = 0; stream < 30; ++stream) {
    for (uint64_t index = 0; index < 30; ++index)
      seeds.insert(levin::derive_seed(5, stream, index));
  }
  EXPECT_EQ(seeds.size(), 900u);
}

}  // namespace
