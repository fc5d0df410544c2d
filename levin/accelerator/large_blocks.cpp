#include "levin/accelerator/large_blocks.h"

#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <memory>

namespace levin::detail {
namespace {

constexpr size_t kAlignment = 64;  // c10's gAlignment
constexpr size_t kLarge = 1 << 20;

void free_block(void* block) {
  c10::profiledCPUMemoryReporter().Delete(block);
  std::free(block);
}

class LargeBlocks final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    if (num_bytes < kLarge) return c10::GetDefaultCPUAllocator()->allocate(num_bytes);
    size_t room = num_bytes + kAlignment;
    void* const block = std::malloc(room);
    // The error is LibTorch's own.
    if (block == nullptr) return c10::GetDefaultCPUAllocator()->allocate(num_bytes);
    c10::profiledCPUMemoryReporter().New(block, num_bytes);
    void* data = block;
    std::align(kAlignment, num_bytes, data, room);
    return {data, block, &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get_deleter() == &free_block || data.get() == data.get_context();
  }

  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

LargeBlocks& large_blocks() {
  static auto* const blocks = new LargeBlocks;  // tensors of static variables outlive it else
  return *blocks;
}

}  // namespace

void use_large_blocks() {
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return;
  c10::SetCPUAllocator(&large_blocks());
}

void use_no_large_blocks() {
  if (c10::GetCPUAllocator() == &large_blocks()) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  }
}

}  // namespace levin::detail
