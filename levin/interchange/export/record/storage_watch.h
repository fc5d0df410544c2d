#pragma once
// StorageWatch: finds what the host writes into tensors of the CPU between two operators, by checksums.
// Beside Capture, which sees operators alone.
// Not for users.

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <unordered_map>

namespace levin::interchange {

class StorageWatch {
 public:
  /// The origin of the contents of a tensor's memory.
  enum class Contents {
    kAsWritten,     ///< by operators
    kUnwritten,     ///< nobody has, or the host with the bytes that were there
    kFilledByHost,  ///< the host filled it, as torch::tensor does; no input and no weight went into it
    kChangedByHost,  ///< operators computed it of others, and then the host wrote to it
  };

  /// Call before an operator reads or writes the tensor.
  Contents look(const at::Tensor& tensor) const;
  /// Call after an operator wrote the tensor. is_independent: from no input, weight or random number.
  void note(const at::Tensor& tensor, bool is_independent, bool is_uninitialized);
  bool is_independent(const at::Tensor& tensor) const;

 private:
  struct Watched {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint64_t checksum = 0;
    bool is_independent = false;
    bool is_uninitialized = false;
  };
  const Watched* find(const at::Tensor& tensor) const;

  std::unordered_map<const c10::StorageImpl*, Watched> watched_;
};

}  // namespace levin::interchange
