#include "levin/data/loading/batch_pool.h"

#include <ATen/Context.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

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

BatchPool::BatchPool(size_t capacity) : capacity_(capacity) {}

Batch BatchPool::memory_of(const Batch& batch) {
  Batch memory;
  for (const auto& [name, tensor] : batch) {
    if (is_own_memory(tensor)) memory.set(name, handle(tensor));
  }
  return memory;
}

void BatchPool::keep(const Batch& memory) {
  for (const auto& [name, tensor] : memory) {
    auto field = std::ranges::find(fields_, name, &Field::name);
    if (field == fields_.end()) field = fields_.insert(field, {.name = name});
    if (field->kept.size() == capacity_) field->kept.erase(field->kept.begin());
    field->kept.push_back(tensor);
  }
}

Batch BatchPool::take() {
  Batch taken;
  for (auto& [name, kept] : fields_) {
    const auto latest = std::ranges::find_if(kept.rbegin(), kept.rend(), is_free);
    if (latest == kept.rend()) continue;
    taken.set(name, std::move(*latest));
    kept.erase(std::next(latest).base());
  }
  // Only the pool held them, so nobody can take hold of them again; the fence orders what the last
  // readers did before the writing to come (LibTorch counts with release, and reads relaxed).
  std::atomic_thread_fence(std::memory_order_acquire);
  return taken;
}

}  // namespace levin::detail
