// Code that runs on tensors without memory: every layer gives the sizes, strides and dtypes that it gives with
// memory, and a step is the same graph.
#include "levin/graph/fake/fake_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "levin/base/autocast.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/graph/record/recording_session.h"
#include "levin/models/gpt2.h"
#include "levin/optim/optim.h"
#include "levin/strategy/backward.h"
#include "tests/graph/layer_cases.h"
#include "tests/graph/training.h"
#include "tests/support/error_of.h"
#include "tests/support/peak_memory.h"

namespace levin::test::fake {
namespace {

using graph::FakeScope;
using graph::without_memory;

std::vector<std::string> types_of(const Tensors& tensors) {
  std::vector<std::string> types;
  for (const at::Tensor& tensor : tensors) {
    types.push_back(tensor.defined()
                        ? c10::str(tensor.scalar_type(), tensor.sizes(), " by ", tensor.strides())
                        : "none");
  }
  return types;
}

Tensors without_memory_of(const Tensors& tensors) {
  Tensors fake;
  for (const at::Tensor& tensor : tensors) {
    fake.push_back(without_memory(tensor.detach()).requires_grad_(tensor.requires_grad()));
  }
  return fake;
}

/// Their kernels need values for the sizes, or LibTorch has neither a meta kernel nor this room a rule.
const std::set<std::string>& refused() {
  static const std::set<std::string> kRefused = {"FractionalMaxPool3d",
                                                 "EmbeddingBagMean",
                                                 "EmbeddingBagSum",
                                                 "EmbeddingBagMax",
                                                 "LSTM",
                                                 "LSTMDeep",
                                                 "MultiMarginLoss",
                                                 "MultiLabelMarginLoss",
                                                 "CTCLoss"};
  return kRefused;
}

class FakeLayer : public ::testing::TestWithParam<LayerCase> {};

TEST_P(FakeLayer, GivesTheSizesThatItGivesWithMemory) {
  torch::manual_seed(3);
  const Layer layer = GetParam().make();
  const Tensors inputs = layer.inputs();
  const std::vector<bool> labels = labels_of(inputs);
  const std::vector<std::string> wanted = types_of(forward_and_backward(layer, inputs, labels));
  graph::drop_memory(*layer.module);
  std::vector<std::string> got;
  const std::string error = error_of([&] {
    const FakeScope scope;
    try {
      got = types_of(forward_and_backward(layer, without_memory_of(inputs), labels));
    } catch (const c10::Error& refused) {  // of a pointer, as LibTorch throws it
      throw Error("graph.fake.values", refused.what_without_backtrace());
    }
  });
  if (refused().contains(GetParam().name)) {
    EXPECT_THAT(error, ::testing::HasSubstr("graph.fake."));
    return;
  }
  EXPECT_EQ(error, "no error");
  EXPECT_EQ(got, wanted);
}

INSTANTIATE_TEST_SUITE_P(Layers, FakeLayer, ::testing::ValuesIn(layer_cases()),
                         [](const auto& info) { return info.param.name; });

/// The second step of a training as a graph's text.
std::string step_text(const OptimizerConfig& config, bool convolutions, bool with_memory) {
  Trainee trainee(config, convolutions);
  std::optional<FakeScope> scope;
  if (!with_memory) {
    graph::drop_memory(*trainee.net);
    scope.emplace();
  }
  const auto batch = [&](int64_t number) {
    Tensors real = batch_of(number);
    return with_memory ? real : without_memory_of(real);
  };
  const Tensors first = batch(0), second = batch(1);
  trainee.step(first[0], first[1]);
  std::vector<NamedTensor> state = named_parameters(*trainee.net);
  for (const auto& buffer : trainee.net->named_buffers()) {
    state.push_back({buffer.key(), buffer.value()});
  }
  for (const NamedTensor& each : trainee.optimizer->named_state()) state.push_back(each);
  graph::RecordingSession session(state);
  session.add_input("x", second[0]);
  session.add_input("y", second[1]);
  trainee.step(second[0], second[1]);
  return graph::to_text(session.finish());
}

TEST(FakeStep, IsTheGraphThatAStepWithMemoryIs) {
  for (const bool convolutions : {false, true}) {
    for (const OptimizerConfig& config :
         {optim::sgd({.lr = 0.1, .momentum = 0.9}), optim::adamw({.lr = 1e-3})}) {
      EXPECT_EQ(step_text(config, convolutions, false), step_text(config, convolutions, true));
    }
  }
}

TEST(FakeStep, TakesNoMemoryAndDrawsNoNumber) {
  Trainee trainee(optim::adamw({.lr = 1e-3}));
  graph::drop_memory(*trainee.net);
  const at::Tensor x = without_memory(torch::empty({1 << 20, 64}, torch::kMeta));
  const at::Tensor y =
      without_memory(torch::empty({1 << 20}, at::dtype(at::kLong).device(at::kMeta)));
  torch::manual_seed(5);
  const PeakMemory peak;
  {
    const FakeScope scope;
    const at::Tensor loss = trainee.step(x, y);
    EXPECT_TRUE(graph::has_no_memory(loss));
  }
  EXPECT_LT(PeakMemory::bytes(), 1 << 20);  // its first product has 134 MB
  const at::Tensor drawn = torch::rand({4});
  torch::manual_seed(5);
  EXPECT_TRUE(torch::equal(drawn, torch::rand({4})));
}

TEST(FakeModel, OfTheMetaDeviceSharesWhatItsTensorsShared) {
  auto net = init_on_meta([] {
    torch::nn::Sequential made(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4));
    made->at<torch::nn::LinearImpl>(1).weight = made->at<torch::nn::LinearImpl>(0).weight;
    return made;
  });
  const at::Tensor weight = net->parameters().front();
  graph::drop_memory(*net);
  EXPECT_TRUE(weight.is_cpu());
  EXPECT_TRUE(graph::has_no_memory(weight));
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({4, 4}));
}

