#include "levin/data/batch_pool.h"

#include <ATen/Context.h>

#include <atomic>

namespace levin::detail {
namespace {

bool is_own_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.is_cpu() &&
         tensor.has_storage() && tensor.storage().use_count() == 1 &&
         !(at::hasCUDA() && tensor.is_pinned());
}

at::Tensor handle(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

bool is_free(const at::Tensor& tensor) { return tensor.storage().use_count() == 1; }

}  // namespace

BatchPool::BatchPool(size_t capacity) : capacity_(capacity) { kept_.reserve(capacity + 1); }

Batch BatchPool::memory_of(const Batch& batch) {
  Batch memory;
  for (const auto& [name, tensor] : batch) {
    if (is_own_memory(tensor)) memory.set(name, handle(tensor));
  }
  return memory;
}

void BatchPool::keep(Batch memory) {
  if (memory.empty()) return;
  if (kept_.size() == capacity_) kept_.erase(kept_.begin());
  kept_.push_back(std::move(memory));
}

Batch BatchPool::take() {
  for (size_t i = kept_.size(); i-- > 0;) {
    Batch free;
    for (const auto& [name, tensor] : kept_[i]) {
      if (is_free(tensor)) free.set(name, tensor);
    }
    if (free.empty()) continue;
    // Only the pool holds it, so nobody can take hold of it again; the fence orders what the last
    // reader did before the writing to come (LibTorch counts with release, and reads relaxed).
    std::atomic_thread_fence(std::memory_order_acquire);
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    return free;
  }
  return {};
}

}  // namespace levin::detail
