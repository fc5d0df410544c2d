#include "levin/base/memory/host_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

namespace levin::detail {
namespace {

constexpr uintptr_t kAlignment = 64;  // c10's gAlignment

thread_local TensorMemory* memory_of_scope = nullptr;

/// The block of malloc that `data` lies in, which is noted in front of it.
void*& block_of(void* data) { return static_cast<void**>(data)[-1]; }

void free_data(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  std::free(block_of(data));
}

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    if (memory_of_scope != nullptr) {
      if (c10::DataPtr data = of_scope(num_bytes)) return data;
    }
    void* const data = num_bytes == 0 ? nullptr : allocate_some(num_bytes);
    return {data, data, &free_data, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_data; }

  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static c10::DataPtr of_scope(size_t num_bytes) {
    struct Paused {  // the scope's memory itself allocates here
      TensorMemory* memory = std::exchange(memory_of_scope, nullptr);
      ~Paused() { memory_of_scope = memory; }
    };
    return Paused().memory->allocate(num_bytes);
  }

  static void* allocate_some(size_t num_bytes) {
    // A block begins at a multiple of 16, so that 16 to 64 bytes of it come before the data.
    void* const block =
        num_bytes <= SIZE_MAX - kAlignment ? std::malloc(num_bytes + kAlignment) : nullptr;
    if (block == nullptr) c10::profiledCPUMemoryReporter().OutOfMemory(num_bytes);
    TORCH_CHECK(block != nullptr,
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", num_bytes,
                " bytes; make the batch or the network smaller");
    const uintptr_t before = kAlignment - reinterpret_cast<uintptr_t>(block) % kAlignment;
    void* const data = static_cast<char*>(block) + before;
    block_of(data) = block;
    c10::profiledCPUMemoryReporter().New(data, num_bytes);
    return data;
  }
};

HostAllocator& host_allocator() {
  static auto* const allocator = new HostAllocator;  // tensors of static variables outlive it else
  return *allocator;
}

}  // namespace

void use_host_allocator() {
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return;
  if (std::getenv("THP_MEM_ALLOC_ENABLE") != nullptr) return;
  c10::SetCPUAllocator(&host_allocator());
}

void use_no_host_allocator() {
  if (c10::GetCPUAllocator() == &host_allocator()) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator());
  }
}

TensorMemoryScope::TensorMemoryScope(TensorMemory& memory)
    : outer_(std::exchange(memory_of_scope, &memory)) {}

TensorMemoryScope::~TensorMemoryScope() { memory_of_scope = outer_; }

}  // namespace levin::detail
