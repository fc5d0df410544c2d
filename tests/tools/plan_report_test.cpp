#include "tools/graph/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <numeric>

#include "tests/support/scratch.h"
#include "tests/tools/step.h"
#include "tools/graph/node_text.h"
#include "tools/graph/program_graph.h"

namespace {

using levin::graph::DeviceDescription;
using levin::graph::find_device;
using levin::graph::GraphModule;
using levin::graph::MemoryUse;
using levin::test::mlp_step;
using levin::tools::in_units;
using levin::tools::Plan;
using levin::tools::plan_of;
using ::testing::HasSubstr;

/// As `levin plan` sees it: from a file, without tensors.
class PlanReport : public ::testing::Test {
 protected:
  PlanReport() {
    const levin::test::Scratch scratch;
    mlp_step(1.0).save(scratch / "step.safetensors", {.state = false});
    step_.emplace(levin::tools::program_graph({(scratch / "step.safetensors").string()}));
    plan_ = plan_of(step_->graph(), device_, 3);
  }

  int64_t at_peak(MemoryUse use) const { return plan_.memory[static_cast<size_t>(use)]; }

  DeviceDescription device_ = *find_device("cpu");
  std::optional<GraphModule> step_;
  Plan plan_;
};

TEST_F(PlanReport, SumsAreThoseOfTheGraph) {
  const auto cost = levin::graph::cost_of(step_->graph(), device_);
  EXPECT_DOUBLE_EQ(plan_.total.flops, cost.flops);
  EXPECT_DOUBLE_EQ(plan_.total.bytes, cost.bytes);
  EXPECT_DOUBLE_EQ(plan_.total.seconds, cost.seconds);
  EXPECT_EQ(plan_.total.num_operators, static_cast<int64_t>(cost.nodes.size()));
  double flops = 0.0;
  for (const auto& phase : plan_.phases) flops += phase.flops;
  EXPECT_DOUBLE_EQ(flops, cost.flops);
}

TEST_F(PlanReport, ForwardAndBackwardHaveTheProductsOfBothLayers) {
  const double first = 2.0 * 16 * 32 * 64, second = 2.0 * 16 * 64 * 8;
  const double forward = plan_.phases[0].flops, backward = plan_.phases[1].flops;
  EXPECT_NEAR(forward, first + second, 2000.0);                  // relu and the loss beside it
  EXPECT_NEAR(backward, first + 2.0 * second, 0.03 * backward);  // none for the input's gradient
}

TEST_F(PlanReport, PeakIsThatOfMemory) {
  EXPECT_EQ(plan_.peak_bytes, levin::graph::memory_of(step_->graph()).peak_bytes);
  EXPECT_EQ(std::accumulate(plan_.memory.begin(), plan_.memory.end(), int64_t{0}),
            plan_.peak_bytes);
}

TEST_F(PlanReport, KindsHoldWhatThoseTensorsDo) {
  const int64_t parameters = 4 * (32 * 64 + 64 + 64 * 8 + 8);
  EXPECT_EQ(plan_.num_parameters, parameters / 4);
  EXPECT_EQ(at_peak(MemoryUse::kParameter), parameters);
  EXPECT_EQ(at_peak(MemoryUse::kInput), 16 * 32 * 4 + 16 * 8);
  EXPECT_EQ(at_peak(MemoryUse::kState), 2 * parameters + 4 + 8);  // a step count, a learning rate
}

TEST_F(PlanReport, LargestComeFirstAndAreNamed) {
  ASSERT_EQ(plan_.largest.size(), 3U);
  EXPECT_EQ(plan_.largest[0].bytes, 32 * 64 * 4);
  EXPECT_EQ(plan_.largest[0].type, "f32[64, 32]");
  EXPECT_EQ(plan_.largest[0].module, "0");
}

TEST_F(PlanReport, TextSaysWhetherItFits) {
  EXPECT_THAT(to_text(plan_), HasSubstr("fits cpu: "));
  DeviceDescription small = device_;
  small.memory_bytes = static_cast<double>(plan_.peak_bytes - 1);
  EXPECT_THAT(to_text(plan_of(step_->graph(), small, 3)), HasSubstr("does not fit cpu: "));
}

TEST_F(PlanReport, JsonHoldsTheSameNumbers) {
  const auto json = nlohmann::json::parse(to_json(plan_));
  EXPECT_EQ(json.at("peak").at("bytes").get<int64_t>(), plan_.peak_bytes);
  EXPECT_EQ(json.at("peak").at("by_kind").at("state").get<int64_t>(), at_peak(MemoryUse::kState));
  EXPECT_EQ(json.at("phases").at("update").at("flops").get<double>(), plan_.phases[2].flops);
  EXPECT_EQ(json.at("peak").at("largest").size(), 3U);
}

TEST(PlanOfOldGradients, CountsThemAsGradientsWhereTheStepAddsToThem) {
  constexpr auto kGradients = static_cast<size_t>(MemoryUse::kGradient);
  constexpr auto kInputs = static_cast<size_t>(MemoryUse::kInput);
  const Plan adding = plan_of(levin::test::step_with_old_gradient(true), *find_device("cpu"), 1);
  EXPECT_EQ(adding.memory[kGradients], 8 * 2 * 4);
  EXPECT_EQ(adding.memory[kInputs], 4 * 8 * 4);
  EXPECT_EQ(adding.memory[static_cast<size_t>(MemoryUse::kValue)], 8 * 2 * 4 + 4 + 4);
  const Plan dropping = plan_of(levin::test::step_with_old_gradient(false), *find_device("cpu"), 1);
  EXPECT_EQ(dropping.memory[kGradients], 8 * 2 * 4);
  EXPECT_EQ(dropping.memory[kInputs], 4 * 8 * 4);
  EXPECT_EQ(dropping.peak_bytes, adding.peak_bytes - 8 * 2 * 4);
}

TEST(InUnits, HasThreeDigitsAndAFactor) {
  EXPECT_EQ(in_units(0.0, "B"), "0 B");
  EXPECT_EQ(in_units(12.0, "B"), "12 B");
  EXPECT_EQ(in_units(999.6e3, "B"), "1.00 MB");
  EXPECT_EQ(in_units(12.345e9, "FLOP"), "12.3 GFLOP");
  EXPECT_EQ(in_units(2.5e-6, "s"), "2.50 us");
  EXPECT_EQ(in_units(124e6, ""), "124 M");
}

}  // namespace
