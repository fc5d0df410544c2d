// The device "xla" where something is wrong.
#include <gmock/gmock.h>

#include "levin/base/error.h"
#include "levin/graph/record/trace.h"
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

TEST(DeviceXla, HoldsNoComplexNumbers) {
  const at::Tensor z = torch::randn({3}, at::kComplexFloat);
  const at::Tensor x = torch::randn({8});
  const at::Device device = xla_runtime().device();
  const auto refusal = ThrowsMessage<Error>(AllOf(HasSubstr("xla.dtype"), HasSubstr("Complex")));
  EXPECT_THAT([&] { z.to(device); }, refusal);
  EXPECT_THAT([&] { z.conj().to(device); }, refusal);
  EXPECT_THAT([&] { torch::zeros({3}, at::TensorOptions(at::kComplexDouble).device(device)); },
              refusal);
  EXPECT_THAT([&] { x.to(device) * z[0]; }, refusal);
  EXPECT_THAT([&] { torch::fft::rfft(x.to(device)); }, refusal);
  EXPECT_THAT([&] { at::view_as_complex(x.view({4, 2}).to(device)); }, refusal);
  // As the message says.
  at::Tensor leaf = x.to(device).requires_grad_();
  torch::fft::rfft(leaf.cpu()).abs().to(device).sum().backward();
  at::Tensor here = x.clone().requires_grad_();
  torch::fft::rfft(here).abs().sum().backward();
  EXPECT_TRUE(leaf.grad().cpu().allclose(here.grad(), 1e-4, 1e-5));
}

TEST(DeviceXla, TakesWhatTheHostHasNegatedAndRefusesSuchViews) {
  const at::Device device = xla_runtime().device();
  const at::Tensor z = torch::randn({4}, at::kComplexFloat);
  const at::Tensor negated = at::imag(z.conj());
  ASSERT_TRUE(negated.is_neg());
  EXPECT_TRUE(negated.to(device).cpu().equal(-at::imag(z)));
  const at::Tensor x = at::ones({4}).to(device);
  EXPECT_TRUE((x + negated).cpu().equal(1 - at::imag(z)));
  EXPECT_TRUE((x + negated[0]).cpu().equal(at::ones({4}) - at::imag(z)[0]));
  at::Tensor y = at::zeros({4}).to(device);
  y.slice(0, 1, 3).copy_(negated.slice(0, 1, 3));
  EXPECT_TRUE(y.cpu().slice(0, 1, 3).equal(-at::imag(z).slice(0, 1, 3)));
  EXPECT_THAT([&] { at::_neg_view(x); }, ThrowsMessage<Error>(HasSubstr("xla.tensor")));
}

TEST(DeviceXla, HoldsNoSparseTensors) {
  const at::Device device = xla_runtime().device();
  const auto refusal = ThrowsMessage<Error>(AllOf(HasSubstr("xla.tensor"), HasSubstr("sparse")));
  EXPECT_THAT([&] { at::eye(3).to_sparse().to(device); }, refusal);
  EXPECT_THAT([&] { at::eye(3).to(device).to_sparse(); }, refusal);
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
