#pragma once
// CallKey: a call of an operator as what a program depends on. Tensors are told by the memory that
// they lie in, which is counted as it is met, so that the same calls on other tensors are alike.

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "levin/xla/stablehlo/key_words.h"

namespace levin::xla {

/// Where a tensor among the arguments lies.
struct TensorPlace {
  enum class Kind : uint8_t { kUndefined, kDevice, kHostNumber, kWrappedNumber };
  Kind kind = Kind::kUndefined;
  at::ScalarType dtype = at::kFloat;
  uint32_t memory =
      0;  ///< kDevice, kHostNumber: which of these, in the order in which they were met
  int64_t offset = 0;
  at::DimVector sizes = {}, strides = {};
};

/// A single number among the arguments: a program may take one anew in each run.
struct CallNumber {
  uint64_t bits = 0;
  uint32_t argument = 0;
};

struct CallKey {
  const c10::FunctionSchema* schema = nullptr;
  /// The arguments, tensors by their places, and how memory that is met here lies as a whole.
  KeyWords words = {};
  std::vector<CallNumber> numbers = {};

  void clear();
};

}  // namespace levin::xla
