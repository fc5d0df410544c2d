#include "levin/graph/record/trace.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <thread>

#include "levin/graph/graph.h"
#include "levin/graph/record/interposer.h"
#include "levin/graph/record/recording_session.h"
#include "tests/graph/against_eager.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::TraceOptions;
using levin::graph::Node;
using levin::test::error_of;
using levin::test::expect_equals_eager;
using levin::test::Tensors;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Trace, OfAnMlpStepReadsWell) {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 2));
  const auto step = [&](const Tensor& x) {
    net->zero_grad();
    const Tensor loss = net->forward(x).pow(2).mean();
    loss.backward();
    return loss;
  };
  const auto module =
      levin::trace(step, {torch::randn({8, 4})}, {.state = levin::named_parameters(*net)});
  EXPECT_EQ(levin::graph::to_text(module.graph()),
            R"(%input = placeholder["input"] : f32[8, 4]
%0_weight = get_attr["0.weight"] : f32[3, 4]
%t = aten::t(%0_weight) : f32[4, 3]{1, 4}
%0_bias = get_attr["0.bias"] : f32[3]
%addmm = aten::addmm(%0_bias, %input, %t) : f32[8, 3]
%relu = aten::relu(%addmm) : f32[8, 3]
%2_weight = get_attr["2.weight"] : f32[2, 3]
%t_1 = aten::t(%2_weight) : f32[3, 2]{1, 3}
%2_bias = get_attr["2.bias"] : f32[2]
%addmm_1 = aten::addmm(%2_bias, %relu, %t_1) : f32[8, 2]
%pow = aten::pow.Tensor_Scalar(%addmm_1, 2) : f32[8, 2]
%mean = aten::mean(%pow) : f32[]
%ones_like = aten::ones_like(%mean, memory_format=contiguous_format) : f32[]
%expand = aten::expand(%ones_like, [8, 2]) : f32[8, 2]{0, 0}
%div = aten::div.Scalar(%expand, 16) : f32[8, 2]
%pow_1 = aten::pow.Tensor_Scalar(%addmm_1, 1.0) : f32[8, 2]
%mul = aten::mul.Scalar(%pow_1, 2.0) : f32[8, 2]
%mul_1 = aten::mul.Tensor(%div, %mul) : f32[8, 2]
%mm = aten::mm(%mul_1, %2_weight) : f32[8, 3]
%t_2 = aten::t(%mul_1) : f32[2, 8]{1, 2}
%mm_1 = aten::mm(%t_2, %relu) : f32[2, 3]
%t_3 = aten::t(%mm_1) : f32[3, 2]{1, 3}
%sum = aten::sum.dim_IntList(%mul_1, [0], true) : f32[1, 2]
%view = aten::view(%sum, [2]) : f32[2]
%threshold_backward = aten::threshold_backward(%mm, %relu, 0) : f32[8, 3]
%t_4 = aten::t(%threshold_backward) : f32[3, 8]{1, 3}
%mm_2 = aten::mm(%t_4, %input) : f32[3, 4]
%t_5 = aten::t(%mm_2) : f32[4, 3]{1, 4}
%sum_1 = aten::sum.dim_IntList(%threshold_backward, [0], true) : f32[1, 3]
%view_1 = aten::view(%sum_1, [3]) : f32[3]
return %mean
gradient %0_weight = %mm_2
gradient %0_bias = %view_1
gradient %2_weight = %mm_1
gradient %2_bias = %view
)");
}

TEST(Trace, TakesTensorsOneByOneOrAsAVector) {
  const Tensor x = torch::ones({2});
  EXPECT_EQ(levin::trace([&] { return x + 1; }, {}).graph().outputs().size(), 1U);
  EXPECT_EQ(levin::trace([](const Tensor& a, const Tensor& b) { return std::tuple(a + b, a - b); },
                         {x, torch::ones({2})})
                .graph()
                .outputs()
                .size(),
            2U);
  EXPECT_TRUE(
      levin::trace([](const Tensors& in) { in[0].add_(1); }, {x}).graph().outputs().empty());
}

