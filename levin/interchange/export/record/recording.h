#pragma once
// Recording: the operators that one call of a module ran, as its code called them.
// Capture makes it; recordings of several sizes become the graph of a program.
// Not for users.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/autocast.h"

namespace levin::interchange {

/// A tensor of a recording, by its place in Recording::values.
using ValueId = size_t;
constexpr ValueId kNoValue = static_cast<ValueId>(-1);

/// Batch norms write their running statistics and do not say so.
inline bool is_written_unsaid(const c10::Argument& formal) {
  return formal.name().starts_with("running_");
}

struct RecordedValue {
  enum class Origin { kParameter, kBuffer, kInput, kConstant, kResult };
  Origin origin = Origin::kResult;
  size_t index = 0;  ///< among the module's tensors, the inputs, the constants, the calls
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t storage_offset = 0;
  bool requires_grad = false;
};

struct RecordedArgument {
  enum class Kind { kConstant, kTensor, kTensors };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<ValueId> values;  ///< one of kTensor; kNoValue stands for None
};

struct RecordedResult {
  bool is_list = false;
  std::vector<ValueId> values;  ///< kNoValue where the operator left a tensor undefined
};

/// The thread's modes that the code sets around an operator.
struct CallMode {
  bool grad_enabled = true;
  Autocast autocast;
  /// Within the forward of a torch::autograd::Function, which turns gradients off.
  bool in_function = false;
};

struct RecordedCall {
  c10::OperatorHandle op;
  std::vector<RecordedArgument> arguments;  ///< as the operator's schema has them
  std::vector<RecordedResult> results;
  CallMode mode;
  std::vector<void*> frames;  ///< program counters, where they were asked for
};

/// A tensor of the module, under each of its names.
struct ModuleTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
};

struct Recording {
  /// The module's tensors come first, then the inputs.
  std::vector<RecordedValue> values;
  std::vector<RecordedCall> calls;
  std::vector<at::Tensor> constants;
  /// The flat results of forward: tensors and constants; tree is their structure, as
  /// torch.utils._pytree writes it.
  std::vector<RecordedArgument> outputs;
  std::string output_tree;
};

}  // namespace levin::interchange
