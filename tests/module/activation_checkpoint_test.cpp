#include "levin/module/activation_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/autocast.h"
#include "levin/strategy/backward.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::activation_checkpoint;
using levin::test::error_of;
using ::testing::StartsWith;

/// Three layers with dropout between, the same weights each time.
struct Net : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  bool checkpoints = false;

  explicit Net(bool checkpoints) : checkpoints(checkpoints) {
    torch::manual_seed(1);
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 16));
    third = register_module("third", torch::nn::Linear(16, 4));
  }

  Tensor block(const Tensor& x) { return torch::dropout(second(x).relu(), 0.5, is_training()); }
  Tensor forward(const Tensor& input) {
    Tensor x = first(input).tanh();
    x = checkpoints ? activation_checkpoint([this](const Tensor& in) { return block(in); }, x)
                    : block(x);
    return third(x);
  }
};

Tensor input() { return torch::linspace(-1, 1, 24).view({3, 8}); }

std::vector<Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<Tensor> gradients;
  for (const Tensor& parameter : module.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_equal(const std::vector<Tensor>& left, const std::vector<Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(torch::equal(left[i], right[i])) << i;
}

using Backward = void (*)(const Tensor& loss);

class ActivationCheckpoint : public testing::TestWithParam<Backward> {};

TEST_P(ActivationCheckpoint, GivesTheSameBitsWithDropout) {
  Net plain(false), checkpointed(true);
  std::vector<Tensor> outputs;
  for (Net* net : {&plain, &checkpointed}) {
    torch::manual_seed(7);
    const Tensor output = net->forward(input());
    outputs.push_back(output.detach());
    outputs.push_back(torch::rand({3}));  // later draws are the same
    GetParam()(output.square().sum());
    outputs.push_back(torch::rand({3}));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(outputs[i], outputs[i + 3])) << i;
  expect_equal(gradients_of(plain), gradients_of(checkpointed));
}

TEST_P(ActivationCheckpoint, GivesTheSameBitsUnderAutocast) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Net plain(false), checkpointed(true);
    for (Net* net : {&plain, &checkpointed}) {
      Tensor loss;
      {
        const levin::AutocastScope scope(at::kCPU, {.enabled = true, .dtype = type});
        torch::manual_seed(7);
        loss = net->forward(input()).to(at::kFloat).square().sum();
      }
      GetParam()(loss);
    }
    expect_equal(gradients_of(plain), gradients_of(checkpointed));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, ActivationCheckpoint,
                         testing::Values(
                             +[](const Tensor& loss) { loss.backward(); },
                             +[](const Tensor& loss) { levin::backward(loss); }),
                         [](const auto& info) { return info.index == 0 ? "LibTorch" : "Levin"; });

TEST(ActivationCheckpoint, KeepsNothingOfTheFunction) {
  const auto weight = torch::ones({4}).requires_grad_();
  std::weak_ptr<int> alive;
  Tensor inside;
  const Tensor output = activation_checkpoint(
      [&](const Tensor& x) {
        const Tensor middle = x * weight;
        inside = middle.detach();
        return middle.exp().exp();
      },
      torch::ones({4}).requires_grad_());
  // exp keeps its result for backward; here nobody but `inside` has that memory.
  EXPECT_EQ(inside.storage().use_count(), 1);
}

TEST(ActivationCheckpoint, TakesAndGivesSeveralTensors) {
  const auto run = [](bool checkpoints) {
    const Tensor a = torch::full({3}, 2.0).requires_grad_(), b = torch::full({3}, 3.0);
    const Tensor c = torch::full({3}, 5.0).requires_grad_();
    const auto function = [](const Tensor& x, const Tensor& y, const Tensor& z) {
      return std::tuple(x * y, z.square() + x, y + 1);
    };
    const auto [first, second, third] =
        checkpoints ? activation_checkpoint(function, a, b, c) : function(a, b, c);
    EXPECT_FALSE(third.requires_grad());
    (first.sum() + 2 * second.sum() + third.sum()).backward();
    return std::vector<Tensor>{first.detach(), second.detach(), third, a.grad(), c.grad()};
  };
  expect_equal(run(false), run(true));
}

