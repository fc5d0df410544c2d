#pragma once
// The types of results, for operators whose Meta kernel LibTorch has in Python only. An operator in
// the table costs a recording nothing; for others levin asks LibTorch (infer.cpp).

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "levin/xla/stablehlo/builder.h"

namespace levin::xla {

/// The type of a contiguous result; if not defined, the result is an undefined tensor.
struct ResultType {
  at::ScalarType dtype = at::kFloat;
  Dims sizes = {};
  bool is_defined = true;
};

using ResultTypes = std::vector<ResultType>;
/// Computes the types from the arguments of an operator's schema.
using ShapeFunction = ResultTypes (*)(at::ArrayRef<c10::IValue>);

/// The shape functions of layers: convolutions, pools, normalizations and so on.
std::vector<std::pair<const char*, ShapeFunction>> layer_shapes();
/// The shape functions of activations, losses, indexing, sorting, random numbers.
std::vector<std::pair<const char*, ShapeFunction>> element_shapes();

}  // namespace levin::xla
