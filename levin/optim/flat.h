#pragma once
// Flat storage: one allocation that holds a tensor for each of several parameters.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace levin::optim {

/// Zeros with the sizes, strides, dtype and device of each tensor, side by side in one allocation
/// for each dtype and device, in the order given; on XLA devices each in its own.
inline std::vector<at::Tensor> flat_zeros_like(const std::vector<at::Tensor>& tensors) {
  using Kind = std::pair<at::ScalarType, std::string>;
  const auto kind_of = [](const at::Tensor& tensor) {
    return Kind(tensor.scalar_type(), tensor.device().str());
  };
  // Each tensor starts on a cache line of its own, as a separate allocation would.
  const auto padded = [](const at::Tensor& tensor) {
    const int64_t unit = 64 / tensor.element_size();
    return (tensor.numel() + unit - 1) / unit * unit;
  };
  std::map<Kind, int64_t> length;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_xla()) length[kind_of(tensor)] += padded(tensor);
  }
  std::map<Kind, std::pair<at::Tensor, int64_t>> flat;
  std::vector<at::Tensor> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_xla()) {  // its programs take and give whole allocations
      views.push_back(at::zeros_like(tensor, tensor.options().requires_grad(false)));
      continue;
    }
    const Kind kind = kind_of(tensor);
    auto [place, made] = flat.try_emplace(kind);
    auto& [storage, offset] = place->second;
    // A tensor without memory (graph/fake) gets a storage without memory.
    if (made) storage = tensor.new_zeros({length[kind]}, tensor.options().requires_grad(false));
    // A tensor set onto the storage is no autograd view, so zero_grad and in-place writes are free.
    views.push_back(at::empty({0}, storage.options())
                        .set_(storage.storage(), offset, tensor.sizes(), tensor.strides()));
    offset += padded(tensor);
  }
  return views;
}

}  // namespace levin::optim
