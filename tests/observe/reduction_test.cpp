#include "levin/observe/reduction.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/observe/elsewhere.h"

namespace {

using levin::detail::host_value;
using levin::detail::read_scalars;
using levin::detail::Reduction;
using levin::test::elsewhere;
using Kind = Reduction::Kind;

double read(const Reduction& reduction) { return read_scalars({reduction.value()})[0]; }

TEST(HostValue, ReadsEveryRealTypeInHostMemory) {
  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(host_value(at::scalar_tensor(3, type)), 3.0) << c10::toString(type);
  }
  EXPECT_EQ(host_value(at::scalar_tensor(true, at::kBool)), 1.0);
  EXPECT_EQ(host_value(at::arange(6).reshape({2, 3})[1][2]), 5.0);
  EXPECT_EQ(host_value(at::scalar_tensor(2.5).requires_grad_()), 2.5);
}

TEST(HostValue, LeavesAloneWhatIsNotPlainHostMemory) {
  EXPECT_EQ(host_value(elsewhere(1)), std::nullopt);
  EXPECT_EQ(host_value(at::empty({}, at::kMeta)), std::nullopt);
  EXPECT_EQ(host_value(at::scalar_tensor(c10::complex<float>(1, 2), at::kComplexFloat)),
            std::nullopt);
  EXPECT_EQ(host_value(at::_efficientzerotensor({}, at::kFloat)), std::nullopt);
}

TEST(HostValue, ReadsInferenceTensors) {
  const c10::InferenceMode inference;
  EXPECT_EQ(host_value(at::scalar_tensor(4)), 4.0);
}

TEST(ReadScalars, KeepsTheOrder) {
  EXPECT_EQ(read_scalars({at::scalar_tensor(1), at::scalar_tensor(2, at::kLong), elsewhere(3),
                          at::ones({1})}),
            (std::vector<double>{1, 2, 3, 1}));
  EXPECT_TRUE(read_scalars({}).empty());
}

struct Case {
  Kind kind;
  double expected;
  double of_nothing;
};

class Reductions : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    All, Reductions,
    ::testing::Values(Case{Kind::kMean, (1.5 * 2 + -4.0 * 1 + 3.0 * 5) / 8, NAN},
                      Case{Kind::kSum, 0.5, 0}, Case{Kind::kMin, -4, NAN},
                      Case{Kind::kMax, 3, NAN}),
    [](const auto& info) { return std::to_string(static_cast<int>(info.param.kind)); });

TEST_P(Reductions, AreTheSameOnTheHostOnADeviceAndMixed) {
  for (int mask = 0; mask < 8; ++mask) {
    Reduction reduction(GetParam().kind);
    const std::vector<std::pair<double, double>> values = {{1.5, 2}, {-4, 1}, {3, 5}};
    for (size_t i = 0; i < values.size(); ++i) {
      const auto [value, weight] = values[i];
      if ((mask >> i & 1) != 0) {
        reduction.add(elsewhere(value), weight);
      } else {
        reduction.add(value, weight);
      }
    }
    EXPECT_EQ(read(reduction), GetParam().expected) << mask;
    EXPECT_EQ(reduction.host().has_value(), mask == 0);
  }
}

TEST_P(Reductions, OfNothing) {
  Reduction reduction(GetParam().kind);
  reduction.add(NAN, 0);
  reduction.add(elsewhere(NAN), 0);
  EXPECT_TRUE(reduction.empty());
  const double expected = GetParam().of_nothing;
  EXPECT_TRUE(std::isnan(expected) ? std::isnan(read(reduction)) : read(reduction) == expected);
}

TEST_P(Reductions, KeepNaN) {
  for (const bool on_device : {false, true}) {
    Reduction reduction(GetParam().kind);
    for (const double value : {1.0, static_cast<double>(NAN), 2.0}) {
      on_device ? reduction.add(elsewhere(value)) : reduction.add(value);
    }
    EXPECT_TRUE(std::isnan(read(reduction))) << on_device;
  }
}

TEST_P(Reductions, ComeBackFromTheirStateBitForBit) {
  Reduction whole(GetParam().kind), first(GetParam().kind), second(GetParam().kind);
  for (int i = 0; i < 20; ++i) {
    if (i == 7) second.merge(first.state_dict());
    Reduction& part = i < 7 ? first : second;
    for (Reduction* reduction : {&whole, &part}) {
      reduction->add(1.0 / (i + 3), i + 1);
      reduction->add(elsewhere(-1.0 / (i + 7)), i + 2);
    }
  }
  EXPECT_EQ(read(second), read(whole));
}

TEST_P(Reductions, MergeInAnyGrouping) {
  // Halves add without rounding, so that the groupings must agree to the last bit.
  const auto part = [&](double a, double b) {
    Reduction reduction(GetParam().kind);
    reduction.add(a, 2);
    reduction.add(elsewhere(b), 3);
    return reduction;
  };
  const auto merged = [](const Reduction& a, const Reduction& b) {
    Reduction sum = a;
    sum.merge(b.state_dict());
    return sum;
  };
  const Reduction a = part(1.5, -2), b = part(0.5, 8), c = part(-3.5, 0.25);
  EXPECT_EQ(read(merged(merged(a, b), c)), read(merged(a, merged(b, c))));
  EXPECT_EQ(read(merged(merged(a, b), c)), read(merged(merged(c, a), b)));
}

TEST(Reduction, StateIsACopy) {
  Reduction reduction(Kind::kSum);
  reduction.add(elsewhere(1));
  const levin::State state = reduction.state_dict();
  reduction.add(elsewhere(5));
  EXPECT_EQ(state.tensor("device").item<double>(), 1);
}

TEST(Reduction, BegunInInferenceModeGoesOnOutside) {
  Reduction reduction(Kind::kMean);
  {
    const c10::InferenceMode inference;
    reduction.add(elsewhere(1));
  }
  reduction.add(elsewhere(3).requires_grad_());
  EXPECT_EQ(read(reduction), 2);
  EXPECT_FALSE(reduction.value().requires_grad());
}

}  // namespace
