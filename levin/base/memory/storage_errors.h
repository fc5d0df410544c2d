#pragma once
// A storage whose data is away can refuse its readers by a text of our own
// (StorageImpl::release_data_and_set_meta_custom_data_ptr_error_msg_). allow_readers() takes that back.

#include <c10/core/StorageImpl.h>
#include <torch/headeronly/version.h>

namespace levin::detail {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
// LibTorch before 2.13 has no function for it. An explicit instantiation may name private members: the friend is
// defined by it.
inline void clear_refusal(c10::StorageImpl& storage);
template <auto refuses, auto refresh>
struct RefusalOf {
  friend void clear_refusal(c10::StorageImpl& storage) {
    storage.*refuses = false;
    (storage.*refresh)();
  }
};
template struct RefusalOf<&c10::StorageImpl::throw_on_immutable_data_ptr_,
                          &c10::StorageImpl::refresh_has_data_ptr_check>;
inline void allow_readers(c10::StorageImpl& storage) { clear_refusal(storage); }
#else
inline void allow_readers(c10::StorageImpl& storage) {
  storage.clear_data_ptr_access_error_msg_();
}
#endif

}  // namespace levin::detail
