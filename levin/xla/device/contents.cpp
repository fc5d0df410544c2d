#include "levin/xla/device/contents.h"

#include <ATen/EmptyTensor.h>

#include <utility>

#include "levin/base/check.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {

Contents::Contents(std::shared_ptr<RuntimeImpl> owner) : runtime(std::move(owner)) {
  RuntimeImpl& impl = *runtime;
  const std::scoped_lock lock(impl.mutex);
  impl.live.add(*this);
}

Contents::~Contents() {
  RuntimeImpl& impl = *runtime;
  const std::scoped_lock lock(impl.mutex);
  impl.live.remove(*this);
  impl.recording.forget(*this);
}

void LiveContents::add(Contents& made) {
  made.made_before = std::exchange(last_, &made);
  (made.made_before == nullptr ? first_ : made.made_before->made_after) = &made;
}

void LiveContents::remove(Contents& contents) {
  Contents *before = contents.made_before, *after = contents.made_after;
  (before == nullptr ? first_ : before->made_after) = after;
  (after == nullptr ? last_ : after->made_before) = before;
}

void check_not_lost(const Contents& contents) {
  LEVIN_CHECK(!contents.is_lost, "xla.lost",
              "a tensor {} is lost, because the program that computes it failed; start again from "
              "tensors that were there before",
              c10::str(at::IntArrayRef(contents.sizes)));
}

void LiveContents::lose_pending() noexcept {
  for (Contents* contents : *this) {
    if (contents->is_pending && contents->buffers.empty()) contents->is_lost = true;
    contents->is_pending = false;
  }
}

Contents& Contents::of(const at::Tensor& tensor) {
  return *static_cast<Contents*>(tensor.storage().data_ptr().get_context());
}

at::Tensor Contents::make_tensor(const std::shared_ptr<RuntimeImpl>& owner, at::IntArrayRef sizes,
                                 at::IntArrayRef strides, at::ScalarType dtype) {
  LEVIN_CHECK(!at::isComplexType(dtype), "xla.dtype",
              "got a tensor of {}, but XLA devices hold real numbers only; compute on the CPU "
              "(x.cpu(), then .to(device)), or with at::view_as_real(x)",
              c10::toString(dtype));
  auto contents = std::make_unique<Contents>(owner);
  contents->sizes = sizes;
  contents->strides = strides;
  contents->dtype = dtype;
  Contents& made = *contents;
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  // The pointer has no address: LibTorch then throws where the host would read the elements.
  c10::DataPtr pointer(
      nullptr, contents.release(), [](void* context) { delete static_cast<Contents*>(context); },
      c10::Device(at::kXLA, 0));
  c10::Storage storage(c10::Storage::use_byte_size_t{}, bytes, std::move(pointer), nullptr,
                       /*resizable=*/false);
  made.storage = storage.unsafeGetStorageImpl();
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::XLA),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor Contents::view_of(const at::Tensor& tensor, at::IntArrayRef sizes,
                             at::IntArrayRef strides, int64_t offset, at::ScalarType dtype) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), tensor.key_set(),
      c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

void Contents::renew(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const at::Tensor fresh = make_tensor(of(tensor).runtime, sizes, strides, tensor.scalar_type());
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_storage_keep_dtype(fresh.storage());
  impl.set_sizes_and_strides(sizes, strides, 0);
}

at::Tensor Contents::base() const {
  c10::Storage shared(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(shared), c10::DispatchKeySet(c10::DispatchKey::XLA),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

bool Contents::is_base(const at::Tensor& tensor) const {
  return tensor.storage_offset() == 0 && tensor.scalar_type() == dtype &&
         tensor.sizes().equals(sizes) && tensor.strides().equals(strides);
}

}  // namespace levin::xla
