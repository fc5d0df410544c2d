// A replay by graphs of its device: what is captured, and that it is what eager does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "levin/optim/optim.h"
#include "tests/graph/against_eager.h"
#include "tests/graph/recorded_device.h"
#include "tests/graph/training.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::graph::Replay;
using levin::test::error_of;
using levin::test::RecordedDevice;
using levin::test::same_bits;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Operators of the test's own, which no graph of a device captures: one that allocates, one that
/// writes.
Tensor twice_on_host(const Tensor& x) { return x + x; }
Tensor& add_one_on_host(Tensor& x) { return x.add_(1); }
TORCH_LIBRARY(levin_test_device, library) {
  library.def("twice(Tensor x) -> Tensor");
  library.def("add_one_(Tensor(a!) x) -> Tensor(a!)");
  library.impl("twice", torch::dispatch(c10::DispatchKey::CPU, &twice_on_host));
  library.impl("add_one_", torch::dispatch(c10::DispatchKey::CPU, &add_one_on_host));
}
Tensor host_twice(const Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("levin_test_device::twice", "")
      .typed<Tensor(const Tensor&)>()
      .call(x);
}
Tensor& add_one_(Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("levin_test_device::add_one_", "")
      .typed<Tensor&(Tensor&)>()
      .call(x);
}

/// What CUDA's operators of attention give beside the result: lengths, and seed and offset of the random numbers that
/// dropout draws. The CPU has no kernels of these operators; what they compute is of no account here.
int64_t last_seed = 0;
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> attend(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>&, bool,
    double dropout, bool, bool, std::optional<double>) {
  const Tensor seed = dropout > 0.0 ? at::randint(100, {}, at::kLong) : at::full({}, 7, at::kLong);
  const Tensor mixed = query.mul(key).add(value).mul(seed);
  return {mixed, mixed.sum(-1), {}, {}, query.size(2), key.size(2), seed, seed.clone(), {}};
}
std::tuple<Tensor, Tensor, Tensor> attend_backward(const Tensor& gradient, const Tensor& query,
                                                   const Tensor& key, const Tensor&,
                                                   const Tensor& out, const Tensor&,
                                                   const Tensor& seed, const Tensor&, const Tensor&,
                                                   const Tensor&, const Tensor&, c10::SymInt,
                                                   c10::SymInt, double dropout, bool,
                                                   std::optional<double>) {
  last_seed = seed.item<int64_t>();
  const Tensor whole = dropout > 0.0 ? gradient.mul(seed) : gradient;
  return {whole.mul(key), whole.mul(query), whole.mul(out)};
}
TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_scaled_dot_product_cudnn_attention", &attend);
  library.impl("_scaled_dot_product_cudnn_attention_backward", &attend_backward);
}
Tensor attention_there_and_back(const Tensor& x, double dropout) {
  const Tensor q = x.view({1, 1, 6, 8});
  const auto forward =
      at::_scaled_dot_product_cudnn_attention(q, q.mul(2), q.sin(), {}, true, dropout);
  const auto& [out, sums, lengths_q, lengths_k, longest_q, longest_k, seed, offset, mask] = forward;
  const auto [of_q, of_k, of_v] = at::_scaled_dot_product_cudnn_attention_backward(
      out.cos(), q, q.mul(2), q.sin(), out, sums, seed, offset, {}, {}, {}, longest_q.expect_int(),
      longest_k.expect_int(), dropout, false);
  return of_q + of_k.mul(of_v);
}

/// Replays of the function with one argument, of which each call is held to the function itself.
RecordedDevice::Log expect_replays_equal(const std::function<Tensor(const Tensor&)>& function) {
  const auto input = [](int64_t number) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
    return torch::randn({6, 8}, random);
  };
  RecordedDevice::Log log;
  Replay replay(levin::trace([&](const Tensor& x) { return function(x); }, {input(0)}).graph(),
                std::make_unique<RecordedDevice>(log));
  std::vector<Tensor> kept;  // so that each call's input lies elsewhere
  for (int64_t i = 0; i < 8; ++i) {
    const Tensor& x = kept.emplace_back(input(i));
    torch::manual_seed(i);
    const Tensor wanted = function(x);
    torch::manual_seed(i);
    EXPECT_TRUE(same_bits(replay({x}).front(), wanted)) << "call " << i;
  }
  return log;
}