TEST(TraceRandom, DrawsAreMadeInOrder) {
  const auto draws = [](const Tensors& in) -> Tensors {
    const Tensor first = torch::rand({5});
    const Tensor dropped = torch::dropout(in[0], 0.5, true);
    const Tensor order = torch::randperm(6);
    return {first,
            dropped,
            order,
            torch::bernoulli(in[0].sigmoid()),
            torch::rand({5}),
            torch::empty({3}).normal_(),
            torch::randn_like(in[0]),
            torch::randint(9, {4}),
            torch::multinomial(first, 2)};
  };
  const auto module = expect_equals_eager({.function = draws,
                                           .inputs = {torch::randn({3, 4})},
                                           .other_inputs = {torch::randn({3, 4})}});
  int64_t num_draws = 0;
  for (const Node& node : module.graph().nodes()) num_draws += node.is_random() ? 1 : 0;
  EXPECT_EQ(num_draws, 9);
}

TEST(TraceRandom, AnUnusedDrawIsNotDeadCode) {
  auto module = levin::trace(
      [](const Tensor& x) {
        torch::rand({3});
        return x + torch::rand({3});
      },
      {torch::ones({3})});
  EXPECT_EQ(module.graph().eliminate_dead_code(), 0U);
  EXPECT_EQ(module.graph().find_nodes("aten::rand").size(), 2U);
}

TEST(TraceRandom, AGeneratorOfTheUsersStays) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  auto module = levin::trace([&] { return torch::rand({3}, generator); }, {});
  generator.set_current_seed(9);
  const Tensor came = module({})[0];
  generator.set_current_seed(9);
  EXPECT_TRUE(torch::equal(came, torch::rand({3}, generator)));
}

TEST(TraceHostReads, AreErrorsThatNameWhatWasRead) {
  const Tensor x = torch::rand({2, 3});
  const auto error_from = [&](const std::function<void(const Tensor&)>& read) {
    return error_of([&] { levin::trace([&](const Tensor& in) { read(in); }, {x}); });
  };
  EXPECT_THAT(error_from([](const Tensor& in) { in.sum().item<float>(); }),
              StartsWith("graph.trace.host_read: aten::_local_scalar_dense of f32[] returns a "
                         "result that depends on values"));
  EXPECT_THAT(error_from([](const Tensor& in) { in.nonzero(); }),
              StartsWith("graph.trace.host_read: aten::nonzero of f32[2, 3]"));
  EXPECT_THAT(error_from([](const Tensor& in) { (void)torch::equal(in, in + 1); }),
              StartsWith("graph.trace.host_read: aten::equal of f32[2, 3], f32[2, 3]"));
  EXPECT_THAT(error_from([](const Tensor& in) { in.masked_select(in > 0); }),
              StartsWith("graph.trace.host_read: aten::masked_select"));
  EXPECT_EQ(error_from([](const Tensor& in) { (void)torch::equal(in, in); }), "no error");
  EXPECT_EQ(error_from([](const Tensor& in) { (void)torch::equal(in, in[0]); }), "no error");
}

TEST(TraceHostReads, AreListedWhereTheyAreAllowed) {
  const auto module = levin::trace(
      [](const Tensor& x) { return x.sum().item<float>() > 0 ? x * x.sum().item<float>() : x; },
      {torch::ones({3})}, {.allow_host_reads = true});
  ASSERT_EQ(module.graph().host_reads().size(), 2U);
  EXPECT_EQ(module.graph().host_reads()[0]->target(), "aten::_local_scalar_dense");
}

TEST(TraceErrors, CapturedAndStaleTensorsAreNamed) {
  const Tensor batch = torch::ones({4, 2});
  const auto captures = [&](const Tensor& x) { return x + batch; };
  EXPECT_THAT(
      error_of([&] { levin::trace(captures, {torch::ones({2})}, {.allow_captured = false}); }),
      StartsWith("graph.trace.captured: got a tensor [4, 2] of Float that is neither an input"));
  const TraceOptions named{.state = {{"batch", batch}}, .allow_captured = false};
  EXPECT_EQ(levin::trace(captures, {torch::ones({2})}, named).state().at(0).name, "batch");

  const Tensor weight = torch::ones({2}).requires_grad_();
  const Tensor hidden = weight * 2;
  const auto uses_old = [&](const Tensor& x) { return x + hidden; };
  EXPECT_THAT(error_of([&] { levin::trace(uses_old, {torch::ones({2})}); }),
              StartsWith("graph.trace.stale: got a tensor [2] that MulBackward"));
}

