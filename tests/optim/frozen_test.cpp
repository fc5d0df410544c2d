// Parameters that are frozen for a part of the training: as torch.optim has it, an optimizer holds
// them all and a step leaves alone what has no gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/support/error_of.h"

namespace frozen_parameters {
namespace {

using levin::NamedTensor;
using levin::OptimizerConfig;
using levin::State;
using levin::optim::build_optimizer;
using levin::optim::Optimizer;
using levin::test::error_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string name;
  std::function<OptimizerConfig()> config;
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> torch_optimizer;
};
std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }

std::vector<Case> cases() {
  return {{"Sgd", [] { return levin::optim::sgd({.lr = 0.1}); },
           [](auto p) { return std::make_unique<torch::optim::SGD>(p, 0.1); }},
          {"SgdMomentum",
           [] { return levin::optim::sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}); },
           [](auto p) {
             return std::make_unique<torch::optim::SGD>(
                 p, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
           }},
          {"AdamW", [] { return levin::optim::adamw({.lr = 0.1}); },
           [](auto p) {
             return std::make_unique<torch::optim::AdamW>(p, torch::optim::AdamWOptions(0.1));
           }},
          {"RMSprop",
           [] {
             return levin::optim::torch_optimizer<torch::optim::RMSprop>(
                 torch::optim::RMSpropOptions(0.1));
           },
           [](auto p) {
             return std::make_unique<torch::optim::RMSprop>(p, torch::optim::RMSpropOptions(0.1));
           }}};
}

std::vector<NamedTensor> two(at::ScalarType type = at::kFloat) {
  torch::manual_seed(3);
  return {{"body", torch::randn({3, 2}).to(type).requires_grad_()},
          {"head", torch::randn({5}).to(type).requires_grad_()}};
}

void freeze(const NamedTensor& parameter, bool frozen = true) {
  parameter.tensor.set_requires_grad(!frozen);
}

/// What backward would: a gradient for each that wants one.
void give_gradients(const std::vector<NamedTensor>& parameters, int64_t step) {
  torch::manual_seed(100 + static_cast<uint64_t>(step));
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor gradient = torch::randn(tensor.sizes()).to(tensor.scalar_type());
    tensor.mutable_grad() = tensor.requires_grad() ? gradient : at::Tensor();
  }
}

/// The body is frozen at first, is trained in steps 3 to 5, and frozen again.
bool is_frozen(int64_t step) { return step < 3 || step > 5; }

class Frozen : public ::testing::TestWithParam<Case> {};

TEST_P(Frozen, EqualsTorch) {
  const auto mine = two();
  const auto theirs = two();
  freeze(mine[0]);
  const auto optimizer = build_optimizer(GetParam().config(), mine);
  const auto reference = GetParam().torch_optimizer({theirs[0].tensor, theirs[1].tensor});
  for (int64_t step = 0; step < 9; ++step) {
    freeze(mine[0], is_frozen(step));
    freeze(theirs[0], is_frozen(step));
    give_gradients(mine, step);
    give_gradients(theirs, step);
    optimizer->step();
    reference->step();
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_TRUE(torch::allclose(mine[i].tensor, theirs[i].tensor, 1e-5, 1e-6))
          << mine[i].name << " after step " << step;
    }
  }
}

TEST_P(Frozen, MasterWeightsEqualFloat32ParametersRoundedAtTheEnd) {
  const auto half = two(at::kBFloat16);
  const auto whole = two();
  freeze(half[0]);
  const auto optimizer = build_optimizer(GetParam().config().master_weights(), half);
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < half.size(); ++i) whole[i].tensor.copy_(half[i].tensor);
  }
  const auto reference = build_optimizer(GetParam().config(), whole);
  for (int64_t step = 0; step < 9; ++step) {
    freeze(half[0], is_frozen(step));
    freeze(whole[0], is_frozen(step));
    give_gradients(half, step);
    for (size_t i = 0; i < half.size(); ++i) {
      const at::Tensor gradient = half[i].tensor.grad();
      whole[i].tensor.mutable_grad() = gradient.defined() ? gradient.to(at::kFloat) : gradient;
    }
    optimizer->step();
    reference->step();
  }
  for (size_t i = 0; i < half.size(); ++i) {
    EXPECT_TRUE(torch::equal(half[i].tensor, whole[i].tensor.to(at::kBFloat16))) << half[i].name;
  }
}

/// A run that is broken off after some step, with another body frozen or not from the start.
std::vector<NamedTensor> trained(const Case& one, int64_t broken_after, bool frozen_anew,
                                 bool masters) {
  const auto parameters = two(masters ? at::kBFloat16 : at::kFloat);
  OptimizerConfig config = one.config();
  if (masters) config.master_weights();
  freeze(parameters[0]);
  auto optimizer = build_optimizer(config, parameters);
  for (int64_t step = 0; step < 9; ++step) {
    if (step == broken_after) {
      const State state = optimizer->state_dict();
      freeze(parameters[0], frozen_anew);
      auto fresh = build_optimizer(config, parameters);
      fresh->load_state_dict(state);
      optimizer = std::move(fresh);
    }
    freeze(parameters[0], is_frozen(step));
    give_gradients(parameters, step);
    optimizer->step();
  }
  return parameters;
}

