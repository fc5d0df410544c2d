// Functions in which the host reads a value: replayed where it reads what it read, put back where
// it would read something else ("graph.replay").
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/compile/compiled.h"

namespace compiled_reads {

using levin::graph::CheckOptions;
using levin::graph::Compiled;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Results = std::vector<at::Tensor>;

/// Its sum is 1, 2 or 3, in no order.
at::Tensor flagged(int64_t call) {
  const int64_t flag = 1 + (call * call / 3) % 3;
  return torch::full({2, 2}, 0.25 * static_cast<double>(flag));
}

struct State {
  at::Tensor count = torch::zeros({2}), sum = torch::zeros({2, 2});
};

/// Writes state, draws, and writes its input before the host reads, and more afterwards.
at::Tensor branch(const at::Tensor& x, State& state) {
  state.count.add_(1);
  x.add_(torch::rand({2, 2}) * 0.01);
  const double flag = x.sum().round().item<double>();
  state.sum.add_(x, flag);
  if (flag > 2) return x * 3 + torch::rand({2, 2});
  return flag > 1 ? x.tanh() * state.count[0] : x * state.sum;
}

void expect_as_called(const CheckOptions& check, int64_t least_replays) {
  Compiled compiled("it", {.check = check});
  State state, wanted_state;
  at::Generator drawn_from = at::detail::getDefaultCPUGenerator();
  at::Tensor generator = drawn_from.get_state();
  for (int64_t call = 0; call < 60; ++call) {
    const at::Tensor x = flagged(call), y = flagged(call);
    const at::Tensor result =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{branch(x, state)}; })[0];
    const at::Tensor after = drawn_from.get_state();
    drawn_from.set_state(generator);
    EXPECT_TRUE(torch::equal(result, branch(y, wanted_state))) << call;
    EXPECT_TRUE(torch::equal(x, y)) << call;
    EXPECT_TRUE(torch::equal(state.count, wanted_state.count)) << call;
    EXPECT_TRUE(torch::equal(state.sum, wanted_state.sum)) << call;
    generator = drawn_from.get_state();
    EXPECT_TRUE(torch::equal(after, generator)) << call;
  }
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_GE(compiled.report().replayed, least_replays);
  EXPECT_EQ(compiled.report().replays.size(), 3U);
}

TEST(CompiledReads, EachOutcomeHasARecordingOfItsOwn) {
  expect_as_called({.every = CheckOptions::kNever}, 50);
}

TEST(CompiledReads, AnotherOutcomeInACheckIsNoDifference) {
  expect_as_called({}, 30);
  expect_as_called({.every = 2}, 10);
}

/// "" or the refusal; each call's results are compared.
std::string replayed_as_called(const std::function<at::Tensor(const at::Tensor&)>& function,
                               const std::function<at::Tensor(int64_t)>& input_of,
                               int64_t least_replays) {
  Compiled compiled("it", {.check = {.every = CheckOptions::kNever}});
  for (int64_t call = 0; call < 24; ++call) {
    const at::Tensor x = input_of(call);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{function(x)}; });
    EXPECT_TRUE(torch::equal(results[0], function(x))) << call;
  }
  EXPECT_GE(compiled.report().replayed, least_replays);
  return compiled.report().refusals.empty() ? "" : compiled.report().refusals.front();
}

TEST(CompiledReads, SizesThatDependOnValuesAreReads) {
  const auto counted = [](int64_t call) { return torch::arange(6) - (call / 3) % 2; };
  EXPECT_EQ(replayed_as_called([](const at::Tensor& x) { return x.nonzero() * 2; }, counted, 15),
            "");
  EXPECT_EQ(replayed_as_called([](const at::Tensor& x) { return x.masked_select(x > 2) * 2; },
                               counted, 15),
            "");
  EXPECT_EQ(
      replayed_as_called(
          [](const at::Tensor& x) { return std::get<0>(at::_unique2(x.relu())) * 2; }, counted, 15),
      "");
}

at::Tensor through_an_rnn(const at::Tensor& lengths) {
  static torch::nn::GRU gru(torch::nn::GRUOptions(2, 2));
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::arange(24.0).reshape({4, 3, 2}) / 24;
  const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, lengths);
  const auto out = gru->forward_with_packed_input(packed);
  return std::get<0>(torch::nn::utils::rnn::pad_packed_sequence(std::get<0>(out), false, 0.0, 4));
}

TEST(CompiledReads, LengthsOfPackedSequencesAreReads) {
  EXPECT_EQ(replayed_as_called(
                through_an_rnn,
                [](int64_t call) {
                  return call % 4 < 2 ? torch::tensor({4, 3, 1}) : torch::tensor({4, 2, 2});
                },
                15),
            "");
}

TEST(CompiledReads, WhatIsAnotherValueInEachCallIsNotReplayed) {
  const std::string refusal = replayed_as_called(
      [](const at::Tensor& x) { return x / x.sum().item<double>(); },
      [](int64_t call) { return torch::full({3}, 1.0 + static_cast<double>(call)); }, 0);
  EXPECT_THAT(refusal, HasSubstr("the host reads the result of aten::_local_scalar_dense"));
  EXPECT_THAT(refusal, HasSubstr("another value in each call"));
}

}  // namespace compiled_reads
