#pragma once
// ProcessGroup: collectives and messages between ranks, over shared memory, gloo, MPI or NCCL. The
// group of all ranks (world) is made once from the environment; sub-groups are made from it.
//
//   comm::ProcessGroup world = comm::ProcessGroup::connect(comm::read_environment(), {});
//   world.all_reduce(gradient, ReduceOp::kMean);
//   auto work = world.all_reduce(next, ReduceOp::kMean, comm::Return::kAsync); ... work.wait();

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/comm/environment/environment.h"

// ReduceOp: the operation by which a collective combines the values of the ranks.
//
//   world.all_reduce(loss, levin::ReduceOp::kMean);

namespace levin {

/// Reduction of a collective; follows torch.distributed.ReduceOp.
enum class ReduceOp {
  kSum,     ///< sum over the ranks
  kMean,    ///< mean over the ranks (c10d's AVG)
  kMin,     ///< smallest value of any rank
  kMax,     ///< largest value of any rank
  kProduct  ///< product over the ranks
};

}  // namespace levin

namespace c10d {
class Store;
}  // namespace c10d

namespace levin::comm {

/// When a collective returns.
enum class Return {
  kDone,  ///< when the result is there
  kAsync  ///< as soon as the collective is under way, like async_op=True of PyTorch
};

/// A collective that was started; like torch.distributed.Work. Its tensors must not be read or
/// written before wait() has returned.
class LEVIN_API Work {
 public:
  /// Makes a work that is done.
  Work();
  ~Work();
  /// Takes over the collective.
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;  ///< takes over the collective

  /// Waits until the collective has finished. Throws Error "comm.timeout", "comm.peer",
  /// "comm.mismatch" or "comm.failed" if it failed.
  void wait();
  /// Returns whether the collective has finished.
  bool done() const;

 private:
  friend class ProcessGroup;
  struct Impl;
  explicit Work(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // none once it is done
};

/// Options of ProcessGroup::connect.
struct ProcessGroupOptions {
  /// Backend for tensors on the CPU: auto, shm (shared memory), gloo, mpi, hierarchical (shm on
  /// each host and gloo between hosts) or hierarchical-mpi. auto selects shm if all ranks are on
  /// one host, gloo if each rank is on a host of its own, and otherwise hierarchical.
  std::string backend = "auto";
  /// True if this process has a GPU of its own. Tensors on it go over NCCL, tensors on the CPU over
  /// backend.
  bool on_gpu = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);         ///< limit of one collective
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);  ///< limit of the rendezvous
  /// Compares the name, dtype, size and operation of each collective on GPUs between the ranks
  /// before it begins. Collectives on CPUs are always compared.
  bool check = false;
};

/// One block of shared memory that all ranks of a host map.
struct SharedTensor {
  at::Tensor whole;  ///< all parts, flat, read-only: a write ends the process with SIGSEGV
  at::Tensor own;    ///< the part of this rank, writable; it is mapped at another address
};

/// All collectives of one name that this process has called.
struct CollectiveTotal {
  std::string name;   ///< "all_reduce", "all_gather", ...
  int64_t calls = 0;  ///< number of calls
  int64_t bytes = 0;  ///< bytes of the full tensors: what all ranks gather or reduce
};

/// A process group: ranks that communicate with each other. It is a handle: copies share the group.
///
/// All ranks of the group must call the same functions in the same order, with tensors of the same
/// shape and dtype. A rank passed as an argument (root, to, from) is the rank in this group. A
/// result that all ranks get has the same bits on each of them. Tensors on the CPU may have any
/// strides; tensors on a GPU must be contiguous, in any memory format. A timeout or a mismatch
/// throws an Error whose text names the ranks that reached this collective and the ranks that did
/// not (see Watchdog). With size() == 1, collectives are local copies, and send and recv throw
/// Error "comm.backend".
class LEVIN_API ProcessGroup {
 public:
  /// Makes the group of this process alone.
  ProcessGroup();
  /// Makes the group of all ranks of the run. All of them must call it. Throws what connect_store
  /// throws, Error "comm.connect" if some ranks do not connect in time, and "comm.backend" for a
  /// backend that does not exist or does not reach all ranks.
  static ProcessGroup connect(const Environment& environment, const ProcessGroupOptions& options);

  /// Rank of this process in the group.
  int64_t rank() const;
  /// World size of the group: number of its ranks.
  int64_t size() const;
  /// Name of the backend for tensors on the CPU: "shm", "gloo", ...; "none" for one rank.
  const std::string& backend() const;
  /// Global rank (in the run) of each rank of this group.
  const std::vector<int64_t>& global_ranks() const;
  /// Returns a key-value store that all ranks of the group share, with this key prefix; nullptr for
  /// one rank.
  c10::intrusive_ptr<c10d::Store> store(const std::string& prefix) const;

