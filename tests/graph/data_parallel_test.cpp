#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/comm/collectives/named_group.h"
#include "levin/comm/operators.h"
#include "levin/graph/compile/difference.h"
#include "levin/graph/graph.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/values.h"
#include "levin/models/gpt2.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/strategy.h"
#include "tests/graph/against_eager.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using at::Tensor;
using levin::graph::bucket_collectives;
using levin::graph::Graph;
using levin::graph::insert_gradient_all_reduces;
using levin::graph::Node;
using levin::graph::overlap_collectives;
using levin::graph::Replay;
using levin::test::error_of;
using levin::test::same_bits;
using levin::test::Tensors;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kGlobalBatchSize = 24;

using Backward = std::function<void(const Tensor& loss)>;

/// A network whose gradients are clipped before its parameters are updated.
struct Learner {
  std::shared_ptr<torch::nn::Module> net;
  std::function<Tensor(const Tensor& batch)> loss_of;
  std::function<Tensor(const Tensor& batch, const Backward& backward)> own_step = nullptr;
  std::unique_ptr<levin::optim::Optimizer> optimizer = nullptr;

  Tensor step(const Tensor& batch, const Backward& backward) {
    if (own_step) return own_step(batch, backward);
    optimizer->zero_grad();
    const Tensor loss = loss_of(batch);
    backward(loss);
    levin::optim::clip_grad_norm(levin::named_parameters(*net), /*max_norm=*/0.1, 2.0);
    optimizer->step();
    return loss.detach();
  }
  Tensor step_alone(const Tensor& batch) {
    return step(batch, [](const Tensor& loss) { levin::backward(loss); });
  }
};

Learner perceptron() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16),
                            torch::nn::ReLU(), torch::nn::Linear(16, 3));
  return {net.ptr(), [net](const Tensor& x) mutable { return net->forward(x).square().mean(); }};
}

/// Its embedding's gradient has two parts, which backward adds up.
Learner transformer() {
  torch::manual_seed(2);
  levin::models::GPT2 net(levin::models::GPT2Config{.vocab_size = 17,
                                                    .n_positions = 6,
                                                    .n_embd = 16,
                                                    .n_layer = 2,
                                                    .n_head = 2,
                                                    .resid_pdrop = 0,
                                                    .embd_pdrop = 0,
                                                    .attn_pdrop = 0});
  return {net.ptr(), [net](const Tensor& x) mutable {
            const Tensor tokens = x.abs().mul(100).to(torch::kLong).remainder(17);
            return torch::nn::functional::cross_entropy(net->forward(tokens).flatten(0, 1),
                                                        tokens.flatten());
          }};
}

/// Two networks that learn in turn: the second against what the first has become.
Learner adversaries() {
  torch::manual_seed(3);
  torch::nn::Linear generator(6, 6), critic(6, 1);
  auto both = std::make_shared<torch::nn::Module>();
  both->register_module("generator", generator);
  both->register_module("critic", critic);
  const auto optimizer_of = [](const auto& net) {
    return std::shared_ptr(levin::optim::build_optimizer(levin::optim::sgd({.lr = 0.5}),
                                                         levin::named_parameters(*net)));
  };
  const auto first = optimizer_of(generator), second = optimizer_of(critic);
  return {both, nullptr, [=](const Tensor& x, const Backward& backward) mutable {
            first->zero_grad();
            backward(critic->forward(generator->forward(x)).square().mean());
            first->step();
            second->zero_grad();
            const Tensor forged = generator->forward(x).detach();
            const Tensor loss = (critic->forward(x) - critic->forward(forged) - 1).square().mean();
            backward(loss);
            second->step();
            return loss.detach();
          }};
}

Tensor batch_of_rank(int64_t number, int64_t rank, int64_t size) {
  auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(50 + number));
  return torch::randn({kGlobalBatchSize, 6}, random).slice(0, rank, kGlobalBatchSize, size);
}

void give_optimizer(Learner& learner) {
  if (learner.own_step) return;
  learner.optimizer = levin::optim::build_optimizer(
      levin::optim::sgd({.lr = 0.5, .weight_decay = 0.1}), levin::named_parameters(*learner.net));
}

/// Its step on one process. What it has learnt while it was recorded is taken back.
Graph recorded(Learner& learner, const Tensor& batch) {
  const auto state = levin::named_parameters(*learner.net);
  const levin::test::Kept before(state);
  const auto module = levin::trace([&](const Tensor& x) { return learner.step_alone(x); }, {batch},
                                   {.state = state});
  before.restore(state);
  return module.graph().clone();
}

using Passes = void (*)(Graph& graph, const std::string& group);

void insert_only(Graph& graph, const std::string& group) {
  insert_gradient_all_reduces(graph, group);
}

