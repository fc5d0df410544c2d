#pragma once
// The places of tensors in a file of torch.save: the memory that it holds, and each tensor's part
// of it. Stands between a state and write_torch_file. Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/state.h"

namespace levin::detail {

/// A run of memory that a file holds once, as one of its storages.
struct StoredMemory {
  at::Tensor tensor;  ///< one of the tensors there, on any device
  int64_t begin = 0;  ///< in bytes, within the storage of that tensor
  int64_t bytes = 0;
  /// The tensor's elements row-major, rather than the run that they lie in.
  bool is_packed = false;
  /// Tensors of several dtypes lie there.
  bool is_mixed = false;
};

struct StoredTensor {
  std::string name;
  size_t memory = 0;  ///< a place in StoredTensors::memory
  at::ScalarType dtype = at::kFloat;
  int64_t offset = 0;  ///< in elements, from the beginning of that memory
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  ///< in elements
};

struct StoredTensors {
  std::vector<StoredTensor> tensors;  ///< by name
  std::vector<StoredMemory> memory;   ///< in the order of the first tensor of each
};

/// Tensors that have an element in common lie in one run of memory, tied weights among them; others do
/// not, though LibTorch may have them in one storage. So nothing of a storage is written that no tensor
/// shows. A tensor keeps its strides where it fills its memory, repeats elements (expand) or shares them;
/// one that leaves gaps (a column) is packed. Devices other than CPU and CUDA: tensors are packed, and
/// those that are one view are one. Conjugate and negative views count by their values.
/// A TensorSlice counts where it is the whole. Throws Error "checkpoint.slice" where it is not,
/// "checkpoint.dtype" for a tensor that is undefined, sparse, nested or without values, and for a dtype that
/// Python cannot read, "checkpoint.path" for a name that is not UTF-8, and "base.state.type" for other
/// values.
StoredTensors stored_tensors(const State& state);

/// The bytes, in a row on the CPU: a view where they are there already.
at::Tensor bytes_of(const StoredMemory& memory);

}  // namespace levin::detail
