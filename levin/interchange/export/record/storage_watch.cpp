#include "levin/interchange/export/record/storage_watch.h"

#include "levin/files/checksum.h"

namespace levin::interchange {
namespace {

/// nullptr where the host cannot write to it.
c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu()) return nullptr;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return storage->nbytes() == 0 || storage->data() == nullptr ? nullptr : storage;
}

uint64_t checksum_of(const c10::StorageImpl& storage) {
  return files::xxh3({static_cast<const std::byte*>(storage.data()), storage.nbytes()});
}

}  // namespace

StorageWatch::Contents StorageWatch::look(const at::Tensor& tensor) const {
  const Watched* watched = find(tensor);
  if (watched == nullptr) return Contents::kAsWritten;
  if (checksum_of(*storage_of(tensor)) == watched->checksum) {
    return watched->is_uninitialized ? Contents::kUnwritten : Contents::kAsWritten;
  }
  return watched->is_independent ? Contents::kFilledByHost : Contents::kChangedByHost;
}

const StorageWatch::Watched* StorageWatch::find(const at::Tensor& tensor) const {
  const auto found = watched_.find(storage_of(tensor));
  return found == watched_.end() || found->second.storage.expired() ? nullptr : &found->second;
}

void StorageWatch::note(const at::Tensor& tensor, bool is_independent, bool is_uninitialized) {
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage == nullptr) return;
  auto weak = c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl());
  watched_.insert_or_assign(
      storage, Watched{std::move(weak), checksum_of(*storage), is_independent, is_uninitialized});
}

bool StorageWatch::is_independent(const at::Tensor& tensor) const {
  const Watched* watched = find(tensor);
  return watched != nullptr && watched->is_independent;
}

}  // namespace levin::interchange