TEST(DeviceGraphs, AreCapturedAfterTwoWarmUpsAndThenLaunched) {
  const auto log = expect_replays_equal([](const Tensor& x) { return x.mul(2).relu().sum(1); });
  EXPECT_EQ(log.num_warm_ups, 2);
  EXPECT_THAT(log.launches, ElementsAre(6));
}

TEST(DeviceGraphs, KeepWhereAllocatedResultsLie) {
  const auto log = expect_replays_equal([](const Tensor& x) {
    const auto [sorted, indices] = x.mul(3).sort();
    const Tensor normed = torch::layer_norm(sorted, {8});
    return torch::dropout(normed.gather(1, indices), 0.5, true);
  });
  EXPECT_THAT(log.launches, ElementsAre(6));
}

TEST(DeviceGraphs, LeaveOutWhatRunsOnTheHost) {
  const auto log = expect_replays_equal([](const Tensor& x) {
    Tensor y = x.exp();                          // captured
    add_one_(y);                                 // on the host, where it lies
    const Tensor z = torch::layer_norm(y, {8});  // captured; allocates
    const Tensor moving = host_twice(z);         // on the host, elsewhere each time
    const Tensor reader = moving.sin();          // reads that
    return reader.cos() + z.mul(2) + y;          // captured
  });
  EXPECT_THAT(log.launches, ElementsAre(6, 6, 6));
}

// Lengths are numbers of the host, which do not keep an operator out of a graph of the device.
TEST(DeviceGraphs, CaptureAttention) {
  const auto log =
      expect_replays_equal([](const Tensor& x) { return attention_there_and_back(x, 0.5); });
  EXPECT_THAT(log.launches, ElementsAre(6));
}

// A seed may lie on the host where nothing is captured: what is replayed does not depend on it.
TEST(DeviceGraphs, CaptureAttentionWithoutDropoutAndWithoutItsSeed) {
  const auto log =
      expect_replays_equal([](const Tensor& x) { return attention_there_and_back(x, 0.0); });
  EXPECT_THAT(log.launches, ElementsAre(6));
  RecordedDevice::Log other;
  const Tensor x = torch::ones({6, 8});
  Replay replay(
      levin::trace([](const Tensor& y) { return attention_there_and_back(y, 0.0); }, {x}).graph(),
      std::make_unique<RecordedDevice>(other));
  EXPECT_EQ(last_seed, 7);  // when it was recorded
  replay({x});
  EXPECT_EQ(last_seed, 0);
}

TEST(DeviceGraphs, OfNothingAreNotMade) {
  EXPECT_THAT(expect_replays_equal([](const Tensor& x) { return host_twice(x); }).launches,
              ElementsAre());
}

TEST(DeviceGraphs, WriteToTheCallersInput) {
  RecordedDevice::Log log;
  Replay replay(
      levin::trace([](const Tensor& x) { return x.add_(1).sum(); }, {torch::zeros({3})}).graph(),
      std::make_unique<RecordedDevice>(log));
  for (int i = 0; i < 5; ++i) {
    const Tensor x = torch::full({3}, 1.0 * i);
    replay({x});
    EXPECT_TRUE(torch::equal(x, torch::full({3}, i + 1.0))) << i;
  }
  EXPECT_THAT(log.launches, ElementsAre(3));
}

