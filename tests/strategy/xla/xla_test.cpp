// The strategy table on the CPU plugin: 1, 2, 4 and 8 devices give the losses of one process that
// knows nothing of XLA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/graph/compile/compiled.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "levin/xla/device/runtime.h"
#include "levin/xla/device/step.h"
#include "tests/strategy/xla/training.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/replayed.h"
#include "tests/support/variable.h"
#include "tests/support/world.h"

namespace {

using levin::test::num_replayed;
using levin::test::Task;
using levin::test::Training;
using levin::test::XlaCase;
namespace xla = levin::xla;

constexpr int64_t kXlaSteps = 50;

class XlaTable : public ::testing::TestWithParam<XlaCase> {};

TEST_P(XlaTable, DevicesTogetherEqualOneProcessWithoutXla) {
  LEVIN_NEEDS_CPU_PLUGIN();
  std::vector<double> alone;
  Training single(GetParam());
  for (int64_t i = 0; i < kXlaSteps; ++i) alone.push_back(single.step(i));
  for (const int64_t count : {1, 2, 4, 8}) {
    Training spread(GetParam(), xla::Runtime::open({.plugin = "cpu", .num_devices = count}));
    for (int64_t i = 0; i < kXlaSteps; ++i) {
      ASSERT_NEAR(spread.step(i), alone[i], 1e-5) << count << " devices, step " << i;
    }
    EXPECT_EQ(spread.runtime->report().host_fallbacks, 0);
    EXPECT_GE(num_replayed(spread.compiled->report()), kXlaSteps - 4) << count << " devices";
    EXPECT_THAT(spread.compiled->report().refusals, ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Xla, XlaTable,
                         ::testing::Values(XlaCase{"MlpSgd", levin::test::mlp, "sgd"},
                                           XlaCase{"MlpAdam", levin::test::mlp, "adam"},
                                           XlaCase{"MlpAdamW", levin::test::mlp, "adamw"},
                                           XlaCase{"CnnSgd", levin::test::cnn, "sgd"},
                                           XlaCase{"CnnAdam", levin::test::cnn, "adam"},
                                           XlaCase{"CnnAdamW", levin::test::cnn, "adamw"},
                                           XlaCase{"LstmSgd", levin::test::lstm, "sgd"},
                                           XlaCase{"LstmAdam", levin::test::lstm, "adam"},
                                           XlaCase{"LstmAdamW", levin::test::lstm, "adamw"},
                                           XlaCase{"GptSgd", levin::test::gpt, "sgd"},
                                           XlaCase{"GptAdam", levin::test::gpt, "adam"},
                                           XlaCase{"GptAdamW", levin::test::gpt, "adamw"}),
                         [](const auto& info) { return info.param.name; });

/// Of a fixed shape: what the first two steps compiled does for all that come.
TEST(XlaSteps, NothingIsCompiledAfterTheSecondOfAThousand) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const XlaCase c{"MlpAdam", levin::test::mlp, "adam"};
  Training training(c, xla::Runtime::open({.plugin = "cpu", .num_devices = 2}));
  const auto programs = [&] {
    const xla::RuntimeReport report = training.runtime->report();
    return report.compilations + report.disk_cache_hits;
  };
  training.step(0);
  training.step(1);
  const int64_t after_two = programs();
  for (int64_t i = 2; i < 1000; ++i) training.step(i % 20);
  EXPECT_EQ(programs(), after_two);
}

std::shared_ptr<xla::Runtime> devices(int64_t count) {
  return count == 0 ? nullptr : xla::Runtime::open({.plugin = "cpu", .num_devices = count});
}

/// The losses of ten steps, the last five of which another training makes.
std::vector<double> interrupted_losses(const XlaCase& c, int64_t before, int64_t after) {
  std::vector<double> losses;
  const levin::test::Scratch scratch;
  levin::State state;
  {
    Training first(c, devices(before));
    for (int64_t i = 0; i < 5; ++i) losses.push_back(first.step(i));
    state = first.saved(scratch);
  }
  Training second(c, devices(after));
  second.load(state);
  for (int64_t i = 5; i < 10; ++i) losses.push_back(second.step(i));
  return losses;
}

/// 0 devices: without XLA.
TEST(XlaCheckpoint, IsReadOnAnyDevicesAndWithoutXla) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const XlaCase c{"CnnAdamW", levin::test::cnn, "adamw"};
  std::vector<double> whole;
  Training single(c);
  for (int64_t i = 0; i < 10; ++i) whole.push_back(single.step(i));
  for (const auto& [before, after] : {std::pair(2, 0), std::pair(0, 2), std::pair(2, 1)}) {
    EXPECT_THAT(interrupted_losses(c, before, after),
                ::testing::Pointwise(::testing::DoubleNear(1e-5), whole))
        << before << " devices, then " << after;
  }
}

TEST(XlaCheckpoint, AResumedRunRepeatsBitForBit) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const XlaCase c{"MlpAdam", levin::test::mlp, "adam"};
  std::vector<double> whole;
  {
    Training training(c, devices(2));
    for (int64_t i = 0; i < 10; ++i) whole.push_back(training.step(i));
  }
  EXPECT_EQ(interrupted_losses(c, 2, 2), whole);
}

/// The host looks at a value in the middle of a step, another one each time: it goes on as it is, and says so.
TEST(XlaSteps, AnItemInTheMiddleIsNamedAndTrainingGoesOn) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const XlaCase c{"Mlp", levin::test::mlp, "sgd"};
  Training single(c);
  Training training(c, devices(2));
  training.task.loss = [loss = training.task.loss](const at::Tensor& x) {
    const at::Tensor whole = loss(x);
    EXPECT_GT(whole.item<double>(), 0.0);
    return whole;
  };
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(training.step(i), single.step(i), 1e-5);
  EXPECT_THAT(training.compiled->report().refusals,
              ::testing::ElementsAre(::testing::HasSubstr("the host reads the result of")));
}

/// Each step has another shape: each is compiled, each is right, and there is a warning. Programs
/// that lie on disk cost nothing to warn of.
TEST(XlaSteps, OfEverOtherShapesAreCompiledEachWithAWarning) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const levin::test::Variable no_cache("LEVIN_XLA_CACHE", "off");
  const XlaCase c{"Mlp", levin::test::mlp, "sgd"};
  Training single(c);
  Training training(c, devices(2));
  const auto shorter = [](Task& task) {
    task.inputs = [inputs = task.inputs](int64_t step) {
      return inputs(step).narrow(0, 0, levin::test::kGlobalBatch - step).clone();
    };
  };
  shorter(single.task);
  shorter(training.task);
  ::testing::internal::CaptureStderr();
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(training.step(i), single.step(i), 1e-5);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("programs were compiled within"));
  EXPECT_THAT(xla::metrics_report(), ::testing::HasSubstr("took x tensor<"));
}

TEST(XlaStrategy, ATensorOfAClosedDeviceIsAnError) {
  EXPECT_THAT([] { at::empty({2}, at::TensorOptions(at::Device(at::kXLA, 0))); },
              ::testing::ThrowsMessage<levin::Error>(::testing::HasSubstr("xla.closed")));
}

TEST(XlaStrategy, WantsTheDeviceXla) {
  EXPECT_THAT([] { levin::make_strategy("xla", {}); },
              ::testing::ThrowsMessage<levin::Error>(::testing::HasSubstr("strategy.xla")));
}

}  // namespace
