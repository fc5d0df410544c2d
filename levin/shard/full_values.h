#pragma once
// FullValues: the full values of a sharded parameter, a tensor whose memory comes and goes while
// views of it, and what autograd has saved, stay. Not for users.
//
//   const FullValues weight({64, 32}, {32, 1}, options);
//   weight.attach(gathered, 0);  ...  weight.detach("strategy.fsdp.unseen: fc.weight ...");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "levin/base/export.h"

namespace levin::shard {

class LEVIN_API FullValues {
 public:
  /// There are none.
  FullValues() = default;
  /// Makes values without memory.
  FullValues(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);
  /// Takes over a storage, so that its views show the values from now on.
  FullValues(const c10::Storage& storage, at::IntArrayRef sizes, at::IntArrayRef strides,
             const at::TensorOptions& options);

  bool is_defined() const { return tensor_.defined(); }
  /// Must not be read while no memory is attached.
  const at::Tensor& tensor() const { return tensor_; }
  /// Returns another tensor over the same storage, which shows the same values.
  at::Tensor alias(at::IntArrayRef sizes, at::IntArrayRef strides) const;
  /// The values are those of memory from that element on.
  void attach(const at::Tensor& memory, int64_t element) const;
  /// Who reads the values gets an exception of that text.
  void detach(std::string text) const;

 private:
  at::Tensor tensor_;
};

}  // namespace levin::shard
