// What collectives send in a replay lies in memory that the other ranks read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "levin/comm/operators.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "tests/support/world.h"

namespace {
namespace exchange_memory {

using at::Tensor;
using levin::graph::Graph;
using levin::graph::Replay;
using ::testing::Each;

TEST(ExchangeMemory, HoldsWhatCollectivesSend) {
  const auto words = levin::test::run_world(2, [](int64_t rank, const auto&) -> std::string {
    constexpr int64_t kNumel = 64 << 10;
    auto group = levin::test::connect("shm");
    const std::vector<int64_t> counts = {kNumel / 2, kNumel / 2};
    const auto sum = [&](const Tensor& whole) {
      Tensor part = at::empty({kNumel / 2});
      levin::comm::call_reduce_scatter(part, whole, counts, levin::ReduceOp::kSum, group);
      return part;
    };
    const auto function = [&](const Tensor& x) {
      const Tensor first = sum(x * 2);
      const Tensor both = x * 3, others = x.exp();  // at the same time
      return first + sum(both) * sum(others);
    };
    torch::manual_seed(rank);
    const Graph graph = levin::trace(function, {torch::randn({kNumel})}).graph().clone();
    std::vector<Tensor> pieces = {group.allocate(kNumel, at::kFloat),
                                  group.allocate(kNumel + 1, at::kFloat)};
    struct Case {
      std::vector<Tensor> memory;
      int64_t num_exchanged;
    };
    const std::vector<Case> cases = {
        {{}, 0}, {{pieces[0]}, 2}, {pieces, 3}, {{pieces[0].narrow(0, 1, kNumel - 1)}, 0}};
    for (const auto& [memory, num_exchanged] : cases) {
      for (const Tensor& piece : pieces) piece.fill_(-7);
      Replay replay(graph, {.exchange_memory = memory});
      EXPECT_EQ(replay.report().num_exchanged, num_exchanged);
      for (int step = 0; step < 2; ++step) {
        const Tensor x = torch::randn({kNumel});
        EXPECT_TRUE(at::equal(replay({x}).front(), function(x))) << num_exchanged;
        const auto written = [](const Tensor& piece) { return !piece.eq(-7).all().item<bool>(); };
        EXPECT_EQ(std::ranges::count_if(pieces, written),
                  num_exchanged > 0 ? num_exchanged - 1 : 0);
      }
    }
    return ::testing::Test::HasFailure() ? "it differs" : "";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace exchange_memory
}  // namespace
