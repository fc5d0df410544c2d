#pragma once
// for_each_tensor, with_tensors_replaced: the tensors in an argument or result of an operator, which may
// be a tensor, a list of tensors or a list of optional tensors.
// Not for users.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace levin::graph {

/// Calls visit(tensor) for each tensor of a value, undefined ones included; None is no tensor.
template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

/// Returns the value with replace(tensor) for each of its tensors; lists are new ones.
template <class Replace>
c10::IValue with_tensors_replaced(const c10::IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef())
      list.push_back(replace(element.toTensor()));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isTensor() ? std::optional<at::Tensor>(replace(element.toTensor()))
                                        : std::nullopt);
    }
    return list;
  }
  return value;
}

}  // namespace levin::graph
