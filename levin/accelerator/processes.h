#pragma once
// Processes: the processes of a run and their collective operations, named as in Hugging Face
// Accelerate. Accelerator inherits from Processes. Functions that act on all processes are
// collective: all processes call them, in the same order. get_logger returns a log for several
// processes, and find_executable_batch_size lowers a batch size until a function fits into memory.
//
//   accelerator.on_main_process([&] { write_report(results); });
//   at::Tensor total = accelerator.reduce(correct, levin::ReduceOp::kSum);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/log_sink.h"
#include "levin/base/rank.h"
#include "levin/base/state.h"
#include "levin/comm/process_group.h"

namespace levin {

/// Handle to the processes of a run: copies refer to the same processes.
class LEVIN_API Processes {
 public:
  /// Creates the handle. prepare_timeout_s is the timeout of prepare_on_local_main, in seconds.
  Processes(RankInfo rank, comm::ProcessGroup world, double prepare_timeout_s = 86400);

  RankInfo rank() const { return rank_; }                     ///< Rank, local rank and world size.
  comm::ProcessGroup& world() { return world_; }              ///< Process group of all ranks.
  int64_t num_processes() const { return rank_.world_size; }  ///< World size.
  int64_t process_index() const { return rank_.rank; }        ///< Rank of this process.
  int64_t local_process_index() const { return rank_.local_rank; }  ///< Local rank.
  /// Returns whether the rank is 0.
  bool is_main_process() const { return rank_.is_global_zero(); }
  /// Returns whether the local rank is 0.
  bool is_local_main_process() const { return rank_.local_rank == 0; }
  /// Returns whether the rank is the last one.
  bool is_last_process() const { return rank_.rank == rank_.world_size - 1; }

  using Body = std::function<void()>;  ///< a function to run in some processes
  /// Runs the body in the main process (rank 0) only; the others do not wait.
  void on_main_process(const Body& body) const;
  /// Runs the body in local rank 0 of each machine only.
  void on_local_main_process(const Body& body) const;
  void on_last_process(const Body& body) const;  ///< Runs the body in the last rank only.
  /// Runs the body in one rank only. Throws Error "accelerator.process" for a rank that does not
  /// exist.
  void on_process(int64_t process_index, const Body& body) const;
  /// Runs the body in one local rank of each machine only. Throws Error "accelerator.process" for a
  /// local rank that does not exist.
  void on_local_process(int64_t local_process_index, const Body& body) const;
  /// Runs the body in the main process first, then in all others.
  void main_process_first(const Body& body);
  /// Runs the body in local rank 0 of each machine first, then in all others.
  void local_main_process_first(const Body& body);
  /// Runs the body in local rank 0 of each machine while the others wait, with a longer timeout
  /// than for a collective: prepare_timeout_s of the constructor (flag --comm-prepare-timeout-s),
  /// by default one day. Throws the exception of the body in the process that ran it, and Error
  /// "accelerator.prepare" in the others, also after the timeout.
  void prepare_on_local_main(const Body& body);
  /// Prints a line to stdout, in local rank 0 of each machine.
  void print(std::string_view line) const;
  void wait_for_everyone() { world_.barrier(); }  ///< Barrier over all processes.

  /// Reduces a tensor over the ranks, multiplies it by scale, and returns the result on every rank.
  at::Tensor reduce(const at::Tensor& value, ReduceOp op, double scale = 1.0);
  /// Concatenates the ranks' tensors of the same shape along the first dimension; a scalar counts
  /// as [1].
  at::Tensor gather(const at::Tensor& value);
  /// Pads a tensor along dim to the size of the largest one over the ranks, with pad_value at the
  /// end, or at the front with pad_first. Throws Error "accelerator.pad" for a dim that does not
  /// exist.
  at::Tensor pad_across_processes(const at::Tensor& value, int64_t dim = 0, double pad_value = 0.0,
                                  bool pad_first = false);
  /// Returns the objects of all ranks, in rank order.
  std::vector<State> gather_object(const State& object) { return world_.all_gather(object); }
  /// Returns rank 0's object on every rank.
  State broadcast_object(const State& object) { return world_.broadcast(object, 0); }

  /// Returns this process's part of the rows of a tensor that is the same in all processes. If the
  /// number of rows is not a multiple of the number of processes, the first ranks get one row more.
  /// With apply_padding a shorter part repeats its last row, so that all parts can be gathered.
  /// Throws Error "accelerator.split" for a scalar.
  at::Tensor split_between_processes(const at::Tensor& value, bool apply_padding = false) const;
  /// Returns this process's part of a list's items, chosen like the rows of a tensor.
  template <class T>
  std::vector<T> split_between_processes(const std::vector<T>& list,
                                         bool apply_padding = false) const {
    std::vector<T> own;
    for (const int64_t i : own_part(static_cast<int64_t>(list.size()), apply_padding)) {
      own.push_back(list[static_cast<size_t>(i)]);
    }
    return own;
  }