TEST(TraceErrors, AFunctionThatThrowsThrows) {
  const auto fails = [](const Tensor& x) { return x.mm(x); };
  EXPECT_THROW(levin::trace(fails, {torch::ones({2, 3})}), c10::Error);
  EXPECT_EQ(levin::trace([](const Tensor& x) { return x + 1; }, {torch::ones({2})})
                .graph()
                .find_nodes("aten::add")
                .size(),
            1U);
}

TEST(TraceState, ContentsAndGradientsAreUpdated) {
  const Tensor weight = torch::ones({3}).requires_grad_();
  const Tensor count = torch::zeros({1});
  const levin::test::Subject subject{.function = [&](const Tensors& in) -> Tensors {
                                       count.add_(1);
                                       (in[0] * weight).sum().backward();
                                       return {count * 2};
                                     },
                                     .inputs = {torch::randn({3})},
                                     .other_inputs = {torch::randn({3})},
                                     .state = {{"weight", weight}, {"count", count}}};
  const auto module = expect_equals_eager(subject);
  const std::string text = levin::graph::to_text(module.graph());
  EXPECT_THAT(text, HasSubstr("update %count = %add"));
  EXPECT_THAT(text, HasSubstr("gradient %weight = "));
}

TEST(TraceState, AGradientThatWasThereIsAddedTo) {
  const Tensor weight = torch::ones({3}).requires_grad_();
  weight.mutable_grad() = torch::full({3}, 5.0);
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the step may put another there
  const Tensor gradient = weight.grad();
  const auto step = [&](const Tensor& x) { (x * weight).sum().backward(); };
  auto module = levin::trace(step, {torch::ones({3})});
  module({torch::full({3}, 2.0)});
  EXPECT_TRUE(torch::equal(gradient, torch::full({3}, 8.0)));
  EXPECT_TRUE(gradient.is_same(weight.grad()));
}

TEST(TraceAutocast, CastsAreOperators) {
  const Tensor weight = torch::randn({4, 3}).requires_grad_();
  const auto function = [&](const Tensors& in) -> Tensors {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const Tensor out = in[0].mm(weight);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    out.sum().backward();
    return {out};
  };
  const auto module = expect_equals_eager({.function = function,
                                           .inputs = {torch::randn({2, 4})},
                                           .other_inputs = {torch::randn({2, 4})},
                                           .state = {{"weight", weight}}});
  EXPECT_FALSE(module.graph().find_nodes("aten::_to_copy").empty());
}

TEST(TraceInference, CompositeOperatorsAreTakenApart) {
  const auto function = [](const Tensors& in) -> Tensors {
    const c10::InferenceMode inference;
    return {torch::matmul(in[0], in[0].t()).reshape({-1}).contiguous()};
  };
  const auto module =
      levin::trace([&](const Tensors& in) { return function(in); }, {torch::randn({3, 4})});
  EXPECT_TRUE(module.graph().find_nodes("aten::matmul").empty());
  EXPECT_EQ(module.graph().find_nodes("aten::mm").size(), 1U);
}

// An operator of the user's, without a shape rule and without a gradient.
Tensor twice_plus(const Tensor& x, double by) { return x * 2 + by; }
void increment(Tensor x, const Tensor& by) { x.add_(by); }
TORCH_LIBRARY(levin_graph_test, library) {
  library.def("twice_plus(Tensor x, float by) -> Tensor");
  library.def("increment(Tensor(a!) x, Tensor by) -> ()");
  library.impl("twice_plus", torch::kCPU, twice_plus);
  library.impl("increment", torch::kCPU, increment);
}

TEST(TraceCustomOperators, NeedNoShapeRule) {
  const auto call = [](const char* name, auto... arguments) {
    torch::jit::Stack stack{c10::IValue(arguments)...};
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
    return stack.empty() ? Tensor() : stack[0].toTensor();
  };
  const auto module =
      expect_equals_eager({.function = [&](const Tensors& in) -> Tensors {
                             const Tensor x = call("levin_graph_test::twice_plus", in[0], 3.0);
                             call("levin_graph_test::increment", x.slice(0, 1), in[0].slice(0, 1));
                             return {x};
                           },
                           .inputs = {torch::randn({3})},
                           .other_inputs = {torch::randn({3})}});
  EXPECT_EQ(module.graph().find_nodes("levin_graph_test::twice_plus").size(), 1U);
}