void insert_and_bucket(Graph& graph, const std::string& group) {
  insert_gradient_all_reduces(graph, group);
  bucket_collectives(graph, 1000);
}

void insert_bucket_and_overlap(Graph& graph, const std::string& group) {
  insert_and_bucket(graph, group);
  overlap_collectives(graph);
}

void all_in_less_memory(Graph& graph, const std::string& group) {
  insert_bucket_and_overlap(graph, group);
  const int64_t peak = levin::graph::memory_of(graph).peak_bytes;
  levin::graph::rematerialize(graph, peak * 9 / 10);
}

/// Steps of strategy "ddp" and of the graph leave the same bits; "" if so.
std::string compare_with_ddp(Learner (*make)(), Passes passes, int64_t rank, int64_t size) {
  const levin::comm::ProcessGroup group = levin::test::connect("shm");
  Learner eager = make(), transformed = make();
  give_optimizer(eager);
  give_optimizer(transformed);
  const auto strategy = levin::make_strategy("ddp", {.group = group});
  strategy->setup(*eager.net, at::kCPU);
  Graph graph = recorded(transformed, batch_of_rank(0, rank, size));
  passes(graph, levin::comm::operator_name(group));
  graph.lint();
  Replay replay(graph);
  for (int64_t i = 0; i < 6; ++i) {
    const Tensor batch = batch_of_rank(i, rank, size);
    const Tensor wanted =
        eager.step(batch, [&](const Tensor& loss) { strategy->backward(loss, true); });
    const Tensor loss =
        i % 2 == 0 ? replay({batch}).front()
                   : levin::graph::interpret(graph, {batch}, {.donate = true}).outputs.front();
    if (!same_bits(loss, wanted)) return "the loss of step " + std::to_string(i);
    const auto mine = transformed.net->named_parameters();
    for (const auto& item : eager.net->named_parameters()) {
      if (!same_bits(mine[item.key()], item.value())) return item.key();
      if (!same_bits(mine[item.key()].grad(), item.value().grad())) {
        return "the gradient of " + item.key();
      }
    }
  }
  return "";
}

TEST(DataParallel, EqualsStrategyDdpBitForBit) {
  for (Learner (*make)() : {perceptron, transformer, adversaries}) {
    for (const Passes passes : {insert_only, insert_and_bucket, insert_bucket_and_overlap}) {
      for (const int64_t size : {2, 4}) {
        const auto words = levin::test::run_world(size, [&](int64_t rank, const auto&) {
          return compare_with_ddp(make, passes, rank, size);
        });
        EXPECT_THAT(words, Each("")) << size << " ranks";
      }
    }
  }
}

TEST(DataParallel, EqualsItInLessMemoryToo) {
  const auto words = levin::test::run_world(2, [&](int64_t rank, const auto&) {
    return compare_with_ddp(transformer, all_in_less_memory, rank, 2);
  });
  EXPECT_THAT(words, Each(""));
}

std::vector<std::string> order_of(const Graph& graph) {
  std::vector<std::string> targets;
  for (const Node& node : graph.nodes()) targets.emplace_back(node.target());
  return targets;
}

size_t place_of(const Graph& graph, const Node& wanted) {
  size_t place = 0;
  for (const Node& node : graph.nodes()) {
    if (&node == &wanted) return place;
    ++place;
  }
  return place;
}

Graph perceptron_graph() {
  Learner learner = perceptron();
  give_optimizer(learner);
  return recorded(learner, batch_of_rank(0, 0, 1));
}

TEST(DataParallel, OfAGroupOfOneChangesNothing) {
  const Graph alone = perceptron_graph();
  Graph spread = alone.clone();
  insert_bucket_and_overlap(spread, "self");
  const Tensors batch = {batch_of_rank(3, 0, 1)};
  const auto wanted = levin::graph::interpret(alone, batch);
  const auto came = levin::graph::interpret(spread, batch);
  levin::test::expect_same(came.outputs, wanted.outputs, "output");
  levin::test::expect_same(came.updates, wanted.updates, "update");
}

TEST(DataParallel, ReducesEachGradientBeforeItIsClipped) {
  Graph graph = perceptron_graph();
  EXPECT_EQ(insert_gradient_all_reduces(graph, "self"), 6U);
  const auto order = order_of(graph);
  const auto is_norm = [](const std::string& target) {
    return target.find("norm") != std::string::npos;
  };
  const auto norm = std::ranges::find_if(order, is_norm);
  ASSERT_NE(norm, order.end());
  EXPECT_EQ(std::count(order.begin(), norm, "levin::all_reduce_"), 6);
}

