// Passes over collectives: a sharded step gives the same bits with them and without.
#include "tests/graph/sharded_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "levin/graph/passes/passes.h"
#include "levin/graph/record/trace.h"
#include "tests/graph/allocation_meter.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {
namespace sharded {

using at::Tensor;
using levin::comm::ProcessGroup;
using levin::comm::Return;
using levin::graph::Graph;
using levin::graph::memory_of;
using levin::graph::Node;
using levin::graph::Opcode;
using levin::graph::Replay;
using levin::graph::state_bytes;
using levin::test::Kept;
using levin::test::same_bits;
using levin::test::sharded_perceptron;
using levin::test::sharded_transformer;
using levin::test::ShardedOptions;
using levin::test::ShardedStep;
using levin::test::Tensors;
using ::testing::Each;
using ::testing::HasSubstr;

using Make = std::unique_ptr<ShardedStep> (*)(const ProcessGroup&, ShardedOptions);

Tensor batch_of(Make make, int64_t number, int64_t rank) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(10 * number + rank));
  return make == &sharded_perceptron ? torch::randn({8, 6}, random)
                                     : torch::randn({4, 8, 32}, random);
}

/// The step's graph. What the step has learnt while it was recorded is taken back.
Graph recorded(ShardedStep& step, const Tensor& batch) {
  const Kept before(step.state());
  const auto module = levin::trace([&](const Tensor& x) { return step(x); }, {batch},
                                   {.state = step.state(), .allow_captured = true});
  before.restore(step.state());
  return module.graph().clone();
}

using Passes = void (*)(Graph& graph, const ProcessGroup& group);

void none(Graph& /*graph*/, const ProcessGroup& /*group*/) {}
void bucket(Graph& graph, const ProcessGroup& /*group*/) {
  levin::graph::bucket_collectives(graph, 6000);
}
void overlap(Graph& graph, const ProcessGroup& /*group*/) {
  levin::graph::overlap_collectives(graph);
}
void overlap_a_little(Graph& graph, const ProcessGroup& /*group*/) {
  levin::graph::overlap_collectives(graph, {.bytes_under_way = 40000});
}
void in_less_memory(Graph& graph, const ProcessGroup& group) {
  const int64_t state = state_bytes(graph);
  const int64_t values = memory_of(graph).peak_bytes - state;
  // Which part of its memory a step needs at least differs; a step that gathers again needs most.
  for (const double part : {0.85, 0.95, 1.0}) {
    const auto budget = state + static_cast<int64_t>(part * static_cast<double>(values));
    const std::string error = levin::test::error_of(
        [&] { levin::graph::rematerialize(graph, budget, {.group = group}); });
    if (error == "no error") return;
    if (!error.starts_with("graph.budget")) throw std::runtime_error(error);
  }
}
void all_of_them(Graph& graph, const ProcessGroup& group) {
  bucket(graph, group);
  in_less_memory(graph, group);
  overlap_a_little(graph, group);
}

/// Eager steps and those of the changed graph, replayed, interpreted and read from text, leave the
/// same bits; "" if so.
std::string compare(Make make, const ShardedOptions& options, Passes passes,
                    const ProcessGroup& group) {
  const auto eager = make(group, options), changed = make(group, options);
  Graph graph = recorded(*changed, batch_of(make, 0, group.rank()));
  passes(graph, group);
  levin::graph::lint_collectives(graph, group);
  const std::string text = levin::graph::to_text(graph);
  Graph read = levin::graph::parse(text);
  if (levin::graph::to_text(read) != text) return "its text is another";
  for (Node* node : read.find_nodes(Opcode::kGetAttr)) {
    for (const auto& state : changed->state()) {
      if (state.name == node->name()) node->bind(state.tensor);
    }
  }
  read.lint();
  Replay replay(graph);
  for (int64_t i = 0; i < 6; ++i) {
    const Tensor batch = batch_of(make, i, group.rank());
    const Tensor wanted = (*eager)(batch);
    const Tensor loss =
        i % 3 == 0   ? replay({batch}).front()
        : i % 3 == 1 ? levin::graph::interpret(graph, {batch}, {.donate = true}).outputs.front()
                     : levin::graph::interpret(read, {batch}, {.donate = true}).outputs.front();
    if (!same_bits(loss, wanted)) return "the loss of step " + std::to_string(i);
    const auto mine = changed->state(), theirs = eager->state();
    for (size_t j = 0; j < mine.size(); ++j) {
      if (!same_bits(mine[j].tensor, theirs[j].tensor)) return mine[j].name;
    }
  }
  return "";
}