  /// Reduces a tensor over the ranks in place.
  Work all_reduce(const at::Tensor& data, ReduceOp op, Return when = Return::kDone);
  /// Reduces several tensors over the ranks in place, in one call.
  Work all_reduce(const std::vector<at::Tensor>& data, ReduceOp op, Return when = Return::kDone);
  /// Copies the tensor of rank root into the tensor of each other rank.
  Work broadcast(const at::Tensor& data, int64_t root, Return when = Return::kDone);
  /// Writes the parts of all ranks into whole, in rank order. whole has size() times the elements
  /// of part. Throws Error "comm.tensor" if the sizes or dtypes do not fit.
  Work all_gather(const at::Tensor& whole, const at::Tensor& part, Return when = Return::kDone);
  /// Reduces whole over the ranks and writes the elements of this rank to part. whole has size()
  /// times the elements of part, in rank order. Throws Error "comm.tensor" if sizes or dtypes do
  /// not fit.
  Work reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                      Return when = Return::kDone);
  /// All-gathers parts of different lengths: counts[i] is the number of elements of rank i and may
  /// be 0. All ranks must pass the same counts, otherwise Error "comm.mismatch" is thrown. whole
  /// must be contiguous unless all counts are equal. Throws Error "comm.tensor" if tensors do not
  /// fit counts.
  Work all_gather(const at::Tensor& whole, const at::Tensor& part, std::span<const int64_t> counts,
                  Return when = Return::kDone);
  /// Reduce-scatters into parts of different lengths, with counts as in all_gather.
  Work reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                      std::span<const int64_t> counts, Return when = Return::kDone);
  /// Copies the part of each rank i into wholes[i] on rank root. wholes is empty on other ranks.
  Work gather(const std::vector<at::Tensor>& wholes, const at::Tensor& part, int64_t root,
              Return when = Return::kDone);
  /// Copies wholes[i] of rank root into the part of rank i. wholes is empty on other ranks.
  Work scatter(const at::Tensor& part, const std::vector<at::Tensor>& wholes, int64_t root,
               Return when = Return::kDone);
  /// Sends sent[i] to rank i and receives received[i] from it; lengths may differ. The function
  /// always returns when it is done; `when` has no effect.
  Work all_to_all(const std::vector<at::Tensor>& received, const std::vector<at::Tensor>& sent,
                  Return when = Return::kDone);
  /// Sends parts of one tensor and receives parts of another, like all_to_all_single: the next
  /// sent_counts[i] elements of `sent` go to rank i, and the next received_counts[i] elements of
  /// `received` come from it. Both tensors are contiguous. Throws Error "comm.tensor" if they do not
  /// fit the counts.
  Work all_to_all(const at::Tensor& received, const at::Tensor& sent,
                  std::span<const int64_t> received_counts, std::span<const int64_t> sent_counts,
                  Return when = Return::kDone);
  /// Sends a tensor to one rank. It may wait until that rank calls recv with the same tag.
  Work send(const at::Tensor& data, int64_t to, int64_t tag = 0, Return when = Return::kDone);
  /// Receives a tensor that another rank sends with the same tag.
  Work recv(const at::Tensor& data, int64_t from, int64_t tag = 0, Return when = Return::kDone);
  /// Waits until all ranks have called it.
  void barrier();

  /// Returns the object of rank root on every rank, like broadcast_object_list. It may have any
  /// size.
  State broadcast(const State& object, int64_t root);
  /// Returns the objects of all ranks, in rank order, like all_gather_object. Sizes may differ.
  std::vector<State> all_gather(const State& object);
  /// Returns on all ranks whether the flag is true on any rank.
  bool any(bool flag);

  /// Returns a flat, uninitialized tensor that the backend reduces fastest: for the CPU, it lies in
  /// shared memory of the ranks of a host if the backend has any. All ranks must pass the same
  /// arguments.
  at::Tensor allocate(int64_t count, at::ScalarType type, at::Device device = at::kCPU);

  /// Returns zeros in memory that all ranks share; rank i may write its part of counts[i] elements.
  /// After a barrier, every rank sees what the others wrote before it. All ranks must pass the same
  /// arguments. Throws Error "comm.unsupported" if the ranks are on several hosts or the backend
  /// has no shared memory, and "comm.tensor" for counts that are negative or not one per rank.
  SharedTensor share(std::span<const int64_t> counts, at::ScalarType type);

  /// Returns what this process has called in this run, in all groups, by name. Empty for one rank.
  std::vector<CollectiveTotal> totals() const;

  /// Makes the group of some ranks of this group, like dist.new_group. All ranks of this group must
  /// call it; each rank outside the sub-group gets a group that contains only itself. Throws Error
  /// "comm.subgroup" for a rank that this group does not have or that occurs twice.
  ProcessGroup subgroup(const std::vector<int64_t>& ranks);

 private:
  friend class Work;
  friend class NamedGroup;
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin::comm
