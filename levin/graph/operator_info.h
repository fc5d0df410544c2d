#pragma once
// OperatorInfo: the facts that an operator's schema and tags state, with corrections where they are wrong.
// Not for users.

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::graph {

/// Returns whether an operator's schema says that it writes to this argument in place.
inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}
/// Returns the indices of the arguments that an operator writes to in place. They include those that
/// its schema does not declare, such as the running statistics of a batch norm.
LEVIN_API std::vector<size_t> written_arguments(const c10::FunctionSchema& schema);

/// How an operator's result lies in its first argument; it follows how a write to the one is a new
/// value of the other.
enum class ViewKind {
  kStrided,  ///< some of the elements in some order: by sizes and strides
  kSlice,
  kSelect,
  kDiagonal,
  kSplit,
  kUnbind,
  kTranspose,
  kPermute,
  kReshape,     ///< all elements in their order
  kInvolution,  ///< its own inverse: t, _conj, _neg_view
  kDtype,
  kAsReal,
  kAsComplex
};

struct OperatorInfo {
  explicit OperatorInfo(const c10::OperatorHandle& op);

  c10::OperatorHandle op;
  std::string name;             ///< "aten::add.Tensor"
  std::vector<size_t> written;  ///< arguments
  std::vector<bool> is_result;  ///< by return: it is not one of the written arguments
  ViewKind view = ViewKind::kStrided;
  bool returns_view = false;  ///< its results may lie in its first argument
  bool is_always_view = false;
  bool is_random = false;
  bool is_host_read = false;
  bool is_inplace_view = false;  ///< changes a tensor's geometry only
  bool makes_unwritten = false;  ///< memory of no certain contents
  bool overwrites = false;       ///< its result does not depend on the old contents
  bool is_equal = false;
  bool is_collective = false;  ///< takes a process group: it exchanges tensors with other ranks
  bool is_start = false;       ///< of a collective, which levin::wait_ ends
  bool is_wait = false;        ///< levin::wait_

  /// The same arguments always give the same, and nothing else happens.
  bool is_pure() const {
    return written.empty() && !is_random && !is_host_read && !makes_unwritten && !is_collective;
  }
  /// Its results lie in its first argument, whatever that holds: what copies at times, as reshape,
  /// is no such one.
  bool makes_view() const { return is_always_view && written.empty(); }

  const std::vector<c10::Argument>& parameters() const { return op.schema().arguments(); }
  size_t num_parameters() const { return parameters().size(); }
  size_t num_arguments() const { return num_parameters() + (is_random ? 1 : 0); }
};

/// Returns the entry of an operator, made once in a process and kept until its end, so that graphs
/// can point to it. An operator whose library was unloaded gets a new entry when it comes again.
LEVIN_API const OperatorInfo& info_of(const c10::OperatorHandle& op);
/// Returns the facts of a kCallFunction node's operator.
inline const OperatorInfo& info_of(const Node& node) { return *node.info_; }

}  // namespace levin::graph
