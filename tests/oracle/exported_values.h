#pragma once
// What programs of torch.export give, and how it is compared with Python's.

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <string>
#include <vector>

namespace levin::test::exported {

/// Of the largest value: kernels are the same, and so is the order in which they run.
constexpr double kOfTheLargest = 1e-6;

inline void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) add_tensors(item, tensors);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) add_tensors(item, tensors);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) add_tensors(entry.value(), tensors);
  }
}

/// exported_programs.py's loss_of.
inline at::Tensor loss_of(const std::vector<at::Tensor>& outputs) {
  at::Tensor total = at::zeros({}, at::kDouble);
  for (at::Tensor output : outputs) {
    if (output.is_complex()) output = at::view_as_real(output);
    if (output.is_floating_point()) total = total + output.to(at::kDouble).square().mean();
  }
  return total;
}

/// Empty where they are the same. least: what counts as the largest value where all are smaller.
inline std::string difference(const std::string& name, const at::Tensor& got,
                              const at::Tensor& wanted, double least = 1e-3,
                              double tolerance = kOfTheLargest) {
  if (!got.defined()) return name + ": none; ";
  if (got.sizes() != wanted.sizes() || got.scalar_type() != wanted.scalar_type()) {
    return c10::str(name, ": ", got.toString(), " of ", got.sizes(), ", wanted ", wanted.toString(),
                    " of ", wanted.sizes(), "; ");
  }
  if (at::equal(got, wanted) || wanted.numel() == 0) return "";
  const auto real = [](const at::Tensor& tensor) {
    return (tensor.is_complex() ? at::view_as_real(tensor) : tensor).to(at::kDouble);
  };
  const at::Tensor is_finite = real(wanted).isfinite();
  if (!is_finite.any().item<bool>()) return name + ": nothing finite to compare; ";
  if (!at::equal(is_finite, real(got).isfinite())) return name + ": other infinite values; ";
  const double off = (real(got) - real(wanted)).masked_select(is_finite).abs().max().item<double>();
  const double most =
      std::max(real(wanted).masked_select(is_finite).abs().max().item<double>(), least);
  return off <= tolerance * most ? "" : c10::str(name, ": off by ", off, " of ", most, "; ");
}

}  // namespace levin::test::exported
