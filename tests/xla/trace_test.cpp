// Steps that are called again: what is as in one before is not recorded, and computes the same.
#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "tests/xla/on_both_devices.h"

namespace {

using levin::test::expect_near;
using levin::test::xla_runtime;
using Tensors = std::vector<at::Tensor>;

/// Runs the step some times on each device, on tensors that stay, and compares what it gave and
/// what it left. Returns how many runs were as one before.
int64_t run_on_both(const Tensors& inputs, int64_t times,
                    const std::function<Tensors(Tensors&, int64_t)>& step) {
  Tensors here, there;
  for (const at::Tensor& input : inputs) {
    here.push_back(input.clone());
    there.push_back(input.to(xla_runtime().device()));
  }
  xla_runtime().sync();
  const int64_t before = xla_runtime().report().trace_hits;
  for (int64_t i = 0; i < times; ++i) {
    const Tensors wanted = step(here, i);
    const Tensors came = step(there, i);
    xla_runtime().sync();
    const std::string run = "run " + std::to_string(i) + ", ";
    EXPECT_EQ(came.size(), wanted.size());
    for (size_t k = 0; k < came.size(); ++k) {
      expect_near(came[k], wanted[k], run + "result " + std::to_string(k));
    }
    for (size_t k = 0; k < here.size(); ++k) {
      expect_near(there[k], here[k], run + "tensor " + std::to_string(k));
    }
    xla_runtime().sync();  // to compare was a recording of its own
  }
  return xla_runtime().report().trace_hits - before;
}

at::Tensor numbers(at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kFloat).div(count).sub(0.3).view(sizes);
}

TEST(TracesOnXla, TheSameStepIsRecordedOnce) {
  const auto step = [](Tensors& state, int64_t) {
    const at::Tensor hidden = at::relu(state[0].mm(state[1]));
    state[1].sub_(state[0].t().mm(hidden), 0.125);
    return Tensors{hidden.sum()};
  };
  EXPECT_EQ(run_on_both({numbers({4, 3}), numbers({3, 2})}, 5, step), 4);
}

TEST(TracesOnXla, ATrainingStepIsRecordedUntilItsGradientsAreThere) {
  const auto step = [](Tensors& state, int64_t) {
    const at::Tensor weight = state[1].detach().requires_grad_();
    const at::Tensor loss = at::tanh(state[0].mm(weight)).pow(2).mean();
    loss.backward();
    state[1].sub_(weight.grad(), 0.25);
    return Tensors{loss.detach()};
  };
  EXPECT_EQ(run_on_both({numbers({4, 3}), numbers({3, 2})}, 6, step), 5);
}

/// The intermediate that both have in common is gone when they part.
TEST(TracesOnXla, StepsThatPartInTheMiddle) {
  const auto step = [](Tensors& state, int64_t i) {
    at::Tensor x = state[0] * 2;
    x = x.t().contiguous();
    x[0].add_(1);
    x = x.sin();
    if (i % 3 == 0) return Tensors{x.sum()};
    if (i % 3 == 1) x = x.mm(state[0]);
    state[0].mul_(0.5);
    return Tensors{x.exp().sum()};
  };
  EXPECT_EQ(run_on_both({numbers({3, 3})}, 9, step), 6);
}

TEST(TracesOnXla, WhatSomebodyHoldsAtTheEndIsGiven) {
  const auto step = [](Tensors& state, int64_t i) {
    const at::Tensor middle = state[0].exp();
    const at::Tensor end = middle.sum();
    return i % 2 == 0 ? Tensors{end} : Tensors{end, middle};
  };
  EXPECT_EQ(run_on_both({numbers({5})}, 6, step), 4);
}

TEST(TracesOnXla, NumbersThatAProgramTakesAnew) {
  const auto step = [](Tensors& state, int64_t i) {
    const double changing = 0.0625 * static_cast<double>(i + 1);
    state[0].mul_(1.0 - changing).add_(state[1], changing);
    return Tensors{state[0] * (0.5 + static_cast<double>(i))};
  };
  EXPECT_EQ(run_on_both({numbers({4}), numbers({4})}, 6, step), 5);
}

TEST(TracesOnXla, NumbersThatAProgramIsMadeFor) {
  const auto step = [](Tensors& state, int64_t i) {
    return Tensors{state[0].narrow(0, i % 3, 2).exp(),
                   state[0].pow(static_cast<double>(i % 2 + 2))};
  };
  EXPECT_EQ(run_on_both({numbers({6})}, 12, step), 6);
}

TEST(TracesOnXla, NumbersOfTheHost) {
  const at::Tensor rate = at::scalar_tensor(0.5, at::kDouble);
  const auto step = [&](Tensors& state, int64_t i) {
    rate.fill_(0.5 / static_cast<double>(i + 1));
    state[0].sub_(state[0].exp() * rate.to(at::kFloat));
    return Tensors{state[0].sum()};
  };
  EXPECT_EQ(run_on_both({numbers({4})}, 5, step), 4);
}

