#include "levin/launch/manifest/tpu_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace levin::launch {
namespace {

using ::testing::HasSubstr;

// "Plan TPUs in GKE": machine type and number of machines of a topology.
TEST(TpuSlice, HasTheHostsThatGkeMakesItOf) {
  struct Case {
    const char* name;
    const char* accelerator;
    const char* machine;
    int64_t num_hosts;
  };
  const Case cases[] = {{"v4:2x2x1", "tpu-v4-podslice", "ct4p-hightpu-4t", 1},
                        {"v4:2x2x2", "tpu-v4-podslice", "ct4p-hightpu-4t", 2},
                        {"v5e:1x1", "tpu-v5-lite-podslice", "ct5lp-hightpu-1t", 1},
                        {"v5e:2x2", "tpu-v5-lite-podslice", "ct5lp-hightpu-4t", 1},
                        {"v5e:2x4", "tpu-v5-lite-podslice", "ct5lp-hightpu-8t", 1},
                        {"v5e:4x4", "tpu-v5-lite-podslice", "ct5lp-hightpu-4t", 4},
                        {"v5p:2x4x4", "tpu-v5p-slice", "ct5p-hightpu-4t", 8},
                        {"v5p:4x8x12", "tpu-v5p-slice", "ct5p-hightpu-4t", 96},
                        {"v6e:2x4", "tpu-v6e-slice", "ct6e-standard-8t", 1},
                        {"v6e:16x16", "tpu-v6e-slice", "ct6e-standard-4t", 64},
                        {"tpu7x:4x4x4", "tpu7x", "tpu7x-standard-4t", 16}};
  for (const auto& [name, accelerator, machine, num_hosts] : cases) {
    const TpuSlice slice = parse_tpu_slice(name);
    EXPECT_EQ(slice.accelerator, accelerator) << name;
    EXPECT_EQ(slice.machine, machine) << name;
    EXPECT_EQ(slice.num_hosts, num_hosts) << name;
    EXPECT_EQ("-" + std::to_string(slice.chips_per_host) + "t",
              slice.machine.substr(slice.machine.rfind('-')));
  }
}

TEST(TpuSlice, IsRefusedByTheTopologiesThereAre) {
  for (const char* name : {"v5e:3x3", "v5e:4x2", "v5e:2x2x1", "v5e:", "v6e:4x", "v6e:x4"}) {
    const std::string error = test::error_of([&] { parse_tpu_slice(name); });
    EXPECT_THAT(error, HasSubstr("wanted one of 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"))
        << name;
  }
  for (const char* name : {"v4:4x4", "v4:1x1x1", "v5p:4x4x6", "v5p:8x4x4", "tpu7x:4x4x4x4",
                           "tpu7x:4x4x0", "v4:4x4x9999999999999999999", "v4:4x4x4x", "v4:-4x4x4"}) {
    const std::string error = test::error_of([&] { parse_tpu_slice(name); });
    EXPECT_THAT(error, HasSubstr("AxBxC of multiples of 4 with A <= B <= C")) << name;
  }
}

TEST(TpuSlice, IsRefusedByTheGenerationsThereAre) {
  for (const char* name : {"v3:2x2", "v5:2x2", "4x4", "", ":"}) {
    const std::string error = test::error_of([&] { parse_tpu_slice(name); });
    EXPECT_THAT(error,
                HasSubstr("launch.tpu: got '" + std::string(name) + "', wanted a generation"));
  }
}

}  // namespace
}  // namespace levin::launch
