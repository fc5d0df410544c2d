#pragma once
// The recording that a Capture is at. capture.cpp notes calls, captured_values.cpp the tensors that they take and give.

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/graph/record/current_place.h"
#include "levin/interchange/export/record/call_scope.h"
#include "levin/interchange/export/record/capture.h"
#include "levin/interchange/export/record/storage_watch.h"

namespace levin::interchange {

struct Capture::Impl final : CallHandler {
  using IValue = c10::IValue;
  using Origin = RecordedValue::Origin;
  /// The use of a tensor by an operator.
  enum class Use { kRead, kView, kWrite, kFill };
  struct Known {
    ValueId id = kNoValue;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    /// Its memory when an operator last gave it, to compare with.
    const c10::StorageImpl* storage = nullptr;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  explicit Impl(const CaptureOptions& options) : options(options) {}

  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack,
            c10::function_ref<void()> proceed) override;
  bool is_any_branch(const torch::jit::Stack& stack, c10::function_ref<void()> proceed);
  void read(const c10::OperatorHandle& op, const torch::jit::Stack& stack, RecordedCall& call);
  RecordedArgument argument(const c10::Argument& formal, const IValue& value, Use use);
  static Use use_of(const c10::OperatorHandle& op, const c10::Argument& formal);
  ValueId read_tensor(const at::Tensor& tensor, Use use);
  ValueId add_filled(ValueId id, const at::Tensor& tensor, Use use);
  ValueId read_constant(ValueId id, const at::Tensor& tensor, Use use);
  ValueId add_call(const char* op, const std::vector<ValueId>& sources, ValueId result);
  ValueId find(const at::Tensor& tensor);
  void check_memory(const Known& known, const at::Tensor& tensor) const;
  void check_state();
  void check_constants();
  ValueId add_value(const at::Tensor& tensor, Origin origin, size_t index);
  ValueId add_contents(const at::Tensor& tensor);
  ValueId add(const at::Tensor& tensor, Origin origin, size_t index);
  ValueId remember(const at::Tensor& tensor, ValueId id);
  void add_copy(ValueId id, const at::Tensor& tensor);
  ValueId add_copied(const at::Tensor& tensor);
  void keep_parameter(const at::Tensor& written);
  ValueId add_constant(const at::Tensor& tensor);
  void note_gradient(ValueId id, const at::Tensor& tensor);
  void add_results(const torch::jit::Stack& stack, RecordedCall& call);
  void note_writes(const RecordedCall& call, const torch::jit::Stack& arguments,
                   const torch::jit::Stack& results);
  CallMode mode();
  std::string place() const { return graph::current_place(); }

  CaptureOptions options;
  std::vector<at::Tensor> state;  ///< the module's tensors, then the inputs
  /// Tensors that forward writes, and what they held.
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  std::vector<size_t> copies;  ///< calls of add_copied
  Recording recording;
  StorageWatch watch;
  graph::StackSearch attention{{"multi_head_attention_forward"}};
  graph::StackSearch function{{"torch::autograd::Function<"}};
  std::unordered_map<const c10::TensorImpl*, Known> known;
  std::unordered_map<const c10::StorageImpl*, std::vector<Known>> by_storage;
};

}  // namespace levin::interchange