// As a library that is unloaded and comes back changed: what is known of an operator goes with it.
TEST(TraceCustomOperators, MayBeDefinedAnewAsOthers) {
  for (int i = 0; i < 6; ++i) {
    const bool writes = i % 2 == 1;
    torch::Library library(torch::Library::DEF, "levin_defined_anew", std::nullopt, __FILE__,
                           __LINE__);
    if (writes) {
      library.def("change(Tensor(a!) x, Tensor by) -> ()");
      library.impl("change", torch::kCPU, increment);
    } else {
      library.def("change(Tensor x, float by) -> Tensor");
      library.impl("change", torch::kCPU, twice_plus);
    }
    const auto change = [&](const Tensors& in) -> Tensors {
      const Tensor x = in[0] * 1;
      torch::jit::Stack stack{x, writes ? c10::IValue(in[0]) : c10::IValue(3.0)};
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("levin_defined_anew::change", "")
          .callBoxed(&stack);
      return {x, writes ? x + 1 : stack[0].toTensor()};
    };
    expect_equals_eager(
        {.function = change, .inputs = {torch::randn({3})}, .other_inputs = {torch::randn({3})}});
  }
}

TEST(TraceSources, NameTheFunctionThatRanAnOperator) {
  const auto module =
      levin::trace([](const Tensor& x) { return x.sin(); }, {torch::ones({2})}, {.sources = true});
  EXPECT_THAT(module.graph().find_nodes("aten::sin").at(0)->source(), HasSubstr("TraceSources"));
  EXPECT_THAT(levin::graph::to_text(module.graph()), HasSubstr("  # "));
}

struct Counting : levin::graph::OperatorHandler {
  std::vector<std::string> seen;
  void call(levin::graph::OperatorCall& call) override {
    seen.push_back(call.op().schema().name());
    call.proceed();
  }
};

TEST(Interposer, SeesOperatorsOfItsScopeAndNotThoseInside) {
  Counting outer, inner;
  const Tensor x = torch::ones({2}).requires_grad_();
  {
    const levin::graph::HandlerScope scope(outer);
    Tensor y = x * 2;
    {
      const levin::graph::HandlerScope nested(inner);
      y = y.exp();
    }
    y.sum().backward();
  }
  torch::ones({2}) + 1;
  EXPECT_EQ(inner.seen, std::vector<std::string>{"aten::exp"});
  EXPECT_THAT(outer.seen, testing::IsSupersetOf({"aten::mul", "aten::exp", "aten::sum"}));
  EXPECT_THAT(outer.seen, testing::Contains("aten::mul").Times(testing::Ge(3)));  // backward too
  EXPECT_THAT(outer.seen, testing::Not(testing::Contains("aten::add")));
}

TEST(Interposer, OtherThreadsAreSeenWhereLibTorchCarriesItsState) {
  Counting seen;
  const levin::graph::HandlerScope scope(seen);
  const at::ThreadLocalState state;
  std::thread([&] {
    torch::ones({2}).sin();
    const at::ThreadLocalStateGuard carried(state);
    torch::ones({2}).cos();
  }).join();
  EXPECT_THAT(seen.seen, testing::Contains("aten::cos"));
  EXPECT_THAT(seen.seen, testing::Not(testing::Contains("aten::sin")));
}

TEST(RecordingSession, RecordsWhatNoOneFunctionSpans) {
  Tensor weight = torch::ones({2});
  levin::graph::RecordingSession stretch({{"weight", weight}});
  weight.mul_(3);
  const levin::graph::Graph graph = stretch.finish();
  EXPECT_THAT(levin::graph::to_text(graph), ::testing::HasSubstr("aten::mul"));
  EXPECT_THAT(levin::graph::to_text(graph), ::testing::HasSubstr("weight"));
}

TEST(RecordingSession, WhatCannotBeRecordedRunsAndIsAnErrorAtItsEnd) {
  levin::graph::RecordingSession stretch({});
  const Tensor sparse = torch::eye(2).to_sparse();
  EXPECT_TRUE(torch::equal(sparse.to_dense(), torch::eye(2)));
  EXPECT_THAT(error_of([&] { stretch.finish(); }), ::testing::HasSubstr("graph.stretch"));
}

}  // namespace
