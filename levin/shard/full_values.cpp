#include "levin/shard/full_values.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "levin/base/memory/refused_pointer.h"

namespace levin::shard {
namespace {

/// Memory within that of a tensor, which it keeps alive.
c10::DataPtr point_into(const at::Tensor& memory, int64_t element) {
  auto* data = static_cast<std::byte*>(const_cast<void*>(memory.const_data_ptr()));
  auto* keeper = new at::Tensor(memory);
  return {data + element * memory.element_size(), keeper,
          [](void* context) { delete static_cast<at::Tensor*>(context); }, memory.device()};
}

c10::DataPtr nothing(at::Device device) {
  return {nullptr, nullptr, &c10::detail::deleteNothing, device};
}

c10::Storage storage_without_memory(at::Device device) {
  return c10::Storage(c10::Storage::use_byte_size_t(), 0, nothing(device), /*allocator=*/nullptr,
                      /*resizable=*/false);
}

at::Tensor tensor_on(const c10::Storage& storage, at::IntArrayRef sizes, at::IntArrayRef strides,
                     const at::TensorOptions& options) {
  at::Tensor tensor = at::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

}  // namespace

FullValues::FullValues(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options)
    : FullValues(storage_without_memory(options.device()), sizes, strides, options) {}

FullValues::FullValues(const c10::Storage& storage, at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options)
    : tensor_(tensor_on(storage, sizes, strides, options)) {}

at::Tensor FullValues::alias(at::IntArrayRef sizes, at::IntArrayRef strides) const {
  return tensor_on(tensor_.storage(), sizes, strides, tensor_.options());
}

void FullValues::attach(const at::Tensor& memory, int64_t element) const {
  c10::StorageImpl& storage = *tensor_.storage().unsafeGetStorageImpl();
  levin::detail::give_pointer_again(storage);
  storage.set_data_ptr_noswap(point_into(memory, element));
  storage.set_nbytes(tensor_.nbytes());
}

void FullValues::detach(std::string text) const {
  c10::StorageImpl& storage = *tensor_.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(nothing(tensor_.device()));
  storage.set_nbytes(tensor_.nbytes());  // views of it can still be made
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(text));
}

}  // namespace levin::shard
