#pragma once

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "levin/module/parameters.h"

namespace levin::test {

/// Parameters and buffers, bit for bit.
inline void expect_same_weights(const torch::nn::Module& a, const torch::nn::Module& b) {
  const State mine = module_state(a);
  const State theirs = module_state(b);
  ASSERT_EQ(mine.values().size(), theirs.values().size());
  for (const auto& [name, value] : mine.values()) {
    EXPECT_TRUE(at::equal(mine.tensor(name), theirs.tensor(name))) << name;
  }
}

}  // namespace levin::test
