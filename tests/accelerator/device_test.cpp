#include "levin/accelerator/engine/device.h"

#include <ATen/Version.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

#include "tests/support/error_of.h"

namespace {

using levin::select_device;
using levin::test::error_of;
using ::testing::StartsWith;

TEST(Device, CpuIsTheCpu) { EXPECT_EQ(select_device("cpu", {}), at::Device(at::kCPU)); }

TEST(Device, AutoIsAGpuWhereThereIsOneElseTheCpu) {
  EXPECT_EQ(select_device("auto", {}).is_cuda(), torch::cuda::is_available());
}

TEST(Device, AGpuIsTheOneOfTheLocalRank) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  const auto last = static_cast<c10::DeviceIndex>(torch::cuda::device_count() - 1);
  EXPECT_EQ(select_device("gpu", {.local_rank = last}), at::Device(at::kCUDA, last));
  EXPECT_THAT(error_of([&] { select_device("gpu", {.local_rank = last + 1}); }),
              StartsWith("accelerator.device: got process " + std::to_string(last + 1)));
}

TEST(Device, AGpuWhereThereIsNoneIsAnErrorThatSaysWhatToUse) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  for (const std::string kind : {"gpu", "cuda"}) {
    EXPECT_THAT(error_of([&] { select_device(kind, {}); }),
                StartsWith("accelerator.device: got '" + kind + "', but LibTorch finds no CUDA"));
  }
}

TEST(Device, OnlyABuildWithoutCudaIsCalledOne) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  const std::string error = error_of([] { select_device("gpu", {}); });
  const bool is_cuda_build = at::show_config().find("CUDA_VERSION=") != std::string::npos;
  EXPECT_EQ(error.find("it was built without CUDA") == std::string::npos, is_cuda_build) << error;
}

TEST(Device, AnUnknownKindIsAnErrorThatListsThoseThereAre) {
  for (const std::string kind : {"tpu", "", "CPU", "cuda:0"}) {
    EXPECT_THAT(
        error_of([&] { select_device(kind, {}); }),
        StartsWith("accelerator.device: got '" + kind + "', wanted auto, cpu, gpu, tpu or xla"));
  }
}

}  // namespace
