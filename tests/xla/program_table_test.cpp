// Programs that are found again by their graphs: those that lowering would make, and no others.
#include "levin/xla/stablehlo/program_table.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ostream>

#include "levin/graph/record/trace.h"

namespace {

using at::Tensor;
using levin::xla::KnownProgram;
using levin::xla::Program;
using levin::xla::ProgramTable;
using levin::xla::RuntimeNumber;
using Function = std::function<Tensor(const Tensor&, const Tensor&)>;

constexpr auto kWhole = [](const levin::graph::Node&) { return int64_t{-1}; };

levin::graph::GraphModule traced(const Function& function, const Tensor& x, const Tensor& y) {
  return levin::trace(function, {x, y});
}

std::vector<double> values_of(const std::vector<RuntimeNumber>& numbers) {
  std::vector<double> values;
  for (const RuntimeNumber& number : numbers) values.push_back(number.value);
  return values;
}

void expect_same(const Program& found, const Program& lowered) {
  EXPECT_EQ(found.text, lowered.text);
  EXPECT_EQ(found.inputs, lowered.inputs);
  EXPECT_EQ(values_of(found.numbers), values_of(lowered.numbers));
  EXPECT_EQ(values_of(found.wide_numbers), values_of(lowered.wide_numbers));
  ASSERT_EQ(found.outputs.size(), lowered.outputs.size());
  for (size_t i = 0; i < found.outputs.size(); ++i) {
    EXPECT_EQ(found.outputs[i].updates, lowered.outputs[i].updates);
    EXPECT_EQ(found.outputs[i].index, lowered.outputs[i].index);
  }
}

struct TwoGraphs {
  std::string name;
  Function before, now;
  bool is_found = false;
};

std::ostream& operator<<(std::ostream& out, const TwoGraphs& two) { return out << two.name; }

Function scaled(double factor) {
  return [=](const Tensor& x, const Tensor& y) { return (x * factor + y).sub(y, 0.3 * factor); };
}
Function bounded(double low, double high) {
  return [=](const Tensor& x, const Tensor&) { return x.clamp(low, high); };
}
Function summed(int64_t dim) {
  return [=](const Tensor& x, const Tensor&) { return x.sum(dim); };
}
Function leaky(double slope) {
  return [=](const Tensor& x, const Tensor&) { return at::leaky_relu(x, slope); };
}
Function written(double factor) {
  return [=](const Tensor& x, const Tensor& y) {
    const Tensor out = y.clone();
    out.select(0, 1).mul_(factor);
    return out + x;
  };
}

std::vector<TwoGraphs> graph_cases() {
  const Function less = [](const Tensor& x, const Tensor& y) { return x - y; };
  const Function other = [](const Tensor& x, const Tensor& y) { return y - x; };
  const Function view = [](const Tensor& x, const Tensor&) { return x.view({-1}) * 3.5; };
  const Function transposed = [](const Tensor& x, const Tensor&) { return x.t() * 3.5; };
  return {{"TheSame", less, less, true},
          {"AnotherFactor", scaled(0.25), scaled(0.75), true},
          {"OtherBounds", bounded(-0.5, 0.25), bounded(-0.75, 0.125), true},
          {"BoundsThatWereEqual", bounded(0.25, 0.25), bounded(-0.25, 0.5), true},
          {"BoundsThatBecomeEqual", bounded(-0.25, 0.5), bounded(0.25, 0.25), true},
          {"AnotherFactorOfAPart", written(0.5), written(0.75), true},
          {"AnotherDimension", summed(0), summed(1)},
          {"AnotherSlope", leaky(0.1), leaky(0.2)},
          {"ArgumentsTheOtherWayRound", less, other},
          {"AnotherView", view, transposed}};
}

class FoundPrograms : public testing::TestWithParam<TwoGraphs> {};

TEST_P(FoundPrograms, AreThoseThatLoweringMakes) {
  const Tensor x = torch::randn({3, 3}), y = torch::randn({3, 3});
  ProgramTable table;
  const auto before = traced(GetParam().before, x, y), now = traced(GetParam().now, x, y);
  ASSERT_EQ(table.find(before.graph(), kWhole), nullptr);
  table.add({.program = levin::xla::lower(before.graph())});
  const KnownProgram* found = table.find(now.graph(), kWhole);
  ASSERT_EQ(found != nullptr, GetParam().is_found);
  const Program lowered = levin::xla::lower(now.graph());
  if (found == nullptr) return;
  expect_same(found->program, lowered);
  found = table.find(before.graph(), kWhole);  // and back
  ASSERT_NE(found, nullptr);
  expect_same(found->program, levin::xla::lower(before.graph()));
}

INSTANTIATE_TEST_SUITE_P(Table, FoundPrograms, testing::ValuesIn(graph_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ProgramTable, OtherTypesAreOtherPrograms) {
  const Function function = [](const Tensor& x, const Tensor& y) { return x + y; };
  const Tensor square = torch::randn({4, 4});
  ProgramTable table;
  const std::vector<std::pair<Tensor, Tensor>> inputs = {
      {square, torch::randn({4, 4})},
      {square.to(at::kDouble), torch::randn({4, 4})},
      {square, torch::randn({4})},
      {square, torch::randn({4, 4}).t()},
      {torch::randn({2, 4}), torch::randn({2, 4})}};
  for (const auto& [x, y] : inputs) {
    const auto module = traced(function, x, y);
    EXPECT_EQ(table.find(module.graph(), kWhole), nullptr);
    table.add({.program = levin::xla::lower(module.graph())});
  }
  EXPECT_EQ(table.size(), inputs.size());
}

TEST(ProgramTable, KeepsThoseThatWereAskedForLast) {
  const Tensor x = torch::randn({3, 4}), y = torch::randn({3, 4});
  ProgramTable table(2);
  const auto ask = [&](double slope) {
    const auto module = traced(leaky(slope), x, y);
    const bool is_known = table.find(module.graph(), kWhole) != nullptr;
    if (!is_known) table.add({.program = levin::xla::lower(module.graph())});
    return is_known;
  };
  EXPECT_FALSE(ask(0.1));
  EXPECT_FALSE(ask(0.2));
  EXPECT_TRUE(ask(0.1));
  EXPECT_FALSE(ask(0.3));
  EXPECT_TRUE(ask(0.1));
  EXPECT_FALSE(ask(0.2));
  EXPECT_EQ(table.size(), 2U);
}

}  // namespace
