#include "levin/base/random/mersenne_twister.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>

namespace {

using levin::detail::discard;

at::mt19937_data_pod drawn(uint64_t seed, uint64_t words) {
  at::mt19937 engine(seed);
  for (uint64_t i = 0; i < words; ++i) engine();
  return engine.data();
}

void expect_same(const at::mt19937_data_pod& got, const at::mt19937_data_pod& wanted,
                 uint64_t words) {
  EXPECT_EQ(got.left_, wanted.left_) << words;
  EXPECT_EQ(got.next_, wanted.next_) << words;
  EXPECT_EQ(got.seed_, wanted.seed_) << words;
  EXPECT_EQ(got.state_, wanted.state_) << words;
}

TEST(MersenneTwister, DiscardLeavesTheEngineWhereDrawsLeaveIt) {
  for (const uint64_t first : {0, 1, 5, 623, 624, 625, 1000}) {
    for (const uint64_t words : {0, 1, 2, 618, 619, 622, 623, 624, 625, 1247, 1248, 1249, 99999}) {
      at::mt19937_data_pod engine = drawn(3, first);
      discard(engine, words);
      expect_same(engine, drawn(3, first + words), words);
    }
  }
}

TEST(MersenneTwister, AJumpIsAsManyDraws) {
  for (const uint64_t words : {4096 * 624, 4096 * 624 + 1, 20'000'000, 33'554'432}) {
    for (const uint64_t first : {0, 7}) {
      at::mt19937_data_pod engine = drawn(11, first);
      discard(engine, words);
      expect_same(engine, drawn(11, first + words), words);
    }
  }
}

TEST(MersenneTwister, JumpsAddUp) {
  at::mt19937_data_pod once = drawn(5, 1), in_two = once;
  discard(once, 40'000'000'000);
  discard(in_two, 39'999'999'000);
  discard(in_two, 1000);
  expect_same(in_two, once, 40'000'000'000);
}

TEST(MersenneTwister, QuickSeedsTakeAll64Bits) {
  auto generator = at::detail::createCPUGenerator();
  auto& cpu = *at::check_generator<at::CPUGeneratorImpl>(generator);
  levin::detail::seed_quickly(cpu, 1);
  const uint32_t first = cpu.random();
  levin::detail::seed_quickly(cpu, 1 + (uint64_t{1} << 32));
  EXPECT_NE(cpu.random(), first);
  levin::detail::seed_quickly(cpu, 1);
  EXPECT_EQ(cpu.random(), first);
}

}  // namespace
