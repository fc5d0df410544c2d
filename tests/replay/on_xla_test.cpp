// The rows on an XLA device: with and without replay as on the CPU, to the tolerance of other
// kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>

#include "levin/xla/device/runtime.h"
#include "tests/replay/run.h"
#include "tests/support/cpu_plugin.h"

namespace {

using levin::test::difference;
using levin::test::FunctionCase;
using levin::test::Outcome;
using levin::test::run;
using levin::test::Settings;
using levin::test::StepCase;
using levin::test::Wanted;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kTolerance = 1e-3;

Outcome first_value(const Outcome& outcome) { return {.values = {outcome.values.front()}}; }

/// Random numbers of the device are others than the CPU's. Nothing is replayed in the first step,
/// which shows it where the row seeds by itself.
template <class Case>
bool draws(const Case& row, const Outcome& on_cpu, const Outcome& on_xla) {
  if (!difference(first_value(on_cpu), first_value(on_xla), kTolerance).empty()) return true;
  return !difference(on_cpu, run(row, {{"compile", "no"}, {"seed", "12"}})).empty();
}

template <class Case>
Outcome on_xla(const Case& row, const std::string& compile) {
  return run(row, {{"accelerator", "xla"}, {"pjrt_plugin", "cpu"}, {"compile", compile}});
}

/// Autograd counts the devices at the process's first backward pass; rows walk back by themselves.
void let_autograd_see_the_device() {
  static const bool done = [] {
    const auto runtime = levin::xla::Runtime::open({.plugin = "cpu"});
    at::ones({1}).requires_grad_().sum().backward();
    return true;
  }();
  static_cast<void>(done);
}

/// Of code that reads the CPU's memory, names its device, or keeps modules that nobody moves.
bool is_not_for_devices(const std::string& error) {
  return ::testing::Matches(::testing::AnyOf(
      HasSubstr("its data is not allocated"), HasSubstr("XLA devices hold real numbers"),
      HasSubstr("to be on the same device"), HasSubstr("should be a 1D CPU int64 tensor"),
      HasSubstr("expected device cpu but got xla:0")))(error);
}

template <class Case>
void expect_as_on_the_cpu(const Case& row) {
  if constexpr (requires { row.not_on_xla; }) {
    if (!row.not_on_xla.empty()) GTEST_SKIP() << row.not_on_xla;
  }
  let_autograd_see_the_device();
  const Outcome on_cpu = run(row, {{"compile", "no"}});
  const Outcome plain = on_xla(row, "no");
  if (is_not_for_devices(plain.error)) {
    GTEST_SKIP() << "it is not written for devices: "
                 << plain.error.substr(0, plain.error.find('\n'));
  }
  if constexpr (requires { row.error_on_xla; }) {
    if (!row.error_on_xla.empty()) {
      EXPECT_THAT(plain.error, StartsWith(row.error_on_xla + ": ")) << "without replay";
      EXPECT_THAT(on_xla(row, "replay").error, StartsWith(row.error_on_xla + ": "));
      return;
    }
  }
  ASSERT_EQ(plain.error, "") << "without replay";
  const bool is_random = draws(row, on_cpu, plain);
  SCOPED_TRACE(levin::test::to_string(row.category));
  if (!is_random) {
    EXPECT_EQ(difference(on_cpu, plain, kTolerance), "") << "without replay";
  }
  const Outcome replayed = on_xla(row, "replay");
  const std::string differs = difference(is_random ? plain : on_cpu, replayed, kTolerance);
  if (row.wanted == Wanted::kFoundLater) {
    EXPECT_TRUE(differs.empty() || !replayed.report.refusals.empty()) << "silently: " << differs;
  } else {
    EXPECT_EQ(differs, "") << "with replay";
  }
  const auto& report = replayed.report;
  EXPECT_TRUE(report.replayed + report.checked > 0 || !report.refusals.empty())
      << "it is neither replayed nor refused";
}

class StepsOnXla : public testing::TestWithParam<StepCase> {};
class FunctionsOnXla : public testing::TestWithParam<FunctionCase> {};

TEST_P(StepsOnXla, EqualTheCpu) {
  LEVIN_NEEDS_CPU_PLUGIN();
  expect_as_on_the_cpu(GetParam());
}
TEST_P(FunctionsOnXla, EqualTheCpu) {
  LEVIN_NEEDS_CPU_PLUGIN();
  expect_as_on_the_cpu(GetParam());
}

/// Each eighth; all with LEVIN_SOAK=1, which takes minutes of XLA's compiler.
std::vector<StepCase> steps_to_run() {
  std::vector<StepCase> all = levin::test::step_cases(), some;
  if (std::getenv("LEVIN_SOAK") != nullptr) return all;
  for (size_t i = 0; i < all.size(); i += 8) some.push_back(std::move(all[i]));
  return some;
}

INSTANTIATE_TEST_SUITE_P(Table, StepsOnXla, testing::ValuesIn(steps_to_run()),
                         levin::test::row_name);
INSTANTIATE_TEST_SUITE_P(Table, FunctionsOnXla, testing::ValuesIn(levin::test::function_cases()),
                         levin::test::row_name);

}  // namespace
