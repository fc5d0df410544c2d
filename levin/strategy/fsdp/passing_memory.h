#pragma once
// Tensors whose memory comes and goes, while views of them, and what autograd has saved, stay.
//
//   const at::Tensor weight = without_memory({64, 32}, {32, 1}, options);
//   lay_into(weight, gathered, 0);  ...  take_away(weight, "strategy.fsdp.unseen: fc.weight ...");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace levin::fsdp {

c10::Storage storage_without_memory(at::Device device);
/// On that storage, from its begin on.
at::Tensor tensor_on(const c10::Storage& storage, at::IntArrayRef sizes, at::IntArrayRef strides,
                     const at::TensorOptions& kind);

/// The tensor's values, and its views', are those of memory from that element on.
void lay_into(const at::Tensor& tensor, const at::Tensor& memory, int64_t element);
/// Whoever reads its values throws an exception of that text.
void take_away(const at::Tensor& tensor, std::string text);

}  // namespace levin::fsdp
