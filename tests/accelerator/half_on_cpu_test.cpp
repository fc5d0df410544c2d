#include "levin/accelerator/stepping/half_on_cpu.h"

#include <gmock/gmock.h>

#include <fstream>

#include "levin/accelerator/accelerator.h"

namespace {

using levin::HalfInstructions;
using levin::parse_precision;
using levin::warning_of_slow_half;
using ::testing::HasSubstr;

TEST(HalfOnCpu, ACpuWithoutInstructionsIsNamed) {
  const HalfInstructions none = {.bfloat16 = false, .float16 = false};
  const HalfInstructions bfloat16 = {.bfloat16 = true, .float16 = false};
  for (const char* name : {"bf16-mixed", "bf16-true"}) {
    EXPECT_THAT(warning_of_slow_half(parse_precision(name), none),
                HasSubstr("this CPU has no bfloat16 instructions, so " + std::string(name)));
    EXPECT_EQ(warning_of_slow_half(parse_precision(name), bfloat16), "");
  }
  EXPECT_THAT(warning_of_slow_half(parse_precision("16-mixed"), bfloat16),
              HasSubstr("no float16 instructions, so 16-mixed is up to 100 times slower than "
                        "32-true; set --precision bf16-mixed or 32-true"));
  EXPECT_EQ(warning_of_slow_half(parse_precision("16-true"), {}), "");
  for (const char* name : {"32-true", "64-true"}) {
    EXPECT_EQ(warning_of_slow_half(parse_precision(name), none), "") << name;
  }
}

// As the kernel lists them.
TEST(HalfOnCpu, KnowsWhatThisCpuHas) {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(file, line) && flags.empty();) {
    if (line.starts_with("flags")) flags = line + " ";
  }
  if (flags.empty()) GTEST_SKIP() << "no x86";
  const bool has_bfloat16 = flags.find(" avx512_bf16 ") != std::string::npos ||
                            flags.find(" amx_bf16 ") != std::string::npos;
  const HalfInstructions known = HalfInstructions::of_this_cpu();
  EXPECT_EQ(known.bfloat16, has_bfloat16);
  ::testing::internal::CaptureStderr();
  const levin::Accelerator accelerator({.mixed_precision = "bf16", .accelerator = "cpu"});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("this CPU has no bfloat16 instructions") == std::string::npos, has_bfloat16);
}

}  // namespace
