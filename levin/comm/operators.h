#pragma once
// Collectives as operators of LibTorch's dispatcher: a recorder sees them and can run them again.
// Each writes to tensors among its arguments, and takes its group (NamedGroup).
//
//   comm::call_all_reduce(gradients, world, ReduceOp::kMean);
//   comm::Started gather = comm::call_all_gather(full, rows, counts, world, comm::Return::kAsync);
//   ...
//   gather.wait();
//
//   levin::all_reduce_(Tensor(a!)[] tensors, ProcessGroup group, str op) -> ()
//   levin::broadcast_(Tensor(a!)[] tensors, ProcessGroup group, int root) -> ()
//   levin::barrier_(Tensor(a!)[] tensors, ProcessGroup group) -> ()
//   levin::all_gather_(Tensor(a!) whole, Tensor part, int[] counts, ProcessGroup group) -> ()
//   levin::reduce_scatter_(Tensor(a!) part, Tensor whole, int[] counts, str op,
//                          ProcessGroup group) -> ()
//   levin::all_to_all_(Tensor(a!) received, Tensor sent, int[] received_counts,
//                      int[] sent_counts, ProcessGroup group) -> ()
//   levin::send_(Tensor data, int to, int tag, ProcessGroup group) -> ()
//   levin::recv_(Tensor(a!) data, int from, int tag, ProcessGroup group) -> ()
//
// All but broadcast_ and barrier_ have a second form that only starts the collective; wait_ ends it.
// The two are matched by the group, the sequence number and the memory of the first tensor.
//
//   levin::all_gather_start_(..., ProcessGroup group, int sequence=0) -> ()
//   levin::wait_(Tensor(a!)[] tensors, ProcessGroup group, Tensor[] sent, int sequence=0) -> ()
//
// No one may touch the tensors that a collective writes between its start and its wait_, and no one
// may write to the tensors that it sends.
//
//   levin::release_(Tensor(a!)[] tensors) -> ()   no one needs the contents of these any more

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
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

/// A collective that a function below has started, like Work. It holds the collective's tensors.
class LEVIN_API Started {
 public:
  /// Makes one that is done.
  Started() = default;
  /// Waits until the collective has finished; a second call does nothing. Throws what Work::wait
  /// throws.
  void wait();

 private:
  template <class... Arguments>
  friend struct Forms;
  struct Call {
    std::vector<at::Tensor> received = {}, sent = {};
    ProcessGroup group = {};
    int64_t sequence = 0;
  };
  std::optional<Call> call_;
};

// The functions of ProcessGroup of the same names, called through the dispatcher. With
// Return::kAsync they return a collective that is under way: call wait() of it.
LEVIN_API Started call_all_reduce(const std::vector<at::Tensor>& data, const ProcessGroup& group,
                                  ReduceOp op, Return when = Return::kDone);
LEVIN_API void call_broadcast(const std::vector<at::Tensor>& data, const ProcessGroup& group,
                              int64_t root);
/// A barrier after which the tensors have the contents that other ranks have written to them, in
/// memory that the ranks share (ProcessGroup::share). A recording that reads shared memory, or
/// writes its own part of it, is in the right order by these barriers alone.
LEVIN_API void call_barrier(const std::vector<at::Tensor>& data, const ProcessGroup& group);
LEVIN_API Started call_all_gather(const at::Tensor& whole, const at::Tensor& part,
                                  std::span<const int64_t> counts, const ProcessGroup& group,
                                  Return when = Return::kDone);
LEVIN_API Started call_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                                      std::span<const int64_t> counts, ReduceOp op,
                                      const ProcessGroup& group, Return when = Return::kDone);
LEVIN_API Started call_all_to_all(const at::Tensor& received, const at::Tensor& sent,
                                  std::span<const int64_t> received_counts,
                                  std::span<const int64_t> sent_counts, const ProcessGroup& group,
                                  Return when = Return::kDone);
LEVIN_API Started call_send(const at::Tensor& data, int64_t to, int64_t tag,
                            const ProcessGroup& group, Return when = Return::kDone);
LEVIN_API Started call_recv(const at::Tensor& data, int64_t from, int64_t tag,
                            const ProcessGroup& group, Return when = Return::kDone);

/// Waits for the collective that was started first of those that write to data[0]. Throws Error
/// "comm.wait" if nothing was started for these tensors.
LEVIN_API void call_wait(const std::vector<at::Tensor>& data, const ProcessGroup& group);

/// Says that no one needs the contents of these tensors any more, as those of the buffer of a
/// gathered parameter. Eager code does nothing; a recording then keeps the tensors in planned memory
/// and not as state.
LEVIN_API void call_release(const std::vector<at::Tensor>& data);

}  // namespace levin::comm
