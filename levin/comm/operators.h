#pragma once
// Collectives as operators of LibTorch's dispatcher: a recorder sees them and can run them again.
// Each writes to tensors among its arguments, and takes its group (NamedGroup).
//
//   comm::call_all_reduce(gradients, world, ReduceOp::kMean);
//
//   levin::all_reduce_(Tensor(a!)[] tensors, ProcessGroup group, str op) -> ()
//   levin::all_reduce_start_(Tensor(a!)[] tensors, ProcessGroup group, str op) -> ()
//   levin::wait_(Tensor(a!)[] tensors, ProcessGroup group) -> ()
//   levin::broadcast_(Tensor(a!)[] tensors, ProcessGroup group, int root) -> ()
//   levin::all_gather_(Tensor(a!) whole, Tensor part, int[] counts, ProcessGroup group) -> ()
//   levin::all_gather_start_(...)      as all_gather_, of which wait_([whole], group) is the end
//   levin::reduce_scatter_(Tensor(a!) part, Tensor whole, int[] counts, str op,
//                          ProcessGroup group) -> ()
//   levin::reduce_scatter_start_(...)  as reduce_scatter_, of which wait_([part], group) is the end
//
// The tensors may not be touched between a start and their wait_.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin::comm {

/// The group's name in a graph's text (NamedGroup::name).
LEVIN_API std::string operator_name(const ProcessGroup& group);

/// "sum", "mean", "min", "max" or "product".
LEVIN_API std::string_view reduce_op_name(ReduceOp op);
/// Throws Error "comm.reduce_op" for another word.
LEVIN_API ReduceOp reduce_op_named(std::string_view name);

// The functions of ProcessGroup of the same names, called through the dispatcher.
/// One that is started ends with call_wait of the same tensors, which may not be touched in between.
LEVIN_API void call_all_reduce(const std::vector<at::Tensor>& data, const ProcessGroup& group,
                               ReduceOp op, Return when = Return::kDone);
/// Throws Error "comm.wait" if nothing was started for these tensors.
LEVIN_API void call_wait(const std::vector<at::Tensor>& data, const ProcessGroup& group);
LEVIN_API void call_broadcast(const std::vector<at::Tensor>& data, const ProcessGroup& group,
                              int64_t root);
LEVIN_API void call_all_gather(const at::Tensor& whole, const at::Tensor& part,
                               std::span<const int64_t> counts, const ProcessGroup& group);
LEVIN_API void call_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                                   std::span<const int64_t> counts, ReduceOp op,
                                   const ProcessGroup& group);

}  // namespace levin::comm
