#pragma once
// Profiler: which operators a stretch of a program spends its time in (Kineto, as torch.profiler).
// Beside the training loop; what it recorded opens in chrome://tracing, Perfetto and TensorBoard.
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

/// Of the calls of step(): skip_first are passed over, then cycles of wait (nothing is recorded),
/// warmup (recorded and dropped) and active steps, repeat of them (0: to the end). active = 0: all
/// of it is one recording, with or without steps. Follows torch.profiler.schedule.
struct ProfilerSchedule {
  int64_t wait = 0;
  int64_t warmup = 0;
  int64_t active = 0;
  int64_t repeat = 0;
  int64_t skip_first = 0;
};

class Profiler;

struct ProfilerOptions {
  std::vector<std::string> activities = {};  ///< cpu, cuda; empty: whatever there is
  ProfilerSchedule schedule_option = {};
  std::function<void(Profiler&)> on_trace_ready = {};  ///< in place of writing into the folder
  bool record_shapes = false;                          ///< of the operators' arguments
  bool profile_memory = false;                         ///< allocations
  bool with_flops = false;            ///< of matrix products and convolutions; records shapes too
  std::string output_trace_dir = {};  ///< folder of profile_RANK.json, of later cycles with their
                                      ///< number; empty: nothing is written
  int64_t rank = 0;                   ///< of this process, in the file's name
};

/// All calls of one operator, or of one kernel on a GPU.
struct OperatorAverage {
  std::string name;
  bool on_cpu = true;
  int64_t calls = 0;
  double total_us = 0.0;  ///< with the operators that it called
  double self_us = 0.0;   ///< without them
  int64_t flops = 0;
};

/// Records from its making on. One at a time in a process. Throws Error
/// "observe.profiler.schedule", "observe.profiler.activity" and "observe.profiler.running".
class LEVIN_API Profiler {
 public:
  explicit Profiler(ProfilerOptions options = {});
  /// Stops; what goes wrong is a warning.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// The next step begins.
  void step();
  /// Ends the recording and writes it. Throws Error "observe.profiler.write".
  void stop();

  /// The recording that ended last. Throws Error "observe.profiler.empty" when there is none.
  void export_chrome_trace(const std::filesystem::path& file) const;
  /// The most expensive by self time first.
  std::vector<OperatorAverage> key_averages() const;
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
