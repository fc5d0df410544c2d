// The results of a run, and what it leaves in its inputs.
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "levin/graph/interpret/interpreter_impl.h"

namespace levin::graph {

at::Tensor copy_of(const at::Tensor& tensor) {
  const bool overlaps = std::ranges::count(tensor.strides(), 0) != 0;
  if (overlaps) return tensor.clone();
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor);
}

Interpretation Run::results() {
  const auto tensor_of = [&](const Value* value) {
    const auto slot = value == nullptr ? slots_.end() : slots_.find(value);
    return slot == slots_.end() ? at::Tensor() : slot->second.tensor;
  };
  Interpretation results;
  for (const Value* value : graph_.outputs()) results.outputs.push_back(tensor_of(value));
  for (const Update& update : graph_.updates()) results.updates.push_back(tensor_of(update.value));
  if (options_.donate) write_back(results);
  return results;
}

/// Writes back updates that did not happen in place; values in memory about to change are kept
/// first.
void Run::write_back(Interpretation& results) {
  const std::vector<Update> updates = graph_.updates();
  const auto is_in_place = [&](size_t i) {
    return !updates[i].is_gradient &&
           results.updates[i].is_same_size(targets_.at(updates[i].target)) &&
           results.updates[i].const_data_ptr() == targets_.at(updates[i].target).const_data_ptr();
  };
  const auto is_of_input = [&](const Value* value) {
    return value != nullptr && slots_.contains(value) &&
           inputs_[slots_.at(value).live.memory] != nullptr;
  };
  const Values outputs = graph_.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_of_input(outputs[i])) results.outputs[i] = copy_of(results.outputs[i]);
  }
  for (size_t i = 0; i < updates.size(); ++i) {
    if (!results.updates[i].defined() || is_in_place(i)) continue;
    if (is_of_input(updates[i].value)) results.updates[i] = copy_of(results.updates[i]);
  }
  for (size_t i = 0; i < updates.size(); ++i) {
    if (!results.updates[i].defined()) continue;
    // Autograd may have saved the old contents.
    if (!updates[i].is_gradient)
      targets_.at(updates[i].target).unsafeGetTensorImpl()->bump_version();
    if (is_in_place(i)) continue;
    const at::Tensor& target = targets_.at(updates[i].target);
    if (updates[i].is_gradient) {
      target.mutable_grad() = results.updates[i];
    } else {
      target.copy_(results.updates[i]);
    }
  }
}

}  // namespace levin::graph
