#pragma once
// HostRead: what the host sees of an operator's results: numbers, and sizes that depend on values.
// A recording holds what it was; a replay goes on only where it is the same.

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "levin/base/export.h"

namespace c10 {
class OperatorHandle;
}  // namespace c10

namespace levin::graph {

struct LEVIN_API HostRead {
  /// By result: the number; of a tensor its sizes, and its contents where LibTorch's own code reads
  /// these by pointer.
  std::vector<c10::IValue> values;

  /// results: what the operator left on the stack.
  static HostRead of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack);

  bool operator==(const HostRead& other) const;
  std::string text() const;
};

}  // namespace levin::graph
