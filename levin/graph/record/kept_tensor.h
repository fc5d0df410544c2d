#pragma once
// KeptTensor: a tensor that a recorded function made and that its caller, or a member, still has.

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

class Node;

/// Does not keep it alive itself.
struct LEVIN_API KeptTensor {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  at::DimVector sizes, strides;
  int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
  std::string made_by;         ///< the operator, and where it is known the line of code
  std::vector<void*> frames;   ///< the code that ran it, as place_of() reads it; may be empty
  const Node* node = nullptr;  ///< its node, while the recording goes on

  bool is_of(const at::Tensor& tensor) const {
    return tensor.has_storage() &&
           tensor.storage().unsafeGetStorageImpl() == storage._unsafe_get_target();
  }
  bool is_alive() const { return storage.use_count() > 0; }
  /// Returns all of its memory; undefined if it is gone.
  at::Tensor tensor() const;
};

}  // namespace levin::graph
