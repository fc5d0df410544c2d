#include "levin/base/memory/refused_pointer.h"

#include <torch/headeronly/version.h>

namespace levin::detail {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
// LibTorch before 2.13 has nothing that clears the flag by which a storage refuses. The flag is private; an explicit
// instantiation may name it all the same, and it defines the friend.
namespace {
void clear_refusal(c10::StorageImpl& storage);
template <auto refuses, auto refresh>
struct RefusalOf {
  friend void clear_refusal(c10::StorageImpl& storage) {
    storage.*refuses = false;
    (storage.*refresh)();
  }
};
template struct RefusalOf<&c10::StorageImpl::throw_on_immutable_data_ptr_,
                          &c10::StorageImpl::refresh_has_data_ptr_check>;
}  // namespace

void give_pointer_again(c10::StorageImpl& storage) { clear_refusal(storage); }
#else
void give_pointer_again(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }
#endif

}  // namespace levin::detail
