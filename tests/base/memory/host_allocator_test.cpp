#include "levin/base/memory/host_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using levin::detail::TensorMemory;
using levin::detail::TensorMemoryScope;

/// Gives tensors of 4 KB its own memory, once, and has nothing for others.
class OnePlace final : public TensorMemory {
 public:
  at::DataPtr allocate(size_t num_bytes) override {
    asked.push_back(num_bytes);
    if (throws) throw std::runtime_error("no place");
    at::zeros({5});  // is the allocator's
    if (num_bytes != place.size() || is_given) return {};
    is_given = true;
    return {place.data(), this, [](void* self) { static_cast<OnePlace*>(self)->is_given = false; },
            at::kCPU};
  }

  alignas(64) std::array<std::byte, 4096> place = {};
  std::vector<size_t> asked;
  bool is_given = false;
  bool throws = false;
};

class HostAllocator : public ::testing::Test {
 protected:
  void SetUp() override { levin::detail::use_host_allocator(); }
  void TearDown() override { levin::detail::use_no_host_allocator(); }

  bool lies_in_place(const at::Tensor& tensor) const {
    return tensor.data_ptr() == memory.place.data();
  }

  OnePlace memory;
};

TEST_F(HostAllocator, AsksTheMemoryOfTheScopeFirst) {
  at::Tensor first, second, other;
  {
    const TensorMemoryScope scope(memory);
    first = torch::ones({1024});
    second = torch::ones({1024});
    other = torch::ones({16});
  }
  EXPECT_EQ(memory.asked, (std::vector<size_t>{4096, 4096, 64}));
  EXPECT_TRUE(lies_in_place(first));
  EXPECT_FALSE(lies_in_place(second));
  EXPECT_EQ(first.sum().item<double>() + second.sum().item<double>() + other.sum().item<double>(),
            2064);
  EXPECT_FALSE(lies_in_place(torch::ones({1024})));  // there is no scope any more
  first.reset();
  EXPECT_FALSE(memory.is_given);
}

TEST_F(HostAllocator, AsksForItsThreadAlone) {
  const TensorMemoryScope scope(memory);
  std::thread([&] { EXPECT_FALSE(lies_in_place(torch::ones({1024}))); }).join();
  EXPECT_TRUE(memory.asked.empty());
}

TEST_F(HostAllocator, AsksTheInnermostScope) {
  OnePlace inner;
  const TensorMemoryScope scope(memory);
  {
    const TensorMemoryScope nested(inner);
    const at::Tensor tensor = torch::ones({1024});
    EXPECT_EQ(tensor.data_ptr(), inner.place.data());
  }
  EXPECT_TRUE(lies_in_place(torch::ones({1024})));
}

TEST_F(HostAllocator, AsksAgainAfterAnException) {
  const TensorMemoryScope scope(memory);
  memory.throws = true;
  EXPECT_THROW(torch::ones({1024}), std::runtime_error);
  memory.throws = false;
  EXPECT_TRUE(lies_in_place(torch::ones({1024})));
}

TEST_F(HostAllocator, OfLibTorchAsksNobody) {
  levin::detail::use_no_host_allocator();
  const TensorMemoryScope scope(memory);
  EXPECT_FALSE(lies_in_place(torch::ones({1024})));
  EXPECT_TRUE(memory.asked.empty());
}

TEST_F(HostAllocator, GivesPlacesOfTensors) {
  for (const int64_t count : {1, 3, 16, 1000, 100000}) {
    const at::Tensor tensor = torch::ones({count});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0U);
    EXPECT_EQ(tensor.sum().item<double>(), static_cast<double>(count));
  }
  EXPECT_EQ(torch::empty({0}).data_ptr(), nullptr);
}

}  // namespace