TEST(DataParallel, BucketsHoldNoMoreThanTheirLimit) {
  const Graph single = [] {
    Graph graph = perceptron_graph();
    insert_gradient_all_reduces(graph, "self");
    return graph;
  }();
  const auto buckets_of = [&](int64_t bytes) {
    Graph graph = single.clone();
    const size_t count = bucket_collectives(graph, bytes);
    graph.lint();
    const auto calls = graph.find_nodes("levin::all_reduce_");
    EXPECT_EQ(calls.size(), count);
    size_t num_tensors = 0;
    for (const Node* call : calls) {
      num_tensors += call->outputs().size();
      int64_t total = 0;
      for (const auto* tensor : call->inputs()) {
        total += 4 * c10::multiply_integers(tensor->type().sizes);
      }
      EXPECT_TRUE(total <= bytes || call->outputs().size() == 1) << total;
    }
    EXPECT_EQ(num_tensors, 6U);
    return count;
  };
  EXPECT_EQ(buckets_of(1), 6U);
  EXPECT_EQ(buckets_of(1 << 20), 1U);
  const size_t some = buckets_of(1100);
  EXPECT_GT(some, 1U);
  EXPECT_LT(some, 6U);
}

levin::graph::Argument ranks_called(const char* group) {
  return levin::graph::Argument(c10::IValue(levin::comm::NamedGroup::called(group)));
}

TEST(DataParallel, BucketsOfOtherGroupsStayApart) {
  Graph graph;
  auto& x = graph.placeholder("x", levin::graph::ValueType::of(torch::ones({4})));
  levin::graph::Values outputs;
  for (const char* group : {"self", "world", "world", "self"}) {
    auto& value = graph.call_function("aten::exp", {x}).output();
    value.set_type(x.type());
    outputs.push_back(&graph
                           .call_function("levin::all_reduce_", {levin::graph::Values{&value},
                                                                 ranks_called(group), "sum"})
                           .output());
  }
  graph.set_outputs(outputs);
  EXPECT_EQ(bucket_collectives(graph, 1 << 20), 3U);
  graph.lint();
}

/// A graph whose group this process does not have can be read and written, and not run.
TEST(DataParallel, AGraphsTextNamesTheGroup) {
  const std::string text = R"(%x = placeholder["x"] : f32[4]
%exp = aten::exp(%x) : f32[4]
%all_reduce = levin::all_reduce_([%exp], "world", "sum") : f32[4]
return %all_reduce
)";
  const Graph graph = levin::graph::parse(text);
  EXPECT_EQ(levin::graph::to_text(graph), text);
  const Node& sum = *graph.find_nodes("levin::all_reduce_")[0];
  const auto group = levin::comm::NamedGroup::in(*levin::graph::constant_of(sum.arguments()[1]));
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group, levin::comm::NamedGroup::called("world"));
  EXPECT_THAT(error_of([&] { levin::graph::interpret(graph, {torch::ones({4})}); }),
              HasSubstr("this process has no group named world"));
}

TEST(DataParallel, RecordingsOverOtherGroupsDiffer) {
  const auto words = levin::test::run_world(2, [](int64_t /*rank*/, const auto&) -> std::string {
    auto world = levin::test::connect("shm");
    const auto pair = world.subgroup({0, 1});
    const auto recorded_over = [](const levin::comm::ProcessGroup& group) {
      return levin::trace(
          [&](const Tensor& x) {
            const Tensor y = x.exp();
            levin::comm::call_all_reduce({y}, group, levin::ReduceOp::kSum,
                                         levin::comm::Return::kAsync);
            levin::comm::call_wait({y}, group);
            return y;
          },
          {torch::ones({4})});
    };
    const auto one = recorded_over(world), same = recorded_over(world), other = recorded_over(pair);
    if (levin::graph::first_difference(one.graph(), same.graph())) return "one group differs";
    const auto difference = levin::graph::first_difference(one.graph(), other.graph());
    if (!difference) return "another group is not seen";
    const Tensor twice = Replay(other.graph())({torch::zeros({4})}).front();
    if (!twice.equal(torch::full({4}, 2.0))) return "a replay gives " + c10::str(twice);
    return difference->text;
  });
  EXPECT_THAT(words, Each(HasSubstr("its group was \"world\" and is \"world/part0\"")));
}

