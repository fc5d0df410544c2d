#pragma once
// Processes: what the processes of a run do together, under Accelerate's names.
// The engine is one; all functions but those of one process are called by all of them, in one
// order.
//
//   accelerator.on_main_process([&] { write_report(results); });
//   at::Tensor total = accelerator.reduce(correct, levin::ReduceOp::kSum);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/rank.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"

namespace levin {

/// A handle: copies are the same processes.
class LEVIN_API Processes {
 public:
  /// prepare_timeout_s: of prepare_on_local_main.
  Processes(RankInfo rank, comm::ProcessGroup world, double prepare_timeout_s = 86400);

  RankInfo rank() const { return rank_; }
  comm::ProcessGroup& world() { return world_; }
  int64_t num_processes() const { return rank_.world_size; }
  int64_t process_index() const { return rank_.rank; }
  int64_t local_process_index() const { return rank_.local_rank; }
  bool is_main_process() const { return rank_.is_global_zero(); }
  bool is_local_main_process() const { return rank_.local_rank == 0; }
  bool is_last_process() const { return rank_.rank == rank_.world_size - 1; }

  using Body = std::function<void()>;
  /// Runs it in that process alone; the others go on. Throws Error "accelerator.process" for a
  /// process that there is not.
  void on_main_process(const Body& body) const;
  void on_local_main_process(const Body& body) const;
  void on_last_process(const Body& body) const;
  void on_process(int64_t process_index, const Body& body) const;
  void on_local_process(int64_t local_process_index, const Body& body) const;
  /// Runs it in all processes, in the main one first (of the run, or of each machine).
  void main_process_first(const Body& body);
  void local_main_process_first(const Body& body);
  /// Runs it in one process of each machine; the others wait, longer than for an exchange: up to
  /// comm_prepare_timeout_s, a day at first. Throws Error "accelerator.prepare".
  void prepare_on_local_main(const Body& body);
  /// A line on the standard output, of one process of each machine.
  void print(std::string_view line) const;
  void wait_for_everyone() { world_.barrier(); }

  /// The ranks' values put together, on every rank.
  at::Tensor reduce(const at::Tensor& value, ReduceOp op, double scale = 1.0);
  /// A tensor of the same shape on every rank, one behind the other along the first dimension.
  at::Tensor gather(const at::Tensor& value);
  /// Grown to the size of the largest along the dim, by pad_value behind, or before it. Throws
  /// Error "accelerator.pad" for a dim that there is not.
  at::Tensor pad_across_processes(const at::Tensor& value, int64_t dim = 0, double pad_value = 0.0,
                                  bool pad_first = false);
  std::vector<State> gather_object(const State& object) { return world_.all_gather(object); }
  State broadcast_object(const State& object) { return world_.broadcast(object, 0); }

  /// This process' part of what all have: the rows of a tensor or the items of a list, the first
  /// processes one more where the number does not divide. apply_padding: the last repeats for those
  /// that have one less, so that all can be gathered.
  at::Tensor split_between_processes(const at::Tensor& value, bool apply_padding = false) const;
  template <class T>
  std::vector<T> split_between_processes(const std::vector<T>& list,
                                         bool apply_padding = false) const {
    std::vector<T> own;
    for (const int64_t i : own_part(static_cast<int64_t>(list.size()), apply_padding)) {
      own.push_back(list[static_cast<size_t>(i)]);
    }
    return own;
  }

  /// True on every rank as soon as it is on one.
  bool any(bool flag) { return world_.any(flag); }
  /// A flag that one process raises (a time limit, a bad loss) and all ask for: true once, on all
  /// of them, where one has raised it since the last time.
  void set_trigger();
  bool check_trigger();
  /// Done by every process, each with a body of its own; where one of them throws, all throw that
  /// Error (another exception as "accelerator.process_failed"; one process alone lets it pass). The
  /// body holds no collective operation.
  void all_or_throw(const Body& body);
  /// Rank 0's.
  bool from_main(bool flag);
  double from_main(double value);

 protected:
  /// True once split_between_processes was called.
  bool has_split() const;

 private:
  std::vector<int64_t> own_part(int64_t count, bool apply_padding) const;

  RankInfo rank_;
  comm::ProcessGroup world_;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace levin
