#pragma once
// The most bytes that tensors on the CPU held at one time, counted at LibTorch's allocator.

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace levin::test {

/// For the time of the object, of what is allocated meanwhile; one at a time.
class PeakMemory {
 public:
  PeakMemory() {
    counting().before = c10::GetCPUAllocator();
    now() = most() = 0;
    c10::SetCPUAllocator(&counting(), /*priority=*/100);
  }
  ~PeakMemory() { c10::SetCPUAllocator(counting().before, /*priority=*/100); }
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  static int64_t bytes() { return most(); }

 private:
  struct Block {
    c10::DataPtr data;
    int64_t size;
  };

  struct Counting final : c10::Allocator {
    c10::DataPtr allocate(size_t size) override {
      auto* block = new Block{before->allocate(size), static_cast<int64_t>(size)};
      const int64_t held = now() += block->size;
      most() = std::max<int64_t>(most(), held);
      return {block->data.get(), block, &release, c10::Device(c10::kCPU)};
    }
    static void release(void* context) {
      auto* block = static_cast<Block*>(context);
      now() -= block->size;
      delete block;
    }
    c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
    void copy_data(void* to, const void* from, size_t count) const override {
      default_copy_data(to, from, count);
    }
    c10::Allocator* before = nullptr;
  };

  static Counting& counting() {
    static Counting one;
    return one;
  }
  static std::atomic<int64_t>& now() {
    static std::atomic<int64_t> bytes = 0;
    return bytes;
  }
  static std::atomic<int64_t>& most() {
    static std::atomic<int64_t> bytes = 0;
    return bytes;
  }
};

}  // namespace levin::test