TEST(DataParallel, OverlapStartsWithTheLastTensorAndWaitsBeforeTheFirstReader) {
  Graph graph = perceptron_graph();
  insert_gradient_all_reduces(graph, "self");
  bucket_collectives(graph, 1100);
  EXPECT_GT(overlap_collectives(graph), 1U);
  graph.lint();
  EXPECT_TRUE(graph.find_nodes("levin::all_reduce_").empty());
  const auto starts = graph.find_nodes("levin::all_reduce_start_");
  size_t num_between = 0;
  for (const Node* start : starts) {
    size_t newest = 0, first = SIZE_MAX;
    for (const auto* tensor : start->inputs()) {
      newest = std::max(newest, place_of(graph, tensor->node()));
    }
    EXPECT_EQ(place_of(graph, *start), newest + 1);
    const Node& wait = *start->output().users().front();
    EXPECT_EQ(wait.target(), "levin::wait_");
    for (const auto* tensor : wait.outputs()) {
      for (const Node* user : tensor->users()) first = std::min(first, place_of(graph, *user));
    }
    EXPECT_LT(place_of(graph, wait), first);
    num_between += place_of(graph, wait) - place_of(graph, *start) - 1;
  }
  EXPECT_GT(num_between, starts.size());
}

/// Each gradient begins where another ends, those that operators allocate and those behind one that
/// ends in the middle of a cache line too: they are one message.
TEST(DataParallel, AReplayLaysABucketSideBySide) {
  for (Learner (*make)() : {&perceptron, &transformer}) {
    Learner learner = make();
    give_optimizer(learner);
    const Tensor batch = batch_of_rank(0, 0, 1);
    Graph graph = recorded(learner, batch);
    insert_gradient_all_reduces(graph, "self");
    ASSERT_EQ(bucket_collectives(graph, 1 << 20), 1U);
    overlap_collectives(graph);
    Replay replay(graph);
    replay({batch});
    std::vector<std::pair<const char*, size_t>> places;
    for (const Tensor& parameter : learner.net->parameters()) {
      const Tensor& gradient = parameter.grad();
      places.emplace_back(static_cast<const char*>(gradient.const_data_ptr()), gradient.nbytes());
    }
    std::ranges::sort(places);
    for (size_t i = 1; i < places.size(); ++i) {
      EXPECT_EQ(places[i].first, places[i - 1].first + places[i - 1].second) << i;
    }
  }
}

/// As autograd gives a parameter that is used twice its gradient: into memory of its own.
TEST(DataParallel, OfACopiedGradientTakesTheCopy) {
  Graph graph = levin::graph::parse(R"(%x = placeholder["x"] : f32[4]
%w = get_attr["w"] : f32[4]
%made = aten::exp(%x) : f32[4]
%empty = aten::new_empty_strided(%made, [4], [1]) : f32[4]
%copy = aten::copy_(%empty, %made) : f32[4]
%update = aten::sub_.Tensor(%w, %copy) : f32[4]
return %made
gradient %w = %copy
update %w = %update
)");
  graph.find_nodes(levin::graph::Opcode::kGetAttr)[0]->bind(torch::ones({4}).requires_grad_());
  EXPECT_EQ(insert_gradient_all_reduces(graph, "self"), 1U);
  const auto sums = graph.find_nodes("levin::all_reduce_");
  ASSERT_EQ(sums.size(), 1U);
  EXPECT_EQ(sums[0]->input(0)->node().target(), "aten::copy_");
  EXPECT_EQ(graph.find_nodes("aten::sub_.Tensor")[0]->input(1), &sums[0]->output());
}

TEST(DataParallel, OfAParameterWithoutAGradientInTheEndIsAnError) {
  Learner learner = perceptron();
  give_optimizer(learner);
  const auto state = levin::named_parameters(*learner.net);
  const auto module = levin::trace(
      [&](const Tensor& x) {
        const Tensor loss = learner.step_alone(x);
        learner.optimizer->zero_grad();
        return loss;
      },
      {batch_of_rank(0, 0, 1)}, {.state = state});
  Graph graph = module.graph().clone();
  EXPECT_THAT(error_of([&] { insert_gradient_all_reduces(graph, "self"); }),
              StartsWith("graph.data_parallel: 0.weight is updated"));
}

TEST(DataParallel, OfAGradientMadeFromAnotherIsAnError) {
  Graph graph;
  auto& x = graph.placeholder("x", levin::graph::ValueType::of(torch::ones({4})));
  auto& first = graph.get_attr("first", torch::ones({4}).requires_grad_());
  auto& second = graph.get_attr("second", torch::ones({4}).requires_grad_());
  auto& gradient = graph.call_function("aten::exp", {x}).output();
  gradient.set_type(x.type());
  auto& other = graph.call_function("aten::sin", {gradient}).output();
  other.set_type(x.type());
  graph.set_updates({{&first, &gradient, true}, {&second, &other, true}});
  EXPECT_THAT(error_of([&] { insert_gradient_all_reduces(graph, "self"); }),
              StartsWith("graph.data_parallel: the gradient of second is computed from another"));
}

}  // namespace