TEST(FakeScopes, CastUnderAutocastAsWithMemory) {
  torch::nn::Linear layer(8, 4);
  graph::drop_memory(*layer);
  const FakeScope scope;
  const AutocastScope autocast(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
  EXPECT_EQ(layer->forward(without_memory(torch::ones({2, 8}))).scalar_type(), at::kBFloat16);
}

/// Operators beside layers, which masks and losses use.
TEST(FakeScopes, GiveTheSizesOfOperatorsWithoutAMetaKernel) {
  const at::Tensor x = torch::randn({3, 1, 4}), y = torch::randn({2, 4});
  const auto results_of = [](const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor is_above = x > 0;
    return types_of({at::_safe_softmax(x, -1), at::logical_not(x), at::logical_and(x, y),
                     at::logical_or(is_above, y), at::logical_xor(x, is_above),
                     at::where(is_above, x, y), at::var(x, {0}, 1, true), at::std(x, {0, 2}),
                     at::flip(x, {1}), at::roll(x, {1}, {2}), at::logit(x)});
  };
  const std::vector<std::string> wanted = results_of(x, y);
  const FakeScope scope;
  EXPECT_EQ(results_of(without_memory(x), without_memory(y)), wanted);
}

TEST(FakeScopes, TakeANumberOfTheHostAsOneAndSayIt) {
  const at::Tensor x = without_memory(torch::ones({3}));
  const FakeScope scope;
  EXPECT_EQ(x.sum().item<float>(), 1.0F);
  EXPECT_EQ(x.to(at::kLong).sum().item<int64_t>(), 1);
  EXPECT_FALSE((x > 0).any().item<bool>());
  int64_t count = 0;
  for (const auto& [read, times] : scope.reads()) {
    EXPECT_THAT(read, ::testing::StartsWith("aten::_local_scalar_dense"));
    count += times;
  }
  EXPECT_EQ(count, 3);
}

TEST(FakeScopes, RefuseSizesThatDependOnValues) {
  const at::Tensor x = without_memory(torch::ones({3}));
  const FakeScope scope;
  EXPECT_THAT(error_of([&] { x.nonzero(); }),
              ::testing::AllOf(::testing::HasSubstr("graph.fake.values"),
                               ::testing::HasSubstr("aten::nonzero")));
}

TEST(FakeScopes, RefuseAnOperatorOfUnknownSizesByItsName) {
  const at::Tensor x = without_memory(torch::ones({3}));
  const FakeScope scope;
  EXPECT_THAT(error_of([&] { at::histc(x); }),
              ::testing::AllOf(::testing::HasSubstr("graph.fake.operator"),
                               ::testing::HasSubstr("aten::histc")));
}

TEST(FakeScopes, RefuseThePointer) {
  const at::Tensor x = without_memory(torch::ones({3}));
  EXPECT_THROW(x.data_ptr(), c10::Error);
}

TEST(FakeScopes, LeaveOperatorsAloneWhoseArgumentsHaveMemory) {
  const FakeScope scope;
  EXPECT_EQ((torch::ones({3}) + 1).sum().item<float>(), 6.0F);
}

}  // namespace
}  // namespace levin::test::fake
