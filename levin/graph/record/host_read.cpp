#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "levin/graph/graph.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/text/text_impl.h"

namespace levin::graph {
namespace {

/// The number of sequences at each time step: RNNs loop over it by pointer.
bool is_read_by_pointer(const c10::OperatorHandle& op, size_t result) {
  return result == 1 && op.schema().name() == "aten::_pack_padded_sequence";
}

std::vector<int64_t> contents_of(const at::Tensor& tensor) {
  const int64_t* numbers = tensor.const_data_ptr<int64_t>();
  return {numbers, numbers + tensor.numel()};
}

}  // namespace

HostRead HostRead::of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack) {
  HostRead read;
  const size_t count = op.schema().returns().size();
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    if (!value.isTensor()) {
      read.values.push_back(value);
    } else if (value.toTensor().defined()) {
      const at::Tensor& tensor = value.toTensor();
      read.values.emplace_back(is_read_by_pointer(op, i) ? contents_of(tensor)
                                                         : tensor.sizes().vec());
    }
  }
  return read;
}

bool HostRead::operator==(const HostRead& other) const {
  return std::ranges::equal(values, other.values, is_same_constant);
}

std::string HostRead::text() const {
  std::string text;
  for (const c10::IValue& value : values) {
    text += (text.empty() ? "" : ", ") + text_of(value, nullptr);
  }
  return text;
}

}  // namespace levin::graph