TEST(ActivationCheckpoint, TakesAndGivesAList) {
  const std::vector<Tensor> inputs = {torch::ones({2}).requires_grad_(),
                                      torch::full({2}, 4.0).requires_grad_()};
  const std::vector<Tensor> outputs = activation_checkpoint(
      [](const std::vector<Tensor>& x) {
        return std::vector<Tensor>{x[0] * x[1], x[1].sqrt(), x[0]};
      },
      inputs);
  ASSERT_EQ(outputs.size(), 3u);
  outputs[0].sum().backward();  // the others are not used
  EXPECT_TRUE(torch::equal(inputs[0].grad(), torch::full({2}, 4.0)));
  EXPECT_TRUE(torch::equal(inputs[1].grad(), torch::ones({2})));
}

TEST(ActivationCheckpoint, GivesCapturedTensorsTheirGradientsOnce) {
  const Tensor weight = torch::full({2}, 3.0).requires_grad_();
  int hooks = 0;
  weight.register_hook([&](const Tensor&) { ++hooks; });
  const Tensor outside = weight * 2;  // computed before, and captured
  const Tensor x = torch::ones({2}).requires_grad_();
  const Tensor output =
      activation_checkpoint([&](const Tensor& in) { return in * outside * weight + outside; }, x);
  output.sum().backward();
  // x * 2w * w + 2w: 4wx + 2
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2}, 14.0))) << weight.grad();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 18.0)));
  EXPECT_EQ(hooks, 1);
}

TEST(ActivationCheckpoint, NeedsNoInputWithAGradient) {
  const Tensor weight = torch::full({2}, 3.0).requires_grad_();
  activation_checkpoint([&](const Tensor& in) { return in * weight; }, torch::ones({2}))
      .sum()
      .backward();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::ones({2})));
}

TEST(ActivationCheckpoint, CanBeNested) {
  const auto run = [](bool checkpoints) {
    Net net(checkpoints);
    torch::manual_seed(7);
    const auto whole = [&](const Tensor& in) { return net.forward(in); };
    const Tensor x = input().requires_grad_();
    const Tensor output = checkpoints ? activation_checkpoint(whole, x) : whole(x);
    output.square().sum().backward();
    std::vector<Tensor> results = gradients_of(net);
    results.push_back(x.grad());
    return results;
  };
  expect_equal(run(false), run(true));
}

TEST(ActivationCheckpoint, WithoutGradientsIsTheFunctionAlone) {
  const torch::NoGradGuard no_grad;
  int calls = 0;
  activation_checkpoint(
      [&](const Tensor& x) {
        ++calls;
        return x + 1;
      },
      torch::ones({2}));
  EXPECT_EQ(calls, 1);
}

TEST(ActivationCheckpoint, AFunctionThatComputesSomethingElseIsAnError) {
  const auto error = [](const auto& function) {
    const Tensor loss = activation_checkpoint(function, torch::ones({4}).requires_grad_()).sum();
    return error_of([&] { loss.backward(); });
  };
  int calls = 0;
  EXPECT_THAT(error([&](const Tensor& x) { return ++calls == 1 ? x * 2 : x.slice(0, 0, 2) * 2; }),
              StartsWith("module.checkpoint.differs: output 0 had shape [4] in forward and [2]"));
  const Tensor one = torch::ones({4}).requires_grad_(), other = torch::ones({4}).requires_grad_();
  calls = 0;
  EXPECT_THAT(error([&](const Tensor& x) { return x * (++calls == 1 ? one : other); }),
              StartsWith("module.checkpoint.differs: the function used other parameters"));
  calls = 0;
  const std::vector<Tensor> outputs = activation_checkpoint(
      [&](const std::vector<Tensor>& x) {
        return ++calls == 1 ? std::vector<Tensor>{x[0] * 2, x[0]} : std::vector<Tensor>{x[0] * 2};
      },
      std::vector<Tensor>{torch::ones({4}).requires_grad_()});
  EXPECT_THAT(
      error_of([&] { outputs[0].sum().backward(); }),
      StartsWith("module.checkpoint.differs: the function returned 2 outputs in forward and 1"));
}

TEST(ActivationCheckpoint, AnInputThatWasOverwrittenIsTorchsError) {
  const Tensor weight = torch::ones({4}).requires_grad_();
  Tensor x = torch::ones({4});
  const Tensor loss = activation_checkpoint([&](const Tensor& in) { return in * weight; }, x).sum();
  x.add_(1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(ActivationCheckpoint, BackwardThatIsItselfDifferentiatedIsAnError) {
  const Tensor x = torch::ones({4}).requires_grad_();
  const Tensor loss = activation_checkpoint([](const Tensor& in) { return in.pow(3); }, x).sum();
  EXPECT_THAT(
      error_of([&] { torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true); }),
      StartsWith("module.checkpoint.twice: backward with create_graph=true"));
}

}  // namespace
