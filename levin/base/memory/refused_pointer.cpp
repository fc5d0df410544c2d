#include "levin/base/memory/refused_pointer.h"

#include <torch/headeronly/version.h>

namespace levin::detail {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
// LibTorch 2.11 has nothing that clears the flag by which a storage refuses. The flag is private; an explicit
// instantiation may name it all the same.
namespace {
bool c10::StorageImpl::* refusal_flag();
template <bool c10::StorageImpl::* flag>
struct RefusalFlag {
  friend bool c10::StorageImpl::* refusal_flag() { return flag; }
};
template struct RefusalFlag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;
}  // namespace

void give_pointer_again(c10::StorageImpl& storage) { storage.*refusal_flag() = false; }
#else
void give_pointer_again(c10::StorageImpl& storage) { storage.clear_data_ptr_access_error_msg_(); }
#endif

}  // namespace levin::detail
