// The device "xla" where something is wrong.
#include <gmock/gmock.h>

#include "levin/base/error.h"
#include "levin/graph/trace.h"
#include "levin/xla/stablehlo/program.h"
#include "tests/xla/on_both_devices.h"

namespace {

using levin::Error;
using levin::test::xla_runtime;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
namespace xla = levin::xla;

TEST(DeviceXla, IsOpenOnceInAProcess) {
  xla_runtime();
  EXPECT_THAT([] { xla::Runtime::open({.plugin = "cpu"}); },
              ThrowsMessage<Error>(HasSubstr("xla.open")));
}

TEST(DeviceXla, AnOperatorWithoutLoweringIsNamed) {
  const auto module =
      levin::trace([](const at::Tensor& x) { return at::linalg_cholesky(x); }, {at::eye(3)});
  EXPECT_THAT([&] { xla::lower(module.graph()); },
              ThrowsMessage<Error>(AllOf(HasSubstr("xla.lowering"), HasSubstr("cholesky"))));
}

/// What a program was to give is lost with it, what it was to change too; the device goes on.
TEST(DeviceXla, AProgramThatFindsNoMemoryLosesWhatItWasToGive) {
  const at::Device device = xla_runtime().device();
  at::Tensor x = at::ones({8}).to(device);
  const at::Tensor other = at::ones({8}).to(device);
  at::Tensor big;
  EXPECT_THAT(
      [&] {
        big = at::ones({1 << 18, 1 << 20}, at::TensorOptions(device)) + x.sum();
        x.mul_(2);
        xla_runtime().sync();
        xla_runtime().wait();
      },
      ThrowsMessage<Error>(HasSubstr("xla.memory")));
  EXPECT_THAT([&] { (big + 1).sum().item<float>(); }, ThrowsMessage<Error>(HasSubstr("xla.lost")));
  EXPECT_THAT([&] { x.cpu(); }, ThrowsMessage<Error>(HasSubstr("xla.lost")));
  EXPECT_EQ((other + 1).sum().item<float>(), 16.0F);
}

}  // namespace