void expect_same_bits(int64_t ranks, const std::string& backend, Passes passes) {
  for (const Make make : {&sharded_perceptron, &sharded_transformer}) {
    for (const bool gather_again : {false, true}) {
      for (const Return when : {Return::kDone, Return::kAsync}) {
        const auto words = levin::test::run_world(ranks, [&](int64_t, const auto&) {
          const ProcessGroup group = ranks == 1 ? ProcessGroup() : levin::test::connect(backend);
          return compare(make, {gather_again, when}, passes, group);
        });
        EXPECT_THAT(words, Each(""))
            << backend << " " << ranks << " " << gather_again << " " << (when == Return::kAsync);
      }
    }
  }
}

class ShardedPasses : public ::testing::TestWithParam<std::pair<const char*, Passes>> {};

TEST_P(ShardedPasses, GiveTheSameBits) {
  expect_same_bits(1, "none", GetParam().second);
  expect_same_bits(2, "shm", GetParam().second);
  expect_same_bits(2, "gloo", GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(
    Each, ShardedPasses,
    ::testing::Values(std::pair<const char*, Passes>("None", none),
                      std::pair<const char*, Passes>("Bucket", bucket),
                      std::pair<const char*, Passes>("Overlap", overlap),
                      std::pair<const char*, Passes>("OverlapALittle", overlap_a_little),
                      std::pair<const char*, Passes>("InLessMemory", in_less_memory),
                      std::pair<const char*, Passes>("All", all_of_them)),
    [](const auto& info) { return std::string(info.param.first); });

/// The last of three ranks has no rows of some units.
TEST(ShardedStep, BucketsOfThreeRanksGiveTheSameBits) {
  for (const char* backend : {"shm", "gloo"}) expect_same_bits(3, backend, all_of_them);
}

/// The test bed itself: against modules that average their gradients over the ranks.
TEST(ShardedStep, LearnsAsDataParallelTrainingDoes) {
  const auto words = levin::test::run_world(2, [](int64_t rank, const auto&) -> std::string {
    const ProcessGroup group = levin::test::connect("shm");
    const auto sharded = sharded_perceptron(group, {});
    torch::manual_seed(1);
    torch::nn::Sequential net;
    for (const auto& [in, out] : {std::pair(6, 16), {16, 33}, {33, 16}, {16, 3}}) {
      net->push_back(torch::nn::Linear(in, out));
      net->push_back(torch::nn::Tanh());
    }
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int64_t i = 0; i < 4; ++i) {
      const Tensor batch = batch_of(&sharded_perceptron, i, rank);
      net->zero_grad();
      const Tensor loss = net->forward(batch).square().mean();
      loss.backward();
      for (const Tensor& parameter : net->parameters()) {
        levin::comm::call_all_reduce({parameter.grad()}, group, levin::ReduceOp::kMean);
      }
      optimizer.step();
      const Tensor came = (*sharded)(batch);
      if (!torch::allclose(came, loss, 1e-6, 1e-7)) return c10::str(came, " for ", loss);
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

Graph graph_of(const ProcessGroup& group, Make make, const ShardedOptions& options) {
  const auto step = make(group, options);
  return recorded(*step, batch_of(make, 0, group.rank()));
}

Graph graph_of(Make make, const ShardedOptions& options = {}) {
  return graph_of({}, make, options);
}

size_t count(const Graph& graph, const char* target) { return graph.find_nodes(target).size(); }

TEST(ShardedStep, OnlyRowsAndMomentumAreState) {
  const Graph graph = graph_of(&sharded_perceptron);
  EXPECT_EQ(graph.find_nodes(Opcode::kGetAttr).size(), 8U);
  EXPECT_EQ(count(graph, "levin::all_gather_"), 4U);
  EXPECT_EQ(count(graph_of(&sharded_perceptron, {.gather_again = true}), "levin::all_gather_"), 8U);
  EXPECT_EQ(count(graph, "levin::release_"), 0U);
}

/// Gradients are copied into the flat buffer once each; neither it nor anything else is copied whole.
TEST(ShardedStep, WritesThroughViewsCopyNoWhole) {
  const Graph graph = graph_of(&sharded_perceptron);
  EXPECT_EQ(count(graph, "aten::slice_scatter"), 8U);
  Replay replay(graph);
  EXPECT_EQ(replay.report().num_copies, 0);
  int64_t num_views = 0;
  for (const Node& node : graph.nodes()) {
    const auto target = node.target();
    num_views += target == "aten::slice_scatter" || target == "aten::slice.Tensor" ||
                 target == "aten::view" || target == "aten::t" || target == "aten::as_strided";
  }
  EXPECT_GE(replay.report().num_views, num_views);
}

TEST(ShardedStep, BucketsJoinWhatFits) {
  Graph graph = graph_of(&sharded_perceptron);
  EXPECT_EQ(levin::graph::bucket_collectives(graph, 1), 8U);
  EXPECT_EQ(levin::graph::bucket_collectives(graph, 1 << 20), 2U);
  EXPECT_EQ(count(graph, "levin::all_gather_"), 1U);
  EXPECT_EQ(count(graph, "levin::reduce_scatter_"), 1U);
}

/// The place of each node's first call after another.
std::vector<std::string> order_of(const Graph& graph) {
  std::vector<std::string> order;
  for (const Node& node : graph.nodes()) {
    const std::string target(node.target());
    if (target.starts_with("levin::") || target == "aten::addmm") order.push_back(target);
  }
  return order;
}

TEST(ShardedStep, GathersStartBeforeTheUnitBeforeUnderTheLimit) {
  Graph eager = graph_of(&sharded_perceptron);
  Graph all = eager.clone();
  EXPECT_EQ(levin::graph::overlap_collectives(all), 8U);
  const auto order = order_of(all);
  EXPECT_EQ(std::count(order.begin(), std::ranges::find(order, "aten::addmm"),
                       "levin::all_gather_start_"),
            4);
  // The largest unit has 2244 bytes.
  Graph some = eager.clone();
  levin::graph::overlap_collectives(some, {.bytes_under_way = 2300});
  int64_t under_way = 0, most = 0;
  for (const Node& node : some.nodes()) {
    const auto bytes = [](const Node& start) {
      const auto* whole =
          start.target() == "levin::reduce_scatter_start_" ? start.input(1) : start.input(0);
      return 4 * c10::multiply_integers(whole->type().sizes);
    };
    if (node.target().ends_with("_start_")) under_way += bytes(node);
    if (node.target() == "levin::wait_") under_way -= bytes(node.input(0)->node());
    most = std::max(most, under_way);
  }
  EXPECT_LE(most, 2300);
  EXPECT_EQ(under_way, 0);
  const auto first_two = order_of(some);
  EXPECT_GT(std::count(first_two.begin(), std::ranges::find(first_two, "aten::addmm"),
                       "levin::all_gather_start_"),
            1);
}

/// One budget: large parameters and small activations are gathered again, and the other way round
/// computed again.
TEST(ShardedStep, OneBudgetGathersAgainOrComputesAgain) {
  const auto fitted = [](int64_t batch_size, double part) {
    const auto step = sharded_transformer({}, {});
    Graph graph = recorded(*step, torch::randn({batch_size, 8, 32}));
    const int64_t state = state_bytes(graph);
    const auto values = static_cast<double>(memory_of(graph).peak_bytes - state);
    const auto budget = state + static_cast<int64_t>(part * values);
    const auto done = levin::graph::rematerialize(graph, budget, {.group = ProcessGroup()});
    graph.lint();
    EXPECT_LE(done.peak_bytes, budget);
    EXPECT_EQ(static_cast<int64_t>(count(graph, "levin::all_gather_")), 4 + done.num_gathers);
    return done;
  };
  const auto small = fitted(1, 0.8);
  EXPECT_GT(small.num_gathers, 0);
  EXPECT_GT(small.gathered_bytes, 0);
  const auto large = fitted(64, 0.5);
  EXPECT_GT(large.num_operators, large.num_gathers);
  EXPECT_GT(large.flops, 0);
}

/// Without a group the gathers stay as they are: ranks might decide otherwise.
TEST(ShardedStep, GathersRunOnceWithoutAGroup) {
  Graph graph = graph_of(&sharded_transformer);
  const int64_t peak = memory_of(graph).peak_bytes;
  static_cast<void>(
      levin::test::error_of([&] { levin::graph::rematerialize(graph, peak * 9 / 10); }));
  EXPECT_EQ(count(graph, "levin::all_gather_"), 4U);
}

/// The plan against what ATen allocates: the arena and what operators allocate themselves.
TEST(ShardedStep, PlannedPeakIsTheMeasuredOne) {
  for (const double part : {1.0, 0.8, 0.7}) {
    for (const bool gather_again : {false, true}) {
      const auto step = sharded_transformer({}, {.gather_again = gather_again});
      const Tensor batch = torch::randn({16, 8, 32});
      Graph graph = recorded(*step, batch);
      const int64_t state = state_bytes(graph);
      const auto values = static_cast<double>(memory_of(graph).peak_bytes - state);
      if (part < 1) {
        levin::graph::rematerialize(graph, state + static_cast<int64_t>(part * values),
                                    {.group = ProcessGroup()});
      }
      const auto planned = static_cast<double>(memory_of(graph).peak_bytes - state);
      const auto measured = static_cast<double>(levin::test::peak_of([&] {
        Replay replay(graph);
        replay({batch});
      }));
      EXPECT_NEAR(measured / planned, 1.0, 0.1)
          << part << " " << gather_again << ": planned " << planned << ", measured " << measured;
    }
  }
}

TEST(ShardedStep, RanksWithOtherCollectivesAreToldApart) {
  const auto words = levin::test::run_world(2, [](int64_t rank, const auto&) {
    const ProcessGroup group = levin::test::connect("shm");
    Graph graph = graph_of(group, &sharded_perceptron, {});
    levin::graph::lint_collectives(graph, group);
    if (rank == 1) levin::graph::bucket_collectives(graph, 1 << 20);
    return levin::test::error_of([&] { levin::graph::lint_collectives(graph, group); });
  });
  EXPECT_THAT(words, Each(HasSubstr("graph.collectives: rank")));
}

TEST(ShardedStep, CollectivesCostTheirBytesOverTheirLink) {
  const auto words = levin::test::run_world(2, [](int64_t, const auto&) -> std::string {
    const ProcessGroup group = levin::test::connect("gloo");
    const Graph graph = graph_of(group, &sharded_perceptron, {});
    const auto& links = levin::graph::known_links();
    const auto& link = *std::ranges::find(links, "gloo", &levin::graph::LinkDescription::backend);
    const auto cost = levin::graph::cost_of(graph, *levin::graph::find_device("cpu"));
    const auto gather = std::ranges::find_if(
        cost.nodes, [](const auto& node) { return node.node->target() == "levin::all_gather_"; });
    // The first unit has 6 * 16 + 16 elements; each of 2 ranks sends half of them.
    const double bytes = 4 * 112 / 2.0;
    if (gather->sent_bytes != bytes) return c10::str(gather->sent_bytes, " bytes");
    const double seconds = link.alpha_s + bytes / link.bytes_per_s;
    return std::abs(gather->seconds - seconds) < 1e-12 ? "" : c10::str(gather->seconds, " s");
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace sharded
}  // namespace
