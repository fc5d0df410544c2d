// Collectives in recordings: started and waited for, on parts of buffers, seen by outer scopes.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "levin/comm/collectives/named_group.h"
#include "levin/comm/operators.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/record/interposer.h"
#include "levin/graph/record/recorder.h"
#include "tests/graph/against_eager.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {
namespace recorded_collectives {

using at::Tensor;
using levin::comm::ProcessGroup;
using levin::comm::Return;
using levin::graph::Graph;
using levin::graph::Node;
using levin::graph::Replay;
using levin::test::error_of;
using levin::test::Tensors;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Counts = std::vector<int64_t>;
using GroupFunction = std::function<Tensors(const Tensors&, const ProcessGroup&)>;

/// Eager, traced, interpreted, replayed and from text, on 2 ranks that get other inputs.
void expect_equals_eager_on_two_ranks(const GroupFunction& function, at::IntArrayRef sizes) {
  for (const char* backend : {"shm", "gloo"}) {
    const auto words = levin::test::run_world(2, [&](int64_t rank, const auto&) -> std::string {
      const auto group = levin::test::connect(backend);
      torch::manual_seed(rank);
      levin::test::expect_equals_eager(
          {.function = [&](const Tensors& inputs) { return function(inputs, group); },
           .inputs = {torch::randn(sizes)},
           .other_inputs = {torch::randn(sizes)}});
      const Tensors batch = {torch::randn(sizes)};
      const auto call = [&](const Tensors& inputs) { return function(inputs, group); };
      Graph overlapped = levin::trace(call, batch).graph().clone();
      levin::graph::bucket_collectives(overlapped, 1 << 20);
      levin::graph::overlap_collectives(overlapped);
      levin::graph::lint_collectives(overlapped, group);
      Replay replay(overlapped);
      levin::test::expect_same(replay(batch), call(batch), "overlapped");
      return ::testing::Test::HasFailure() ? "it differs" : "";
    });
    EXPECT_THAT(words, Each("")) << backend;
  }
}

TEST(RecordedCollectives, AnAllToAllGivesWhatItGivesEagerly) {
  for (const Return when : {Return::kDone, Return::kAsync}) {
    expect_equals_eager_on_two_ranks(
        [when](const Tensors& inputs, const ProcessGroup& group) -> Tensors {
          const Counts sent_counts[] = {{1, 2}, {3, 0}}, received_counts[] = {{1, 3}, {2, 0}};
          const auto rank = static_cast<size_t>(group.rank());
          const Tensor sent = inputs[0] * 2;
          const Tensor received = at::empty({rank == 0 ? 4 : 2});
          auto exchange = levin::comm::call_all_to_all(received, sent, received_counts[rank],
                                                       sent_counts[rank], group, when);
          const Tensor meanwhile = inputs[0].exp();
          exchange.wait();
          return {received.sum() + meanwhile, received};
        },
        {3});
  }
}

TEST(RecordedCollectives, MessagesGiveWhatTheyGiveEagerly) {
  expect_equals_eager_on_two_ranks(
      [](const Tensors& inputs, const ProcessGroup& group) -> Tensors {
        const int64_t other = 1 - group.rank();
        const Tensor sent = inputs[0] * 3, received = at::empty_like(sent);
        auto to = levin::comm::call_send(sent, other, 1, group, Return::kAsync);
        auto from = levin::comm::call_recv(received, other, 1, group, Return::kAsync);
        const Tensor meanwhile = inputs[0].exp().sin().exp();
        from.wait();
        to.wait();
        if (group.rank() == 0) levin::comm::call_send(meanwhile, 1, 2, group);
        const Tensor passed = at::empty_like(meanwhile);
        if (group.rank() == 1) levin::comm::call_recv(passed, 0, 2, group);
        return {received + meanwhile, group.rank() == 1 ? passed : received};
      },
      {4});
}

/// Two messages that are the same are sent twice.
TEST(RecordedCollectives, EqualMessagesAreSentTwice) {
  expect_equals_eager_on_two_ranks(
      [](const Tensors& inputs, const ProcessGroup& group) -> Tensors {
        const int64_t other = 1 - group.rank();
        const Tensor first = at::empty_like(inputs[0]), second = at::empty_like(first);
        for (const Tensor& received : {first, second}) {
          auto to = levin::comm::call_send(inputs[0], other, 0, group, Return::kAsync);
          levin::comm::call_recv(received, other, 0, group);
          to.wait();
        }
        return {first + second};
      },
      {4});
}

/// Gathers into both halves of a buffer are under way at one time, and end in the other order.
TEST(RecordedCollectives, TwoAreUnderWayOnPartsOfABuffer) {
  for (const bool reverse : {false, true}) {
    expect_equals_eager_on_two_ranks(
        [reverse](const Tensors& inputs, const ProcessGroup& group) -> Tensors {
          const Counts counts = {3, 3};
          const Tensor buffer = inputs[0].new_zeros({18});
          const Tensor part = inputs[0].sin(), other = inputs[0].cos();
          auto low = levin::comm::call_all_gather(buffer.slice(0, 0, 6), part, counts, group,
                                                  Return::kAsync);
          auto high = levin::comm::call_all_gather(buffer.slice(0, 6, 12), other, counts, group,
                                                   Return::kAsync);
          const Tensor meanwhile = inputs[0].exp();
          (reverse ? high : low).wait();
          (reverse ? low : high).wait();
          return {buffer, meanwhile};
        },
        {3});
  }
}

/// The first reduce-scatter's gradients stay in place until it ends, though nobody else reads them.
TEST(RecordedCollectives, WhatIsSentStaysUntilTheWait) {
  const auto words = levin::test::run_world(2, [&](int64_t, const auto&) -> std::string {
    const auto group = levin::test::connect("shm");
    const auto module = levin::trace(
        [&](const Tensor& x) {
          const Tensor part = at::empty({4});
          const Counts counts = {4, 4};
          auto sum = levin::comm::call_reduce_scatter(part, x.exp(), counts, levin::ReduceOp::kSum,
                                                      group, Return::kAsync);
          const Tensor other = x.sin();
          sum.wait();
          return part + other.slice(0, 0, 4);
        },
        {torch::randn({8})});
    const Graph& graph = module.graph();
    graph.lint();
    const Node& wait = *graph.find_nodes("levin::wait_").front();
    const Node& sent = *graph.find_nodes("aten::exp").front();
    if (wait.input(1) != &sent.output()) return "the wait does not hold what is sent";
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

std::string trace_error(const std::function<void(const Tensor&)>& function) {
  return error_of([&] {
    levin::trace(
        [&](const Tensor& x) {
          function(x);
          return x;
        },
        {torch::randn({4})});
  });
}

/// Backward starts it, and an update that is no part of the function waits for it.
TEST(RecordedCollectives, AnAllReduceMayBeUnderWayInTheEnd) {
  const auto words = levin::test::run_world(2, [](int64_t rank, const auto&) -> std::string {
    const auto group = levin::test::connect("shm");
    const Tensor state = at::zeros({4});
    const auto start = [&](const Tensor& x) {
      state.copy_(x);
      levin::comm::call_all_reduce({state}, group, levin::ReduceOp::kSum, Return::kAsync);
      return x.sum();
    };
    const Tensor batch = torch::full({4}, rank + 1.0);
    const auto module = levin::trace(start, {batch});
    levin::comm::call_wait({state}, group);
    module.graph().lint();
    Replay replay(module.graph());
    replay({batch * 2});
    levin::comm::call_wait({state}, group);
    return at::equal(state, torch::full({4}, 6.0)) ? "" : c10::str(state);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(RecordedCollectives, TensorsUnderWayAreLeftAlone) {
  const ProcessGroup group;
  const auto start = [&](const Tensor& whole, const Tensor& part) {
    const Counts counts = {4};
    return levin::comm::call_all_gather(whole, part, counts, group, Return::kAsync);
  };
  EXPECT_THAT(trace_error([&](const Tensor& x) {
                const Tensor whole = at::zeros({4});
                auto gather = start(whole, x);
                whole.exp();
                gather.wait();
              }),
              StartsWith("graph.record.under_way: aten::exp reads a tensor [4] that "
                         "levin::all_gather_start_ still writes to; wait"));
  EXPECT_THAT(trace_error([&](const Tensor& x) {
                const Tensor whole = at::zeros({4}), part = x * 2;
                auto gather = start(whole, part);
                part.slice(0, 1, 2).add_(1);
                gather.wait();
              }),
              HasSubstr("writes to a tensor [1] that levin::all_gather_start_ still sends"));
  EXPECT_THAT(trace_error([&](const Tensor& x) {
                const Tensor whole = at::zeros({8});
                auto gather = start(whole.slice(0, 0, 4), x);
                whole.slice(0, 4, 8).add_(1);  // beside it
                gather.wait();
              }),
              HasSubstr("no error"));
  const Tensor kept = at::zeros({4});
  levin::comm::Started open;
  EXPECT_THAT(
      trace_error([&](const Tensor& x) { open = start(kept, x); }),
      StartsWith("graph.record.under_way: the step ends while levin::all_gather_start_ is"));
  EXPECT_THAT(trace_error([&](const Tensor&) { open.wait(); }),
              StartsWith("graph.record.under_way: got a wait for a tensor [4] of a collective that "
                         "was started before"));
}

/// A buffer that somebody holds across calls is no state if its contents are released.
TEST(RecordedCollectives, ReleasedMemoryIsPlannedAndNoState) {
  const Tensor buffer = at::full({4}, 9.0);
  const auto module = levin::trace(
      [&](const Tensor& x) {
        Tensor sum = x.sum();
        for (int i = 0; i < 2; ++i) {
          levin::comm::call_release({buffer});
          buffer.copy_(x + i);
          sum = sum + buffer.view({2, 2}).sum();
        }
        levin::comm::call_release({buffer});
        return sum;
      },
      {torch::ones({4})});
  const Graph& graph = module.graph();
  EXPECT_TRUE(graph.find_nodes(levin::graph::Opcode::kGetAttr).empty());
  EXPECT_EQ(graph.find_nodes("aten::empty_strided").size(), 3U);
  EXPECT_TRUE(graph.updates().empty());
  buffer.fill_(7);
  Replay replay(graph);
  EXPECT_EQ(replay({torch::ones({4})}).front().item<float>(), 4 + 4 + 8);
  EXPECT_EQ(buffer.sum().item<float>(), 28);  // another memory was used
}

TEST(RecordedCollectives, ReleasedMemoryIsWrittenBeforeItIsRead) {
  const Tensor buffer = at::full({4}, 9.0);
  EXPECT_THAT(trace_error([&](const Tensor&) {
                levin::comm::call_release({buffer});
                buffer.exp();
              }),
              StartsWith("graph.record.released: aten::exp reads a tensor [4] that was released"));
  EXPECT_THAT(trace_error([&](const Tensor& x) {
                buffer.add_(x);
                levin::comm::call_release({buffer.slice(0, 0, 2)});
              }),
              StartsWith("graph.record.alias: got release of a tensor [2] that is a part"));
  EXPECT_THAT(trace_error([&](const Tensor& x) { levin::comm::call_release({x}); }),
              HasSubstr("that is an input of the step"));
}

/// Rows in shared memory are written at another address than the one at which all are read: the
/// barriers give the order, also after passes.
TEST(RecordedCollectives, BarriersOrderSharedMemory) {
  const auto words = levin::test::run_world(2, [](int64_t rank, const auto&) -> std::string {
    auto group = levin::test::connect("shm");
    const Counts counts = {3, 2};
    const levin::comm::SharedTensor shared = group.share(counts, at::kFloat);
    const auto step = [&](const Tensor& x) {
      const Tensor sum = (shared.whole * x).sum();
      levin::comm::call_barrier({shared.whole}, group);  // all have read
      shared.own.add_(sum * static_cast<double>(rank + 1));
      levin::comm::call_barrier({shared.whole}, group);  // all have written
      return sum;
    };
    const Tensor batch = torch::ones({5});
    shared.own.fill_(1);
    levin::comm::call_barrier({shared.whole}, group);
    const auto module = levin::trace(step, {batch});
    if (!module.graph().updates().empty() && module.graph().updates().size() != 2) return "updates";
    Replay replay(module.graph());
    std::string word;
    // Each rank's rows grow by the sum, times its number.
    double low = 6, high = 11;
    for (int i = 0; i < 3; ++i) {
      const auto sum = replay({batch}).front().item<double>();
      const double wanted = 3 * low + 2 * high;
      if (sum != wanted) word += c10::str(sum, " for ", wanted, "; ");
      low += wanted;
      high += 2 * wanted;
    }
    return word;
  });
  EXPECT_THAT(words, Each(""));
}

/// Gathers the memory of a tensor when an operator first touches it.
struct GatherAtFirstTouch final : levin::graph::OperatorHandler {
  Tensor full, rows;
  ProcessGroup group;
  bool is_there = false;
  bool after = false;  ///< gather once more after the operator

  void call(levin::graph::OperatorCall& call) override {
    bool touches = false;
    for (const c10::IValue& argument : call.stack()) {
      touches |= argument.isTensor() && argument.toTensor().defined() &&
                 argument.toTensor().is_alias_of(full);
    }
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto run = [&](const char* name, std::vector<c10::IValue> stack) {
      call.run(dispatcher.findSchemaOrThrow(name, ""), stack);
    };
    if (touches && !is_there) {
      is_there = true;
      run("levin::release_", {c10::List<Tensor>({full})});
      run("levin::all_gather_", {full, rows, Counts{4}, levin::comm::NamedGroup::of(group)});
    }
    call.proceed();
    if (touches && after) run("levin::release_", {c10::List<Tensor>({full})});
  }
};

TEST(RecordedCollectives, AHandlersOperatorsAreSeenByOuterScopes) {
  for (const bool after : {false, true}) {
    GatherAtFirstTouch handler;
    handler.full = at::zeros({4});
    handler.rows = torch::arange(4.);
    handler.after = after;
    Tensor weight = handler.full.view({2, 2}).detach().requires_grad_();
    const auto module = levin::trace(
        [&](const Tensor& x) {
          const levin::graph::HandlerScope scope(handler);
          return x.sin().mm(weight).detach();
        },
        {torch::ones({1, 2})});
    std::vector<std::string> order;
    for (const Node& node : module.graph().nodes()) {
      if (node.opcode() == levin::graph::Opcode::kCallFunction) order.emplace_back(node.target());
    }
    const auto gather = std::ranges::find(order, "levin::all_gather_");
    ASSERT_NE(gather, order.end());
    EXPECT_LT(std::ranges::find(order, "aten::sin"), gather);
    EXPECT_LT(gather, std::ranges::find(order, "aten::mm"));
    EXPECT_EQ(std::ranges::count(order, "aten::empty_strided"), after ? 2 : 1);
    Replay replay(module.graph());
    handler.rows.mul_(2);
    const Tensor wanted = torch::ones({1, 2}).sin().mm(handler.rows.view({2, 2}));
    EXPECT_TRUE(at::equal(replay({torch::ones({1, 2})}).front(), wanted));
  }
}

/// A slice of rows that is written, then read as a whole: no copy, if nobody reads what was before.
TEST(RecordedCollectives, WritesThroughViewsThatAreReadBeforeAreCopied) {
  const Tensor state = torch::randn({6});
  const auto copies = [&](const std::function<Tensor(const Tensor&)>& function) {
    const Tensor before = state.clone();
    const auto module = levin::trace(function, {torch::randn({2})});
    state.copy_(before);
    Replay replay(module.graph());
    const Tensor x = torch::randn({2});
    const Tensor came = replay({x}).front();
    const Tensor after = state.clone();
    state.copy_(before);
    EXPECT_TRUE(levin::test::same_bits(came, function(x)));
    EXPECT_TRUE(levin::test::same_bits(after, state));
    state.copy_(before);
    int64_t num_scatters = 0;
    for (const Node& node : module.graph().nodes())
      num_scatters += node.target().find("scatter") != std::string::npos;
    EXPECT_GT(num_scatters, 0);
    return replay.report().num_operators;
  };
  const auto in_place = copies([&](const Tensor& x) {
    state.slice(0, 0, 2).add_(x);
    state.slice(0, 2, 4).mul_(x);
    return state.sum();
  });
  EXPECT_EQ(in_place, 3);
  const auto several = copies([&](const Tensor& x) {
    Tensors parts = {state.slice(0, 0, 2), state.slice(0, 4, 6)};
    at::_foreach_add_(parts, 1);
    return state.sum() + x;
  });
  EXPECT_EQ(several, 3);
  const auto read_before = copies([&](const Tensor& x) {
    const Tensor view = state.slice(0, 0, 2), old = view * x;
    view.add_(x);
    return old + state.sum();
  });
  EXPECT_EQ(read_before, 4);
  const auto columns = copies([&](const Tensor& x) {
    state.view({3, 2}).select(1, 0).add_(1);
    return state.view({3, 2}).select(1, 1).sum() + x;
  });
  EXPECT_EQ(columns, 3);
}

}  // namespace recorded_collectives
}  // namespace
