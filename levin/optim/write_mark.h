#pragma once
// WriteMark: tells whether a parameter was written since, or was given other memory.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levin::optim {

/// The memory of a parameter, and how often it had been written.
struct WriteMark {
  explicit WriteMark(const at::Tensor& parameter)
      : memory(parameter.storage().getWeakStorageImpl()), version(parameter._version()) {}
  bool is_of(const at::Tensor& parameter) const {
    return memory._unsafe_get_target() == parameter.storage().unsafeGetStorageImpl() &&
           version == parameter._version();
  }
  c10::weak_intrusive_ptr<c10::StorageImpl> memory;
  int64_t version;
};

}  // namespace levin::optim
