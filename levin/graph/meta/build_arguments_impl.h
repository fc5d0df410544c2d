#pragma once
// BuildArguments: what an operator of a constructor is given, and which of it has no memory.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <vector>

#include "levin/graph/operator_info.h"

namespace levin::graph::meta {

struct BuildArguments {
  const OperatorInfo& info;
  std::span<c10::IValue> values;
  std::vector<at::Tensor> tensors;
  std::vector<size_t> parameters;  ///< the parameters of these tensors
  bool has_unmade = false;         ///< some of them have no memory
  bool is_redirected = false;
  at::Generator generator;

  BuildArguments(const OperatorInfo& info, std::span<c10::IValue> values);

  /// Returns the meta tensor whose values decide what the operator returns; undefined if there is
  /// none.
  at::Tensor looked_at() const;
  std::vector<at::Tensor> written() const;
  /// Any device that is asked for is left to materialize.
  void redirect(c10::IValue to) const;
};

}  // namespace levin::graph::meta
