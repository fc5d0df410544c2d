#pragma once
// The way back from a storage that refuses its data pointer, in each LibTorch that levin builds with.
//
// A storage refuses its pointer after release_data_and_set_meta_custom_data_ptr_error_msg_(text): whoever asks for
// the pointer gets an error with that text. levin::init_on_meta and fsdp have storages without memory refuse so.

#include <c10/core/StorageImpl.h>

#include "levin/base/export.h"

namespace levin::detail {

/// The storage gives its data pointer again.
LEVIN_API void give_pointer_again(c10::StorageImpl& storage);

}  // namespace levin::detail
