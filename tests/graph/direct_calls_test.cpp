// Operators of a replay whose kernels it knows: whoever looks on sees them all the same.
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "levin/base/autocast.h"
#include "levin/graph/record/interposer.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"
#include "levin/observe/reduction.h"

namespace {

using at::Tensor;
using levin::graph::Replay;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

Tensor function(const Tensor& x) { return (x * 2).exp().sum(); }

Replay replay_of_function() { return Replay(levin::trace(function, {torch::ones({3})}).graph()); }

struct Names : levin::graph::OperatorHandler {
  std::vector<std::string> seen;
  void call(levin::graph::OperatorCall& call) override {
    seen.push_back(call.op().schema().name());
    call.proceed();
  }
};

TEST(DirectCalls, AreSeenByAHandler) {
  Replay replay = replay_of_function();
  const Tensor x = torch::ones({3}), wanted = function(x);
  EXPECT_TRUE(torch::equal(replay({x}).front(), wanted));
  Names names;
  {
    const levin::graph::HandlerScope scope(names);
    EXPECT_TRUE(torch::equal(replay({x}).front(), wanted));
  }
  ASSERT_GE(names.seen.size(), 3U);
  names.seen.resize(3);
  EXPECT_THAT(names.seen, ElementsAre("aten::mul", "aten::exp", "aten::sum"));
}

std::vector<std::string>* profiled = nullptr;

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call) {
  profiled->emplace_back(call.name());
  return nullptr;
}

TEST(DirectCalls, AreSeenByAProfiler) {
  Replay replay = replay_of_function();
  const Tensor x = torch::ones({3});
  std::vector<std::string> names;
  profiled = &names;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
  replay({x});
  at::removeCallback(handle);
  const std::vector<std::string> with_profiler = std::exchange(names, {});
  replay({x});
  EXPECT_THAT(with_profiler, IsSupersetOf({"aten::mul", "aten::exp", "aten::sum"}));
  EXPECT_THAT(names, IsEmpty());
}

/// Kernels of modes stand between an operator and the CPU's.
TEST(DirectCalls, AreMadeWhereNobodyLooksOn) {
  Replay replay = replay_of_function();
  const Tensor x = torch::rand({3});
  const Tensor wanted = function(x);
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(torch::equal(replay({x}).front(), wanted));
  }
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(replay({x}).front(), wanted));
  }
  const levin::AutocastScope autocast(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
  EXPECT_TRUE(torch::equal(replay({x}).front(), wanted));
}

/// Of conjugated and negated tensors, which kernels do not take, the dispatcher makes ordinary
/// ones; sparse results have kernels of their own.
TEST(DirectCalls, AreOfOrdinaryTensorsAlone) {
  const auto conjugated = [](const Tensor& x) {
    return at::real(at::exp(at::conj(at::complex(x, x * 2))) * 3) +
           at::imag(at::conj(at::complex(x, x)));
  };
  const Tensor x = torch::rand({3});
  Replay replay(levin::trace(conjugated, {x}).graph());
  for (int i = 0; i < 3; ++i) {
    const Tensor other = torch::rand({3});
    EXPECT_TRUE(torch::equal(replay({other}).front(), conjugated(other)));
  }
}

}  // namespace
