// What a program depends on, what the host computes, and the fused updates of optimizers.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include "levin/graph/compile/compiled.h"
#include "levin/xla/device/step.h"
#include "tests/xla/on_both_devices.h"

namespace {

using levin::test::expect_near;
using levin::test::xla_runtime;

TEST(RecordingOnXla, AnotherNumberNeedsNoOtherProgram) {
  at::Tensor x = at::ones({4}).to(xla_runtime().device());
  const auto step = [&](double rate) {
    x.sub_(x.mul(x), rate).clamp_(-5.5, 7.25);
    x.mul_(1 - rate * 0.3);
    xla_runtime().sync();
  };
  step(0.125);
  const auto before = xla_runtime().report();
  for (const double rate : {0.25, 0.375, 0.03125}) step(rate);
  const auto after = xla_runtime().report();
  EXPECT_EQ(after.compilations + after.disk_cache_hits,
            before.compilations + before.disk_cache_hits);
  EXPECT_EQ(after.executions, before.executions + 3);
  at::Tensor wanted = at::ones({4});
  for (const double rate : {0.125, 0.25, 0.375, 0.03125}) {
    wanted.sub_(wanted.mul(wanted), rate).mul_(1 - rate * 0.3);
  }
  expect_near(x, wanted, "x");
}

TEST(RecordingOnXla, AnOperatorWithoutLoweringRunsOnTheHost) {
  const at::Tensor x = at::tensor({3.0F, 0.0F, 2.0F});
  const at::Tensor there = x.to(xla_runtime().device()) * 2;
  const int64_t before = xla_runtime().report().host_fallbacks;
  const at::Tensor places = there.nonzero();
  EXPECT_EQ(places.device().type(), at::kXLA);
  EXPECT_EQ(xla_runtime().report().host_fallbacks, before + 1);
  EXPECT_TRUE(places.cpu().equal(x.nonzero()));
  expect_near((there + 1).index_select(0, places.view({-1})), at::tensor({7.0F, 5.0F}), "after it");
}

TEST(RecordingOnXla, AMaskAsAnIndexRunsOnTheHost) {
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor there = x.to(xla_runtime().device());
  const int64_t before = xla_runtime().report().host_fallbacks;
  expect_near(there.index({there > 2}), x.index({x > 2}), "chosen");
  EXPECT_GT(xla_runtime().report().host_fallbacks, before);
}

TEST(RecordingOnXla, AGeneratorOfTheCallersDrawsOnTheHost) {
  auto here = at::make_generator<at::CPUGeneratorImpl>(5);
  auto there = at::make_generator<at::CPUGeneratorImpl>(5);
  at::Tensor x = at::empty({8}, at::TensorOptions(xla_runtime().device()));
  x.normal_(0, 1, there);
  expect_near(x, at::empty({8}).normal_(0, 1, here), "drawn");
}

/// Error "xla.step" is why; levin's strategy copies such gradients where they are to stay.
TEST(StepsOnXla, ThatLeaveAViewAsAGradientRunAsTheyAre) {
  const at::Device device = xla_runtime().device();
  const std::shared_ptr<levin::xla::Runtime> runtime = levin::xla::Runtime::current();
  const at::Tensor weight = at::ones({6}).to(device).requires_grad_();
  const at::Tensor x = at::ones({2, 3}).to(device);
  levin::graph::Compiled step("it", {.engine = levin::xla::make_engine(runtime)});
  for (int i = 0; i < 5; ++i) {
    step({.inputs = {x}, .names = {"x"}}, [&] {
      weight.mutable_grad().reset();
      const at::Tensor loss = x.mm(weight.view({3, 2})).sum();
      loss.backward();
      return std::vector{loss.detach()};
    });
    expect_near(weight.grad(), at::full({6}, 2.0F), "the gradient");
  }
  ASSERT_EQ(step.report().refusals.size(), 1U);
  EXPECT_THAT(step.report().refusals.front(), ::testing::HasSubstr("the gradient of"));
}

struct Lists {
  std::vector<at::Tensor> parameters, gradients, first, second, third, steps;

  explicit Lists(at::ScalarType dtype) {
    torch::manual_seed(3);
    for (const auto& sizes : {std::vector<int64_t>{3, 4}, std::vector<int64_t>{5}}) {
      for (auto* list : {&parameters, &gradients}) list->push_back(at::randn(sizes, dtype));
      for (auto* list : {&first, &second, &third}) list->push_back(at::zeros(sizes, dtype));
      steps.push_back(at::scalar_tensor(0.0F, at::TensorOptions(at::kFloat)));
    }
  }