/// The device reads copies of the inputs, whose strides are those of the inputs.
TEST(DeviceGraphs, ReadExpandedInputs) {
  RecordedDevice::Log log;
  const auto function = [](const Tensor& x, const Tensor& y) { return x * 2 + y; };
  const auto inputs = [](double first) -> std::vector<Tensor> {
    return {torch::arange(6, at::kFloat).add(first).expand({4, 6}),
            torch::arange(4, at::kFloat).add(first).unsqueeze(1).expand({4, 6})};
  };
  Replay replay(levin::trace(function, inputs(0)).graph(), std::make_unique<RecordedDevice>(log));
  for (int call = 0; call < 5; ++call) {
    const std::vector<Tensor> given = inputs(call);
    EXPECT_TRUE(torch::equal(replay(given).front(), function(given[0], given[1]))) << call;
  }
  EXPECT_THAT(log.launches, ElementsAre(3));
}

/// In copies, a write through one of them is not seen through the other.
TEST(DeviceGraphs, RefuseInputsThatShareMemoryOfWhichOneIsWritten) {
  RecordedDevice::Log log;
  const Tensor state = torch::zeros({8});
  const auto writes = [&](const Tensor& x, const Tensor& y) {
    state.add_(1);
    return x.mul_(2) + y + state.sum();
  };
  const auto reads = [](const Tensor& x, const Tensor& y) { return x + y; };
  const levin::TraceOptions options{.state = {{"state", state}}};
  const auto replay_of = [&](const auto& function) {
    return Replay(levin::trace(function, {torch::ones({6}), torch::ones({6})}, options).graph(),
                  std::make_unique<RecordedDevice>(log));
  };
  Replay written = replay_of(writes), read = replay_of(reads);
  const Tensor x = torch::ones({8});
  const Tensor first = x.slice(0, 0, 6), second = x.slice(0, 2, 8);
  EXPECT_THAT(error_of([&] { written({first, second}); }),
              StartsWith("graph.input: input_1 shares memory with input_0, and the graph writes"));
  EXPECT_THAT(error_of([&] { written({torch::ones({6}), state.slice(0, 0, 6)}); }),
              StartsWith("graph.input: input_1 shares memory with state, and the graph writes"));
  EXPECT_TRUE(torch::equal(x, torch::ones({8})));
  EXPECT_TRUE(torch::equal(read({first, second}).front(), torch::full({6}, 2.0)));
  // Without graphs of a device, inputs lie where the caller has them.
  Replay in_place(levin::trace(writes, {torch::ones({6}), torch::ones({6})}, options).graph());
  EXPECT_EQ(error_of([&] { in_place({first, second}); }), "no error");
}

// Not with a max pool: the recorded device finds out shapes by kernels on memory that is not
// written yet, which takes no indices.
TEST(DeviceGraphs, OfATrainingStepEqualEager) {
  RecordedDevice::Log log;
  levin::test::expect_replay_equals_eager(levin::optim::adamw({.lr = 0.01}), /*convolutions=*/false,
                                          [&](const levin::graph::Graph& graph) {
                                            Replay replay(graph,
                                                          std::make_unique<RecordedDevice>(log));
                                            EXPECT_GT(replay.report().num_captured, 10);
                                            return replay;
                                          });
  EXPECT_THAT(log.launches, ElementsAre(196));
}

TEST(DeviceGraphs, OnCudaEqualEager) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  levin::test::expect_replay_equals_eager(
      levin::optim::adamw({.lr = 0.01}), /*convolutions=*/false,
      [](const levin::graph::Graph& graph) {
        Replay replay(graph);
        EXPECT_GT(replay.report().num_captured, 10);
        return replay;
      },
      at::Device(at::kCUDA, 0));
}

/// As a GPU does where the host waits for it in the course of a capture.
class NothingCanBeCaptured final : public levin::graph::DeviceGraphs {
 public:
  c10::Device device() const override { return at::kCPU; }
  void warm_up(const Run& run) override { run(); }
  size_t capture(const Run& run) override {
    run();
    TORCH_CHECK(false, "operation not permitted when stream is capturing");
  }
  void launch(size_t) override {}
};

