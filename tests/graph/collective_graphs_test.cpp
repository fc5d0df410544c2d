// Graphs with collectives, from text: the rules of lint, costs, what a replay refuses and what stays.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "levin/graph/passes/passes.h"
#include "levin/graph/replay/replay.h"
#include "tests/support/error_of.h"

namespace {
namespace collective_graphs {

using levin::graph::Graph;
using levin::graph::Replay;
using levin::test::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string lint_error(const std::string& text) {
  return error_of([&] { levin::graph::parse(text).lint(); });
}

TEST(CollectiveGraphs, LintKnowsTheRulesOfStartedOnes) {
  const std::string start = R"(%x = placeholder["x"] : f32[4]
%y = aten::exp(%x) : f32[4]
%start = levin::all_reduce_start_([%y], "self", "sum") : f32[4]
)";
  const std::string wait = R"(%wait = levin::wait_([%start], "self", []) : f32[4]
return %wait
)";
  EXPECT_EQ(lint_error(start + wait), "no error");
  EXPECT_EQ(lint_error(start + "return %start\n"), "no error");  // the caller waits
  EXPECT_THAT(lint_error(start + "%z = aten::sin(%start) : f32[4]\n" + wait),
              HasSubstr("others than one wait read"));
  EXPECT_THAT(lint_error(start + R"(%wait = levin::wait_([%start], "self", [], 1) : f32[4]
return %wait
)"),
              HasSubstr("another number than its start"));
  EXPECT_THAT(lint_error(R"(%x = placeholder["x"] : f32[4]
%y = aten::exp(%x) : f32[4]
%wait = levin::wait_([%y], "self", []) : f32[4]
return %wait
)"),
              HasSubstr("got a wait without a start"));
  EXPECT_THAT(lint_error(R"(%x = placeholder["x"] : f32[4]
%y = aten::exp(%x) : f32[4]
%w = aten::zeros_like(%x) : f32[4]
%start = levin::all_gather_start_(%w, %y, [4], "self") : f32[4]
%wait = levin::wait_([%start], "self", []) : f32[4]
return %wait
)"),
              HasSubstr("got a wait that does not hold a tensor that its start sends"));
  EXPECT_THAT(lint_error(start + R"(%z = aten::sin(%x) : f32[4]
%other = levin::all_reduce_start_([%z], "self", "sum") : f32[4]
%second = levin::wait_([%other], "self", []) : f32[4]
)" + wait),
              HasSubstr("number of another one that is under way"));
}

/// Over a group that this process does not have: gloo, of 2 ranks where no parts tell their number.
TEST(CollectiveGraphs, CostsFollowTheFormulas) {
  Graph graph = levin::graph::parse(R"(%x = placeholder["x"] : f32[1000]
%a = levin::all_reduce_([%x], "none", "sum") : f32[1000]
%b = levin::broadcast_([%a], "none", 0) : f32[1000]
%part = aten::zeros([250]) : f32[250]
%c = levin::reduce_scatter_(%part, %b, [250, 250, 250, 250], "sum", "none") : f32[250]
%d = levin::all_to_all_(%b, %a, [500, 500], [500, 500], "none") : f32[1000]
%e = levin::recv_(%d, 1, 0, "none") : f32[1000]
%f = levin::barrier_([%e], "none") : f32[1000]
return %f, %c
)");
  const auto& links = levin::graph::known_links();
  const auto& gloo = *std::ranges::find(links, "gloo", &levin::graph::LinkDescription::backend);
  const auto seconds = [&](double messages, double bytes) {
    return messages * gloo.alpha_s + bytes / gloo.bytes_per_s;
  };
  const std::map<std::string, std::pair<double, double>> wanted = {
      {"levin::all_reduce_", {2, 4000}},     {"levin::broadcast_", {1, 4000}},
      {"levin::reduce_scatter_", {3, 3000}}, {"levin::all_to_all_", {1, 2000}},
      {"levin::recv_", {1, 4000}},           {"levin::barrier_", {1, 0}}};
  size_t num_found = 0;
  for (const auto& cost : cost_of(graph, *levin::graph::find_device("cpu")).nodes) {
    const auto one = wanted.find(std::string(cost.node->target()));
    if (one == wanted.end()) continue;
    ++num_found;
    EXPECT_EQ(cost.sent_bytes, one->second.second) << one->first;
    EXPECT_DOUBLE_EQ(cost.seconds, seconds(one->second.first, one->second.second)) << one->first;
  }
  EXPECT_EQ(num_found, wanted.size());
}

TEST(CollectiveGraphs, ABarrierSharesNoCopy) {
  Graph graph = levin::graph::parse(R"(%w = get_attr["w"] : f32[4]
%new = levin::barrier_([%w], "self") : f32[4]
%sum = aten::add.Tensor(%w, %new) : f32[4]
return %sum
update %w = %new
)");
  graph.find_nodes(levin::graph::Opcode::kGetAttr)[0]->bind(at::ones({4}));
  EXPECT_THAT(error_of([&] { Replay replay(graph); }),
              StartsWith("graph.replay: levin::barrier_ got a tensor whose old contents are read"));
}

/// A tensor that arrives may be of no use here, but the other rank waits until somebody takes it.
TEST(CollectiveGraphs, CollectivesOutliveTheirReaders) {
  Graph graph = levin::graph::parse(R"(%x = placeholder["x"] : f32[4]
%y = aten::exp(%x) : f32[4]
%came = levin::recv_(%y, 1, 0, "world") : f32[4]
return %x
)");
  EXPECT_EQ(graph.eliminate_dead_code(), 0U);
}

}  // namespace collective_graphs
}  // namespace
