#pragma once
// Profiler: measures the time of operators and GPU kernels with Kineto, as torch.profiler.profile.
// It runs beside the training loop. Its traces open in chrome://tracing, Perfetto and TensorBoard.
//
//   levin::Profiler profiler({.output_trace_dir = "profile"});
//   for (...) { train_step(); profiler.step(); }
//   profiler.stop();  // profile/profile_0.json
//   std::cout << profiler.table();

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin {

/// Schedule of a profiler in calls of step(), as torch.profiler.schedule. It skips skip_first
/// steps, then repeats cycles of wait, warmup and active steps. With active = 0 everything is one
/// recording, with or without calls of step(); all other fields have to be 0 then.
struct ProfilerSchedule {
  int64_t wait = 0;        ///< steps of a cycle that are not recorded
  int64_t warmup = 0;      ///< steps of a cycle that are recorded and discarded
  int64_t active = 0;      ///< steps of a cycle that are recorded
  int64_t repeat = 0;      ///< number of cycles; 0: until the end
  int64_t skip_first = 0;  ///< steps before the first cycle
};

class Profiler;

/// Options of a Profiler, named as in torch.profiler.profile and Accelerate's ProfileKwargs.
struct ProfilerOptions {
  std::vector<std::string> activities = {};  ///< cpu, cuda; empty: all that are available
  ProfilerSchedule schedule_option = {};     ///< steps to record
  /// Called at the end of each recording, instead of writing it to output_trace_dir.
  std::function<void(Profiler&)> on_trace_ready = {};
  bool record_shapes = false;   ///< record the shapes of operator arguments
  bool profile_memory = false;  ///< record memory allocations
  /// Estimate the FLOPs of matrix products and convolutions; this records shapes too.
  bool with_flops = false;
  /// Folder for profile_RANK.json; traces of later cycles are profile_RANK_N.json. Empty: no files.
  std::string output_trace_dir = {};
  int64_t rank = 0;  ///< rank of this process, for the file name
};

/// Totals of all calls of one operator, or of one kernel on a GPU.
struct OperatorAverage {
  std::string name;       ///< name of the operator or kernel
  bool on_cpu = true;     ///< false for a kernel on a GPU
  int64_t calls = 0;      ///< number of calls
  double total_us = 0.0;  ///< microseconds, with the operators that it called
  double self_us = 0.0;   ///< microseconds, without the operators that it called
  int64_t flops = 0;      ///< floating-point operations; 0 unless with_flops is set
};

/// Records operators and kernels from its construction on. A process may have one running profiler.
/// The constructor throws Error "observe.profiler.schedule", "observe.profiler.activity" and
/// "observe.profiler.running".
class LEVIN_API Profiler {
 public:
  /// Starts the profiler.
  explicit Profiler(ProfilerOptions options = {});
  /// Stops the profiler; an error becomes a warning.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Begins the next step. A step that ends a cycle ends its recording and writes it. Throws Error
  /// "observe.profiler.write", and "observe.profiler.running" if another profiler runs when a cycle
  /// begins.
  void step();
  /// Ends the recording and writes it. Throws Error "observe.profiler.write".
  void stop();

  /// Writes the latest finished recording as a Chrome trace. Throws Error "observe.profiler.empty"
  /// if there is none, and "observe.profiler.write".
  void export_chrome_trace(const std::filesystem::path& file) const;
  /// Returns the totals of the latest finished recording by operator, by descending self time.
  /// Throws Error "observe.profiler.empty" if there is none.
  std::vector<OperatorAverage> key_averages() const;
  /// Returns key_averages() as a text table of at most row_limit rows.
  std::string table(int64_t row_limit = 20) const;

 private:
  class Recording;
  enum class Phase { kNone, kWarmup, kRecord };

  Phase phase_of(int64_t step) const;
  bool ends_cycle(int64_t step) const;
  void enter(Phase phase);
  void end_recording();
  void hand_out();

  ProfilerOptions options_;
  Phase phase_ = Phase::kNone;
  int64_t step_ = 0;
  int64_t recordings_ = 0;
  bool stopped_ = false;
  std::unique_ptr<Recording> recording_;
};

}  // namespace levin