  /// Returns true on every rank if the flag is true on at least one rank.
  bool any(bool flag) { return world_.any(flag); }
  /// Raises a flag in this process (a time limit, a bad loss), for check_trigger().
  void set_trigger();
  /// Returns true on all processes if a process has raised the flag since the last call, and clears
  /// the flag.
  bool check_trigger();
  /// Runs the body in every process; the processes' bodies may differ. If a body throws an Error,
  /// all processes throw it; any other exception becomes Error "accelerator.process_failed". With a
  /// single process, exceptions pass unchanged. The body must not call collectives.
  void all_or_throw(const Body& body);
  bool from_main(bool flag);       ///< Returns rank 0's value on every rank.
  double from_main(double value);  ///< Returns rank 0's value on every rank.

 protected:
  bool has_split() const;  ///< Returns whether split_between_processes was called.

 private:
  std::vector<int64_t> own_part(int64_t count, bool apply_padding) const;

  RankInfo rank_;
  comm::ProcessGroup world_;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Options of a message of MultiProcessLogger, with the names and defaults of Accelerate's adapter.
struct LogMessageOptions {
  bool main_process_only = true;  ///< only the main process writes the message
  /// Processes write the message one after another, by rank; all of them call the function. It
  /// overrides main_process_only.
  bool in_order = false;
};

/// A log whose messages the main process writes, or all processes; follows
/// accelerate.logging.MultiProcessAdapter. It writes like levin's own log: to stderr, or to the sink
/// of log::set_sink, if LEVIN_LOG includes the level. Messages begin with the logger's name.
class LEVIN_API MultiProcessLogger {
 public:
  /// get_logger() calls it.
  MultiProcessLogger(Processes processes, std::string name, std::optional<log::Level> level);

  /// Writes a message of a level.
  void log(log::Level level, std::string_view message, const LogMessageOptions& options = {});
  /// Writes details for finding faults.
  void debug(std::string_view message, const LogMessageOptions& options = {}) {
    log(log::Level::kDebug, message, options);
  }
  /// Writes the progress of the run.
  void info(std::string_view message, const LogMessageOptions& options = {}) {
    log(log::Level::kInfo, message, options);
  }
  /// Writes a warning.
  void warning(std::string_view message, const LogMessageOptions& options = {}) {
    log(log::Level::kWarn, message, options);
  }
  /// Writes a warning, once for each text.
  void warning_once(std::string_view message, const LogMessageOptions& options = {});
  /// Writes a failure.
  void error(std::string_view message, const LogMessageOptions& options = {}) {
    log(log::Level::kError, message, options);
  }

 private:
  Processes processes_;
  std::string name_;
  std::optional<log::Level> level_;
  std::set<std::string, std::less<>> warned_;
};

/// Returns a log for the processes of an Accelerator; follows accelerate.logging.get_logger. The
/// lowest level that is written is log_level, by default that of LEVIN_LOG.
LEVIN_API MultiProcessLogger get_logger(const Processes& processes, std::string name,
                                        std::optional<log::Level> log_level = std::nullopt);

/// Returns the next batch size after one that ran out of memory; follows reduce_batch_size_fn of
/// Accelerate.
using ReduceBatchSize = std::function<int64_t(int64_t batch_size)>;

namespace detail {
LEVIN_API void begin_batch_size_search(int64_t starting_batch_size);
/// Returns nullopt for an error that is not one of memory.
LEVIN_API std::optional<int64_t> reduced_batch_size(const std::exception& error, int64_t batch_size,
                                                    const ReduceBatchSize& reduce);
}  // namespace detail

/// Calls function(batch_size) and returns its result. As long as it runs out of memory, frees the
/// allocators' caches and calls it again with a smaller batch size: 0.9 times the size, rounded down,
/// or what reduce_batch_size_fn returns. Follows accelerate.utils.find_executable_batch_size. The
/// function makes model, optimizer and loader itself, so that nothing of a failed call is left. On a
/// CPU the system may end a program that uses too much memory, instead of an error;
/// Tuner::scale_batch_size forecasts the memory there.
///
///   levin::find_executable_batch_size(128, [&](int64_t batch_size) { train(batch_size); });
///
/// Throws Error "accelerator.executable_batch_size" at size 0, for a size below 1 at the start or a
/// reduction that returns a size that is not smaller, and in a run of several processes: a process
/// that ran out of memory alone would leave the others waiting in a collective of the function.
template <class Function>
auto find_executable_batch_size(int64_t starting_batch_size, Function&& function,
                                const ReduceBatchSize& reduce_batch_size_fn = nullptr) {
  detail::begin_batch_size_search(starting_batch_size);
  for (int64_t batch_size = starting_batch_size;;) {
    try {
      return function(batch_size);
    } catch (const std::exception& error) {
      const auto next = detail::reduced_batch_size(error, batch_size, reduce_batch_size_fn);
      if (!next) throw;
      batch_size = *next;
    }
  }
}

}  // namespace levin