/// One recording holds one value of each: where the host changes it within a step, the step is two.
TEST(TracesOnXla, ANumberOfTheHostThatChangesWithinAStep) {
  const at::Tensor rate = at::scalar_tensor(0.5, at::kFloat);
  const auto step = [&](Tensors& state, int64_t i) {
    rate.fill_(0.5);
    state[0].add_(state[0] * rate);
    rate.fill_(-0.25 * static_cast<double>(i));
    state[0].add_(state[0] * rate);
    return Tensors{state[0].sum()};
  };
  run_on_both({numbers({4})}, 4, step);
}

TEST(TracesOnXla, ViewsOfWhatWasThereAreWritten) {
  const auto step = [](Tensors& state, int64_t i) {
    state[0].select(0, 1).add_(1);
    state[0].narrow(1, 0, 2).mul_(state[1].t());
    if (i == 3) state[0].diagonal().zero_();
    return Tensors{state[0].view({-1}).sum(), state[0].t()};
  };
  EXPECT_EQ(run_on_both({numbers({3, 3}), numbers({2, 3})}, 6, step), 4);
}

TEST(TracesOnXla, MemoryThatNobodyHasWritten) {
  const auto step = [](Tensors& state, int64_t) {
    at::Tensor sums = at::empty({3}, state[0].options());
    sums[0].copy_(state[0].sum());
    sums[1].copy_(state[0].max());
    sums[2].fill_(2);
    return Tensors{sums};
  };
  EXPECT_EQ(run_on_both({numbers({4})}, 4, step), 3);
}

TEST(TracesOnXla, OtherSizesAndOtherMemory) {
  const auto step = [](Tensors& state, int64_t i) {
    if (i % 4 == 3) state[0] = state[0].clone();
    const at::Tensor part = state[0].narrow(0, 0, 2 + i % 2);
    return Tensors{part.exp().sum(), state[0].detach()};
  };
  run_on_both({numbers({4})}, 12, step);
}

/// The memory that went in is that from before, although the tensor has other memory by then.
TEST(TracesOnXla, DataThatIsSet) {
  const auto step = [](Tensors& state, int64_t i) {
    if (i % 3 == 2) state[0].set_data(state[0].detach() * 2);
    const at::Tensor before = state[0].exp();
    if (i % 4 == 3) state[0].set_data(state[0].detach() - 1);
    return Tensors{before.sum(), state[0] + 1};
  };
  run_on_both({numbers({4})}, 12, step);
}

TEST(TracesOnXla, TwoArgumentsThatAreOneTensorAtTimes) {
  const auto step = [](Tensors& state, int64_t i) {
    const at::Tensor& other = i % 2 == 0 ? state[0] : state[1];
    state[0].add_(other.exp()).mul_(other);
    return Tensors{state[0].sum()};
  };
  EXPECT_EQ(run_on_both({numbers({4}), numbers({4})}, 6, step), 4);
}

TEST(TracesOnXla, AnErrorInAStepLeavesTheNextAsItIs) {
  const auto step = [](Tensors& state, int64_t i) {
    state[0].add_(1);
    if (i % 2 == 1) {
      EXPECT_THROW(state[0].mm(state[1]), c10::Error);
    }
    return Tensors{state[0].exp().sum()};
  };
  run_on_both({numbers({4}), numbers({2, 2})}, 6, step);
}

TEST(TracesOnXla, ValuesThatTheHostReadsOnTheWay) {
  const auto step = [](Tensors& state, int64_t) {
    state[0].mul_(state[0].sum().item<float>() > 1 ? 0.5 : 3.0);
    return Tensors{state[0] + 1};
  };
  run_on_both({numbers({4})}, 8, step);
}

/// A run that is as one before draws as the recorded one would have.
TEST(TracesOnXla, DrawsAreThoseOfTheSeed) {
  const at::Tensor x = at::ones({64}).to(xla_runtime().device());
  const auto draw = [&] {
    torch::manual_seed(11);
    Tensors drawn;
    for (int i = 0; i < 4; ++i) {
      drawn.push_back(torch::dropout(x, 0.5, /*train=*/true) + torch::rand_like(x));
      xla_runtime().sync();
    }
    return at::stack(drawn).cpu();
  };
  const int64_t before = xla_runtime().report().trace_hits;
  const at::Tensor first = draw();
  EXPECT_EQ(xla_runtime().report().trace_hits - before, 3);
  EXPECT_TRUE(draw().equal(first));
  EXPECT_EQ(xla_runtime().report().trace_hits - before, 3 + 4 + 1);  // the last to stack them
  EXPECT_FALSE(first[0].equal(first[1]));
}

/// Steps drawn at random, each a change of one before, so that they begin alike and part anywhere.
class RandomSteps {
 public:
  explicit RandomSteps(uint32_t seed) : random_(seed) {}

