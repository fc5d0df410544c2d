#include "levin/accelerator/engine/host_memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "tests/support/child_process.h"
#include "tests/support/scratch.h"

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
  options.engine.compile = "replay";
  const levin::Accelerator accelerator(options);
  for (int i = 0; i < 20; ++i) torch::ones({4 << 20});
  const int64_t before = page_faults();
  torch::ones({4 << 20});
  return static_cast<int>((page_faults() - before) / 100);
}

/// Thousands of page faults of twenty tensors of 16 MB, one after the other, between which small
/// blocks come and go that are kept for a while.
int faults_among_small_blocks() {
  at::set_num_threads(1);
  const levin::Accelerator accelerator({.cpu = true});
  std::vector<std::unique_ptr<char[]>> kept(4000);
  int64_t before = 0;
  for (size_t i = 0; i < 30; ++i) {
    if (i == 10) before = page_faults();
    const auto renew = [&](size_t first, size_t most) {
      for (size_t k = 0; k < 200; ++k) {
        const size_t bytes = 24 + (k * 37 + i * 11) % most;
        kept[(first + k * 13 + i * 401) % kept.size()] = std::make_unique<char[]>(bytes);
      }
    };
    const at::Tensor gradient = torch::ones({4 << 20});
    renew(0, 400);
    if (gradient.data_ptr<float>()[i] != 1) return 255;
  }
  return static_cast<int>((page_faults() - before) / 1000);
}

/// 0: LibTorch's allocator is in place before and after an engine, tensors outlive it, and what does
/// not fit is LibTorch's error.
int allocator_after_an_engine() {
  at::set_num_threads(1);
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return 1;
  at::Tensor large, other;
  {
    const levin::Accelerator accelerator({.cpu = true});
    large = torch::arange(1 << 19);
    for (const int64_t numel : {1, 2, 3, 17, 100, 4097}) {
      if (reinterpret_cast<uintptr_t>(torch::ones({numel}).data_ptr()) % 64 != 0) return 2;
    }
    if (torch::empty({0}).data_ptr() != nullptr) return 5;
    void* const raw = c10::GetCPUAllocator()->raw_allocate(1000);
    c10::GetCPUAllocator()->raw_deallocate(raw);
    try {
      torch::empty({int64_t{1} << 46});
      return 6;
    } catch (const c10::Error& error) {
      if (std::string(error.what()).find("can't allocate memory") == std::string::npos) return 7;
    }
    other = at::_lazy_clone(large);
  }
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return 3;
  other.add_(1);
  large.resize_({1 << 20});
  const bool right = large[(1 << 19) - 1].item<int64_t>() == (1 << 19) - 1 &&
                     other[(1 << 19) - 1].item<int64_t>() == 1 << 19;
  return right ? 0 : 4;
}

struct OwnAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    return c10::GetDefaultCPUAllocator()->allocate(bytes);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

/// 0: the program's allocator is asked while an engine is there, and after.
int allocator_of_the_program() {
  at::set_num_threads(1);
  static OwnAllocator own;
  c10::SetCPUAllocator(&own);
  {
    const levin::Accelerator accelerator({.cpu = true});
    if (c10::GetCPUAllocator() != &own) return 1;
  }
  return c10::GetCPUAllocator() == &own ? 0 : 2;
}

TEST(HostMemory, LibTorchsAllocatorComesBack) {
  EXPECT_EQ(levin::test::run_child(allocator_after_an_engine), 0);
}

TEST(HostMemory, TheProgramsAllocatorStays) {
  EXPECT_EQ(levin::test::run_child(allocator_of_the_program), 0);
}

#ifdef __GLIBC__
TEST(HostMemory, ALargeTensorLiesWhereTheLastOneDid) {
  EXPECT_LE(levin::test::run_child(faults_among_small_blocks), 2);
}

TEST(HostMemory, BeforeAReplayNothingIsKept) {
  EXPECT_GE(levin::test::run_child(faults_before_a_replay), 40);
}

TEST(HostMemory, WhatIsFreedIsUsedAgain) {
  EXPECT_LE(levin::test::run_child(faults_of_the_last), 5);
}

// In a process of its own: what hundreds of other tests leave in the heap cannot all be given back.
TEST(HostMemory, DISABLED_AfterReturnThereAreFaults) { EXPECT_GE(faults_after_return(), 40); }

TEST(HostMemory, WhatIsReturnedIsFetchedAnew) {
  const levin::test::Scratch scratch;
  EXPECT_EQ(levin::test::run_in_own_process("HostMemory.DISABLED_AfterReturnThereAreFaults",
                                            scratch.path() / "words"),
            0)
      << levin::test::get(scratch.path() / "words");
}
#endif

}  // namespace
