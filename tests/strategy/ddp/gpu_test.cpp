// ddp over GPUs, where there are two of them and levin was built with NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/comm/nccl/nccl.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "tests/support/gpus.h"
#include "tests/support/world.h"

namespace {

using levin::comm::ProcessGroup;
using ::testing::Each;

at::Tensor trained_on(const at::Device& device, const ProcessGroup& group) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 3));
  net->to(at::kDouble);
  const levin::DdpOptions options = {.bucket_cap_mb = 1e-4, .first_bucket_mb = 1e-4};
  const auto strategy = levin::make_strategy("ddp", {.group = group, .ddp = options});
  strategy->setup(*net, device);
  const auto optimizer =
      strategy->build_optimizer(levin::optim::adam({.lr = 0.1}), levin::named_parameters(*net));
  for (int64_t step = 0; step < 10; ++step) {
    const auto seed = static_cast<uint64_t>(100 * step + group.rank());
    const at::Tensor input =
        torch::randn({4, 6}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
    optimizer->zero_grad();
    strategy->backward(net->forward(input.to(device)).square().mean(), true);
    strategy->update(*optimizer);
  }
  return torch::nn::utils::parameters_to_vector(net->parameters()).detach().cpu();
}

TEST(DdpOnGpus, EqualsDdpOnCpus) {
  if (!levin::comm::has_nccl() || levin::test::num_gpus() < 2) {
    GTEST_SKIP() << "wants NCCL and 2 GPUs";
  }
  const auto words = levin::test::run_world(2, [](int64_t rank, const auto&) {
    auto group = ProcessGroup::connect(levin::comm::read_environment(), {.on_gpu = true});
    const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(rank));
    const at::Tensor off = (trained_on(gpu, group) - trained_on(at::kCPU, group)).abs().max();
    return off.item<double>() <= 1e-9 ? "" : c10::str("off by ", off);
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