  /// An operator on some of the tensors that there are.
  struct Operator {
    int64_t kind, first, second;
    bool is_kept;
  };
  using Step = std::vector<Operator>;

  Step drawn() {
    Step step(4 + below(8));
    for (Operator& made : step) made = drawn_operator();
    return step;
  }
  Step changed(Step step) {
    const size_t place = below(step.size());
    if (below(3) == 0) step.resize(place + 1);
    step[place] = drawn_operator();
    return step;
  }
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

  /// What the step gives is what is kept of it.
  static Tensors run(const Step& step, Tensors& state, double number) {
    Tensors tensors = state, kept;
    const auto at = [&](int64_t place) -> at::Tensor& {
      return tensors[static_cast<size_t>(place) % tensors.size()];
    };
    for (const Operator& made : step) {
      const at::Tensor& x = at(made.first);
      const at::Tensor& y = at(made.second);
      at::Tensor result = apply(made.kind, x, y, number);
      if (made.is_kept) kept.push_back(result);
      if (tensors.size() < 7)
        tensors.push_back(result);
      else
        at(made.second + 3) = result;
    }
    return kept;
  }

 private:
  Operator drawn_operator() {
    return {.kind = static_cast<int64_t>(below(14)),
            .first = static_cast<int64_t>(below(7)),
            .second = static_cast<int64_t>(below(7)),
            .is_kept = below(3) == 0};
  }

  /// All are [3, 3] and stay small.
  static at::Tensor apply(int64_t kind, const at::Tensor& x, const at::Tensor& y, double number) {
    switch (kind) {
      case 0:
        return x + y;
      case 1:
        return x.mm(y).tanh();
      case 2:
        return x.t();
      case 3:
        return x.mul_(0.5);
      case 4:
        return x.add(y, number).tanh();
      case 5:
        return x.mul_(number).tanh_();
      case 6:
        x.select(0, 1).copy_(y.select(1, 2).sin());
        return x;
      case 7:
        x.narrow(1, 0, 2).tanh_();
        return y;
      case 8:
        return at::cat({x.narrow(0, 0, 1), y.narrow(0, 1, 2)});
      case 9:
        return x.clone();
      case 10:
        return at::empty_like(x).copy_(y.tanh());
      case 11:
        return at::where(x > y, x, y * number).tanh();
      case 12:
        return x.split({1, 2})[1].sum(0, true).expand({3, 3}).tanh();
      default:
        return at::softmax(x, 1).diagonal_scatter(y.diagonal().tanh());
    }
  }

  std::mt19937 random_;
};

TEST(TracesOnXla, StepsDrawnAtRandomGiveWhatTheCpuGives) {
  int64_t hits = 0;
  for (uint32_t seed = 0; seed < 12; ++seed) {
    RandomSteps random(seed);
    std::vector<RandomSteps::Step> steps = {random.drawn()};
    while (steps.size() < 6) steps.push_back(random.changed(steps[random.below(steps.size())]));
    hits += run_on_both({numbers({3, 3}), numbers({3, 3}).flip(0), numbers({3, 3}).t() * 2}, 24,
                        [&](Tensors& state, int64_t i) {
                          SCOPED_TRACE("seed " + std::to_string(seed));
                          const auto which = static_cast<size_t>(i * 7 / 2) % steps.size();
                          return RandomSteps::run(steps[which], state,
                                                  0.1 * static_cast<double>(i % 5));
                        });
  }
  EXPECT_GT(hits, 100);
}

/// Other steps until all that was remembered is forgotten: then this one is recorded once more.
void expect_forgotten_after(const std::function<void(const at::Tensor&)>& others) {
  const auto step = [](Tensors& state, int64_t) {
    state[0].mul_(0.5);
    return Tensors{state[0].exp().sum()};
  };
  const Tensors inputs = {numbers({4})};
  run_on_both(inputs, 1, step);
  EXPECT_EQ(run_on_both(inputs, 2, step), 2);
  others(numbers({4}).to(xla_runtime().device()));
  EXPECT_EQ(run_on_both(inputs, 3, step), 2);
}

TEST(TracesOnXla, TooManyCallsAreForgotten) {
  expect_forgotten_after([](const at::Tensor& start) {
    for (int64_t chain = 0; chain < 40; ++chain) {
      at::Tensor x = start;
      for (int64_t i = 0; i < 1000; ++i) x = x.add(static_cast<double>(chain));
      x.reset();  // nobody wants it, so that nothing is compiled
      xla_runtime().sync();
    }
  });
}

TEST(TracesOnXla, TooManyCallsAfterOneAreForgotten) {
  expect_forgotten_after([](const at::Tensor& start) {
    for (int64_t i = 0; i < 1100; ++i) {
      start.add(static_cast<double>(i));
      xla_runtime().sync();
    }
  });
}

}  // namespace