TEST_P(Frozen, AResumedRunRepeatsBitForBit) {
  for (const bool masters : {false, true}) {
    const auto whole = trained(GetParam(), -1, true, masters);
    for (const int64_t broken_after : {2, 4, 7}) {
      for (const bool frozen_anew : {true, false}) {
        const auto resumed = trained(GetParam(), broken_after, frozen_anew, masters);
        for (size_t i = 0; i < whole.size(); ++i) {
          EXPECT_TRUE(torch::equal(resumed[i].tensor, whole[i].tensor))
              << whole[i].name << ", broken after " << broken_after << ", frozen " << frozen_anew
              << ", masters " << masters;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Frozen, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(FrozenParameter, HasNoStateBeforeItIsTrained) {
  for (const bool masters : {false, true}) {
    const auto parameters = two(masters ? at::kBFloat16 : at::kFloat);
    freeze(parameters[0]);
    OptimizerConfig config = levin::optim::adamw();
    if (masters) config.master_weights();
    const auto optimizer = build_optimizer(config, parameters);
    const auto state_of = [&](const std::string& name) {
      return optimizer->state_dict().child("parameters").child(name);
    };
    give_gradients(parameters, 0);
    optimizer->step();
    EXPECT_EQ(state_of("body").values().size(), 1U);  // its count of steps, which is 0
    EXPECT_EQ(state_of("body").integer("step"), 0);
    EXPECT_TRUE(state_of("head").contains("exp_avg"));
    for (const NamedTensor& tensor : optimizer->named_state()) {
      EXPECT_THAT(tensor.name, testing::Not(HasSubstr("body")));
    }
    freeze(parameters[0], false);
    give_gradients(parameters, 1);
    const int64_t before = optimizer->layout();
    optimizer->step();
    EXPECT_EQ(state_of("body").integer("step"), 1);
    EXPECT_EQ(state_of("head").integer("step"), 2);
    EXPECT_EQ(state_of("body").contains("master"), masters);
    EXPECT_NE(optimizer->layout(), before);  // steps that were recorded no longer hold
  }
}

/// As checkpoints of levin were before frozen parameters belonged to optimizers.
TEST(FrozenParameter, MayLackInAState) {
  const auto parameters = two();
  freeze(parameters[0]);
  const auto saved = build_optimizer(levin::optim::adamw(), {parameters[1]});
  give_gradients(parameters, 0);
  saved->step();
  const auto optimizer = build_optimizer(levin::optim::adamw(), parameters);
  optimizer->load_state_dict(saved->state_dict());
  const State states = optimizer->state_dict().child("parameters");
  EXPECT_EQ(states.child("head").integer("step"), 1);
  freeze(parameters[0], false);
  EXPECT_THAT(error_of([&] { optimizer->load_state_dict(saved->state_dict()); }),
              StartsWith("optim.state.names: the state is of other parameters: it lacks [ body]"));
}

// What was another tensor when the optimizer was built.

TEST(ChangedParameter, OfAnotherTypeOrShapeIsAnErrorThatNamesIt) {
  for (const Case& one : cases()) {
    torch::nn::Linear layer(2, 2);
    const auto optimizer = build_optimizer(one.config(), levin::named_parameters(*layer));
    layer->to(at::kDouble);
    layer->forward(torch::ones({1, 2}, at::kDouble)).sum().backward();
    EXPECT_THAT(
        error_of([&] { optimizer->step(); }),
        StartsWith(
            "optim.parameters: parameter weight is Double [2, 2] on cpu, but it was Float [2, 2] "
            "on cpu when"))
        << one.name;
    torch::nn::Linear grown(2, 2);
    const auto of_grown = build_optimizer(one.config(), levin::named_parameters(*grown));
    grown->weight.set_data(torch::ones({9, 2}));
    grown->bias.set_data(torch::ones({9}));
    grown->forward(torch::ones({1, 2})).sum().backward();
    EXPECT_THAT(error_of([&] { of_grown->step(); }),
                StartsWith("optim.parameters: parameter weight is Float [9, 2]"))
        << one.name;
  }
}

TEST(ChangedParameter, InOtherMemoryIsTrainedThere) {
  for (const bool masters : {false, true}) {
    const auto parameters = two(masters ? at::kBFloat16 : at::kFloat);
    OptimizerConfig config = levin::optim::sgd({.lr = 1.0});
    if (masters) config.master_weights();
    const auto optimizer = build_optimizer(config, parameters);
    give_gradients(parameters, 0);
    optimizer->step();
    const at::Tensor& head = parameters[1].tensor;
    head.set_data(torch::full_like(head, 8.0).detach());
    head.mutable_grad() = torch::ones_like(head).detach();
    optimizer->step();
    EXPECT_TRUE(torch::equal(head, torch::full_like(head, 7.0))) << masters;
  }
}

}  // namespace
}  // namespace frozen_parameters