  void move() {
    for (auto* list : {&parameters, &gradients, &first, &second, &third}) {
      for (at::Tensor& tensor : *list) tensor = tensor.to(xla_runtime().device());
    }
  }
  void next() {
    for (at::Tensor& step : steps) step.add_(1);
    for (at::Tensor& gradient : gradients) gradient = gradient * 0.7 + 0.1;
  }
};

struct UpdateCase {
  std::string name;
  std::function<void(Lists&, int step)> update;
};

std::ostream& operator<<(std::ostream& out, const UpdateCase& of) { return out << of.name; }

std::vector<UpdateCase> updates() {
  std::vector<UpdateCase> cases;
  for (const bool decays : {false, true}) {
    for (const bool maximizes : {false, true}) {
      const double decay = decays ? 0.03 : 0.0;
      const std::string suffix = std::string(decays ? "Decay" : "") + (maximizes ? "Maximize" : "");
      for (const bool amsgrad : {false, true}) {
        const std::string more = suffix + (amsgrad ? "Amsgrad" : "");
        cases.push_back({"Adam" + more, [=](Lists& l, int) {
                           at::_fused_adam_(l.parameters, l.gradients, l.first, l.second,
                                            amsgrad ? l.third : std::vector<at::Tensor>(), l.steps,
                                            0.1, 0.9, 0.99, decay, 1e-7, amsgrad, maximizes);
                         }});
        cases.push_back({"Adamw" + more, [=](Lists& l, int) {
                           at::_fused_adamw_(l.parameters, l.gradients, l.first, l.second,
                                             amsgrad ? l.third : std::vector<at::Tensor>(), l.steps,
                                             0.1, 0.9, 0.99, decay, 1e-7, amsgrad, maximizes);
                         }});
      }
      cases.push_back({"Sgd" + suffix, [=](Lists& l, int) {
                         at::_fused_sgd_(l.parameters, l.gradients, {}, decay, 0, 0.1, 0, false,
                                         maximizes, false);
                       }});
      cases.push_back({"SgdMomentum" + suffix, [=](Lists& l, int step) {
                         at::_fused_sgd_(l.parameters, l.gradients, l.first, decay, 0.9, 0.1, 0.25,
                                         false, maximizes, step == 0);
                       }});
      cases.push_back({"SgdNesterov" + suffix, [=](Lists& l, int step) {
                         at::_fused_sgd_(l.parameters, l.gradients, l.first, decay, 0.9, 0.1, 0,
                                         true, maximizes, step == 0);
                       }});
      cases.push_back({"Adagrad" + suffix, [=](Lists& l, int) {
                         at::_fused_adagrad_(l.parameters, l.gradients, l.first, l.steps, 0.1, 0.2,
                                             decay, 1e-7, maximizes);
                       }});
    }
  }
  return cases;
}

class UpdatesOnXla : public testing::TestWithParam<UpdateCase> {};

TEST_P(UpdatesOnXla, EqualAtens) {
  const int64_t before = xla_runtime().report().host_fallbacks;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Lists here(dtype);
    Lists there(dtype);
    there.move();
    for (int step = 0; step < 3; ++step) {
      for (Lists* lists : {&here, &there}) {
        lists->next();
        GetParam().update(*lists, step);
      }
      xla_runtime().sync();
    }
    const auto compare = [&](const auto& came, const auto& wanted, const char* what) {
      for (size_t i = 0; i < came.size(); ++i)
        expect_near(came[i], wanted[i], c10::str(dtype, what, i));
    };
    compare(there.parameters, here.parameters, " parameter ");
    compare(there.first, here.first, " first moment ");
    compare(there.second, here.second, " second moment ");
    compare(there.third, here.third, " greatest moment ");
  }
  EXPECT_EQ(xla_runtime().report().host_fallbacks, before);
}

INSTANTIATE_TEST_SUITE_P(OfOptimizers, UpdatesOnXla, testing::ValuesIn(updates()),
                         [](const auto& info) { return info.param.name; });

TEST(UpdatesOnXla, OneProgramServesAllSteps) {
  Lists lists(at::kFloat);
  lists.move();
  int64_t programs = 0;
  for (int step = 0; step < 6; ++step) {
    if (step == 3)
      programs = xla_runtime().report().compilations + xla_runtime().report().disk_cache_hits;
    lists.next();
    at::_fused_adamw_(lists.parameters, lists.gradients, lists.first, lists.second, {}, lists.steps,
                      0.1 / (1 + step), 0.9, 0.99, 0.01, 1e-7, false, false);
    xla_runtime().sync();
  }
  EXPECT_EQ(xla_runtime().report().compilations + xla_runtime().report().disk_cache_hits, programs);
}

}  // namespace
