#include "levin/accelerator/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "tests/support/child_process.h"

namespace {

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// Hundreds of page faults of making a tensor of 16 MB (4096 pages) after others of that size were
/// freed.
int faults_of_the_last() {
  at::set_num_threads(1);
  const levin::Accelerator accelerator({.cpu = true});
  for (int i = 0; i < 20; ++i) torch::ones({4 << 20});
  const int64_t before = page_faults();
  torch::ones({4 << 20});
  return static_cast<int>((page_faults() - before) / 100);
}

/// As before, after the freed memory has been given back.
int faults_after_return() {
  at::set_num_threads(1);
  const levin::Accelerator accelerator({.cpu = true});
  for (int i = 0; i < 20; ++i) torch::ones({4 << 20});
  levin::detail::return_freed_memory();
  const int64_t before = page_faults();
  torch::ones({4 << 20});
  return static_cast<int>((page_faults() - before) / 100);
}

/// Of an engine that is to replay steps.
int faults_before_a_replay() {
  at::set_num_threads(1);
  levin::AcceleratorOptions options;
  options.cpu = true;
  options.compile = "replay";
  const levin::Accelerator accelerator(options);
  for (int i = 0; i < 20; ++i) torch::ones({4 << 20});
  const int64_t before = page_faults();
  torch::ones({4 << 20});
  return static_cast<int>((page_faults() - before) / 100);
}

#ifdef __GLIBC__
TEST(HostMemory, BeforeAReplayNothingIsKept) {
  EXPECT_GE(levin::test::run_child(faults_before_a_replay), 40);
}

TEST(HostMemory, WhatIsFreedIsUsedAgain) {
  EXPECT_LE(levin::test::run_child(faults_of_the_last), 5);
}

TEST(HostMemory, WhatIsReturnedIsFetchedAnew) {
  EXPECT_GE(levin::test::run_child(faults_after_return), 40);
}
#endif

}  // namespace
