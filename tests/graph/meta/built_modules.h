#pragma once
// A module built without memory and given values, beside the same one built as ever.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "levin/base/random.h"
#include "levin/graph/meta/init_on_meta.h"
#include "tests/graph/against_eager.h"

namespace levin::test {

using MakeModule = std::function<std::shared_ptr<torch::nn::Module>()>;
using NamedTensors = std::map<std::string, at::Tensor>;

inline NamedTensors tensors_by_name(const torch::nn::Module& module) {
  NamedTensors all;
  for (const auto& item : module.named_parameters()) all["p." + item.key()] = item.value();
  for (const auto& item : module.named_buffers()) all["b." + item.key()] = item.value();
  return all;
}

inline void expect_same_tensors(const torch::nn::Module& got, const torch::nn::Module& wanted) {
  const NamedTensors mine = tensors_by_name(got), theirs = tensors_by_name(wanted);
  ASSERT_EQ(mine.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    ASSERT_TRUE(mine.contains(name)) << name;
    const at::Tensor& other = mine.at(name);
    ASSERT_EQ(other.defined(), tensor.defined()) << name;
    if (!tensor.defined()) continue;
    EXPECT_FALSE(other.is_meta()) << name;
    if (other.is_meta()) continue;
    EXPECT_TRUE(same_bits(other, tensor)) << name << "\n" << other << "\nwanted\n" << tensor;
    EXPECT_EQ(other.strides(), tensor.strides()) << name;
    EXPECT_EQ(other.requires_grad(), tensor.requires_grad()) << name;
    EXPECT_EQ(other.is_leaf(), tensor.is_leaf()) << name;
  }
}

inline at::Tensor generator_state() { return levin::random_state().tensor("cpu").clone(); }

/// Values, and where the generator stands afterwards.
inline void expect_builds_as_ever(
    const MakeModule& make, int64_t seed = 5, const std::function<void()>& before = [] {}) {
  torch::manual_seed(seed);
  before();
  const auto ordinary = make();
  const at::Tensor wanted_state = generator_state();
  torch::manual_seed(seed);
  before();
  const auto module = levin::init_on_meta(make);
  EXPECT_TRUE(same_bits(generator_state(), wanted_state));
  levin::materialize(*module);
  EXPECT_TRUE(same_bits(generator_state(), wanted_state));
  EXPECT_FALSE(levin::is_on_meta(*module));
  expect_same_tensors(*module, *ordinary);
}

}  // namespace levin::test
