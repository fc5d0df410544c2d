#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/accelerator/accelerator.h"
#include "tests/support/child_process.h"
#ifdef __GLIBC__
#include <malloc.h>

namespace {

/// Exit code 0 when a tensor of 16 MB, made after some step freed one as large, takes no new pages.
int takes_no_new_pages() {
  at::set_num_threads(1);
  const levin::Accelerator accelerator({.cpu = true});
  const auto make = [] { return torch::ones({4 << 20}); };
  make();
  const auto before = mallinfo2();
  const at::Tensor again = make();
  const auto after = mallinfo2();
  return before.hblks == after.hblks && before.arena == after.arena ? 0 : 1;
}

TEST(HostMemory, WhatIsFreedIsUsedAgain) {
  EXPECT_EQ(levin::test::run_child(takes_no_new_pages), 0);
}

}  // namespace
#endif
