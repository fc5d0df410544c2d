#pragma once
// ProcessGroup: the collectives of a number of ranks, whatever carries the bytes.
// Built once from the environment; sub-groups are made from it.
//
//   comm::ProcessGroup world = comm::ProcessGroup::connect(comm::read_environment());
//   world.all_reduce(gradient, ReduceOp::kMean);
//   auto work = world.all_reduce(next, ReduceOp::kMean, comm::Return::kStarted); ... work.wait();

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

// ReduceOp: how a collective puts the ranks' values together.

namespace levin {

enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };

}  // namespace levin

namespace c10d {
class Store;
}  // namespace c10d

namespace levin::comm {

/// When a collective returns: with its result, or as soon as it is under way.
enum class Return { kDone, kStarted };

/// A collective that was started. Its tensors may not be touched before wait() has returned.
class LEVIN_API Work {
 public:
  Work();
  ~Work();
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;

  /// Throws what went wrong: "comm.timeout", "comm.peer", "comm.mismatch", "comm.failed".
  void wait();
  bool done() const;

 private:
  friend class ProcessGroup;
  struct Impl;
  explicit Work(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;  // none once it is done
};

struct ProcessGroupOptions {
  /// auto, shm, gloo, mpi, hierarchical or hierarchical-mpi. auto: shm where all ranks are on one
  /// host, gloo where each is on a host of its own, else hierarchical: shm on each host and gloo
  /// between them.
  std::string backend = "auto";
  /// This process has a GPU of its own: tensors on it go over nccl, those on the CPU over backend.
  bool on_gpu = false;
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< of one collective
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  /// Compares name, type, size and operation of each collective of GPUs over the ranks before it
  /// begins; those of CPUs always are.
  bool check = false;
};

/// One memory that all ranks of a host map.
struct SharedTensor {
  at::Tensor whole;  ///< flat, for reading: who writes to it dies by SIGSEGV
  at::Tensor own;    ///< this rank's part of it at another address, for writing
};

/// A handle: copies share the group. A timeout or a mismatch is an error whose text says who came
/// and who did not; see Watchdog. Every rank of it calls the same functions in the same order, with
/// tensors of the same shape and type. Sums are over contiguous memory of any layout; a result is
/// the same bits on every rank. A group of one rank copies and returns.
class LEVIN_API ProcessGroup {
 public:
  /// This rank alone.
  ProcessGroup();
  /// All ranks of the run. Throws what connect_store throws, "comm.connect" when not all of them
  /// come in time and "comm.backend" for a backend that is not there or does not reach all ranks.
  static ProcessGroup connect(const Environment& environment, const ProcessGroupOptions& options);

  int64_t rank() const;
  int64_t size() const;
  /// Of tensors on the CPU: shm, gloo, ...; "none" for one rank.
  const std::string& backend() const;
  /// Number in the run of each rank of this group.
  const std::vector<int64_t>& global_ranks() const;
  /// Where its ranks can leave each other words, under keys of that prefix; none for one rank.
  c10::intrusive_ptr<c10d::Store> store(const std::string& prefix) const;

  Work all_reduce(const at::Tensor& data, ReduceOp op, Return when = Return::kDone);
  Work all_reduce(const std::vector<at::Tensor>& data, ReduceOp op, Return when = Return::kDone);
  Work broadcast(const at::Tensor& data, int64_t root, Return when = Return::kDone);
  /// whole: size() times the elements of part, rank after rank.
  Work all_gather(const at::Tensor& whole, const at::Tensor& part, Return when = Return::kDone);
  Work reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                      Return when = Return::kDone);
  /// Of parts of any lengths: counts[i] elements are rank i's, which may be none. All ranks name
  /// the same counts; "comm.mismatch" where they do not. whole is contiguous.
  Work all_gather(const at::Tensor& whole, const at::Tensor& part, std::span<const int64_t> counts,
                  Return when = Return::kDone);
  Work reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                      std::span<const int64_t> counts, Return when = Return::kDone);
  /// wholes is empty on the other ranks than root.
  Work gather(const std::vector<at::Tensor>& wholes, const at::Tensor& part, int64_t root,
              Return when = Return::kDone);
  Work scatter(const at::Tensor& part, const std::vector<at::Tensor>& wholes, int64_t root,
               Return when = Return::kDone);
  /// sent[i] goes to rank i, received[i] comes from it; lengths may differ.
  Work all_to_all(const std::vector<at::Tensor>& received, const std::vector<at::Tensor>& sent,
                  Return when = Return::kDone);
  /// May wait for the recv that takes it.
  Work send(const at::Tensor& data, int64_t to, int64_t tag = 0, Return when = Return::kDone);
  Work recv(const at::Tensor& data, int64_t from, int64_t tag = 0, Return when = Return::kDone);
  void barrier();

  /// Objects of any size.
  State broadcast(const State& object, int64_t root);
  std::vector<State> all_gather(const State& object);
  /// True on all ranks as soon as it is on one.
  bool any(bool flag);

  /// A flat tensor that the backend reduces fastest: on the CPU, in memory that the ranks of a host
  /// share, where there is any. All ranks ask for the same.
  at::Tensor allocate(int64_t count, at::ScalarType type, at::Device device = at::kCPU);

  /// Zeros of which each rank has a part of counts[i] elements, and which are the same memory for
  /// all. Ranks see what others wrote before a barrier. All ranks ask for the same. Throws
  /// "comm.unsupported" where ranks are on several hosts, or talk by messages.
  SharedTensor share(std::span<const int64_t> counts, at::ScalarType type);

  /// The group of these ranks of this group. All of this group's ranks call it, and those outside
  /// get a group of themselves alone. Throws "comm.subgroup".
  ProcessGroup subgroup(const std::vector<int64_t>& ranks);

 private:
  friend class Work;
  friend class NamedGroup;
  struct Impl;
  explicit ProcessGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace levin::comm