TEST(DeviceGraphs, OfAnOperatorThatCannotBeCapturedIsAnError) {
  Replay replay(
      levin::trace([](const Tensor& x) { return x.cumsum(0); }, {torch::ones({3})}).graph(),
      std::make_unique<NothingCanBeCaptured>());
  for (int i = 0; i < 2; ++i) replay({torch::ones({3})});
  EXPECT_THAT(error_of([&] { replay({torch::ones({3})}); }),
              AllOf(StartsWith("graph.replay.capture: aten::cumsum"), HasSubstr("not permitted")));
}

/// A device on which nothing is run: what would be captured shows in the report.
class NothingRuns final : public levin::graph::DeviceGraphs {
 public:
  explicit NothingRuns(c10::Device device) : device_(device) {}
  c10::Device device() const override { return device_; }
  void warm_up(const Run&) override {}
  size_t capture(const Run&) override { return 0; }
  void launch(size_t) override {}

 private:
  c10::Device device_;
};

int64_t num_captured(const std::function<Tensor(const Tensor&)>& function) {
  const Tensor x = torch::empty({3}, at::kMeta);
  const auto traced = levin::trace([&](const Tensor& given) { return function(given); }, {x});
  return Replay(traced.graph(), std::make_unique<NothingRuns>(at::kMeta)).report().num_captured;
}

// To copy from the host's memory is to wait, which a capture does not allow.
TEST(DeviceGraphs, LeaveOutCopiesOfTheHostsConstants) {
  EXPECT_EQ(num_captured([](const Tensor& x) { return x.add(x).sin(); }), 2);
  EXPECT_EQ(num_captured([](const Tensor& x) {
              return x.sin() + torch::zeros({3}).to(at::kMeta);  // where it comes to lie moves
            }),
            1);
}

TEST(DeviceGraphs, HoldANumberOfTheHostByItsValue) {
  EXPECT_EQ(num_captured([](const Tensor& x) { return x * torch::full({}, 2.0); }), 1);
  EXPECT_EQ(num_captured([](const Tensor& x) { return x.sin().copy_(torch::full({}, 2.0)); }), 1);
}

TEST(DeviceGraphs, LeaveOutWhatDrawsFromAGeneratorOfTheUsers) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  const auto captured = [](const std::function<Tensor()>& function) {
    RecordedDevice::Log log;
    return Replay(levin::trace(function, {}).graph(), std::make_unique<RecordedDevice>(log))
        .report()
        .num_captured;
  };
  EXPECT_EQ(captured([&] { return torch::empty({3}).uniform_(0, 1, generator).mul(2); }), 1);
  EXPECT_EQ(captured([&] { return torch::empty({3}).uniform_(0, 1).mul(2); }), 2);
}

/// What the allocator of pinned memory knows memory by.
Tensor context_of(const Tensor& x) {
  return torch::full({}, reinterpret_cast<int64_t>(x.storage().data_ptr().get_context()));
}
TORCH_LIBRARY_FRAGMENT(levin_test_device, library) {
  library.def("context_of(Tensor x) -> Tensor");
  library.impl("context_of", torch::dispatch(c10::DispatchKey::CPU, &context_of));
}

// Of a view too: a copy to a GPU that is under way is told to the allocator by it.
TEST(DeviceGraphs, KnowTheMemoryOfInputsOnTheHostByItsContext) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("levin_test_device::context_of", "")
                      .typed<Tensor(const Tensor&)>();
  const Tensor whole = torch::zeros({4, 8}), other = torch::zeros({4, 8});
  Replay replay(
      levin::trace([&](const Tensor& x) { return op.call(x); }, {whole.narrow(0, 2, 2)}).graph());
  EXPECT_EQ(replay({other.narrow(0, 2, 2)}).front().item<int64_t>(),
            reinterpret_cast<int64_t>(other.storage().data_ptr().get_context()));
}

}  // namespace
